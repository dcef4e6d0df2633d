"""Reads a log of interactions from a text file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ranking.errors import DataError
from ranking.interactions import Interactions

MINIMUM = 20

# Column names to try in this order if no option names the column. Letter case does not matter.
_USUAL_NAMES = {
    "user": ("user", "user_id", "userid", "customer", "customer_id", "customerid", "visitorid"),
    "item": ("item", "item_id", "itemid", "movieid", "product_id", "productid", "stockcode"),
    "time": ("timestamp", "time", "date", "datetime", "invoicedate"),
}
_MOVIELENS = {
    "\t": ("MovieLens u.data", re.compile(r"\d+\t\d+\t[\d.]+\t\d+")),
    "::": ("MovieLens ratings.dat", re.compile(r"\d+::\d+::[\d.]+::\d+")),
}
_WHOLE_FLOAT = re.compile(r"([+-]?\d+)\.0+")
# A row of the file: line number, user, item and time as written ("" if missing).
_Row = tuple[int, str, str, str]


@dataclass(frozen=True)
class LogFormat:
    """Properties that a log file does not state itself. A property that is None is detected.

    Attributes:
        user_column: name of the column of user ids.
        item_column: name of the column of item ids.
        time_column: name of the column of times.
        time_format: format of the times, as for `datetime.strptime`.
        encoding: encoding of the text.
    """

    user_column: str | None = None
    item_column: str | None = None
    time_column: str | None = None
    time_format: str | None = None
    encoding: str = "utf-8-sig"


@dataclass(frozen=True)
class LogReport:
    """A summary of what was read.

    Attributes:
        kind: the detected format, in words.
        lines: number of data lines.
        left_out: number of lines without a "user", an "item" or a "time", which were skipped.
    """

    kind: str
    lines: int
    left_out: dict[str, int]

    def __str__(self) -> str:
        missing = [f"{count:,} without {what}" for what, count in self.left_out.items() if count]
        return f"{self.kind}, {self.lines:,} lines" + "".join(
            [", left out ", ", ".join(missing)] if missing else []
        )


def read_log(path: Path, form: LogFormat | None = None) -> tuple[Interactions, LogReport]:
    """Reads a CSV file with named columns, or MovieLens' `u.data` or `ratings.dat`.

    The values of a CSV file are separated by a comma, semicolon, tab or "|".

    Ids are strings. A whole number written as a float (17850.0, as data frames write a column with
    gaps) is read as this number, so that both spellings give one id.

    Raises:
        DataError: the file cannot be used; the message says why and how to fix it.
    """
    form = form or LogFormat()
    try:
        with path.open(encoding=form.encoding, newline="") as stream:
            kind, rows = _rows(stream, form)
            return _collect(kind, rows, form)
    except OSError as error:
        raise DataError(
            f"--data must be a file that can be read. Received: {path} ({error.strerror})."
        ) from error
    except (UnicodeError, LookupError) as error:
        raise DataError(
            f"The log must be text in the encoding {form.encoding} (set --encoding, for example "
            f"latin-1). Received: {path} ({error})."
        ) from error
    except csv.Error as error:
        raise DataError(f"The log must be well-formed CSV. Received: {path} ({error}).") from error


def _rows(stream: Iterable[str], form: LogFormat) -> tuple[str, Iterator[_Row]]:
    lines = iter(stream)
    first = next(lines, "")
    if not first.strip():
        raise DataError("The log must not be empty. Received: a file with no first line.")
    for separator, (kind, pattern) in _MOVIELENS.items():
        if pattern.fullmatch(first.strip()):
            return kind, _movielens_rows(first, lines, separator)
    delimiter = max(",;\t|", key=first.count)
    header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    columns = [
        _column(header, "user", form.user_column),
        _column(header, "item", form.item_column),
        _column(header, "time", form.time_column),
    ]
    kind = "CSV with columns " + ", ".join(header[column] for column in columns)
    return kind, _csv_rows(lines, delimiter, columns)


def _column(header: Sequence[str], what: str, name: str | None) -> int:
    found = f"Received: the columns {', '.join(header)}."
    if name is not None:
        if name in header:
            return header.index(name)
        raise DataError(f"--{what}-column must be a column of the log, not {name!r}. {found}")
    lower = [column.lower() for column in header]
    for usual in _USUAL_NAMES[what]:
        if usual in lower:
            return lower.index(usual)
    raise DataError(f"The log must have a {what} column; name it with --{what}-column. {found}")


def _csv_rows(lines: Iterator[str], delimiter: str, columns: Sequence[int]) -> Iterator[_Row]:
    reader = csv.reader(lines, delimiter=delimiter)
    for fields in reader:
        if fields:
            user, item, time = (
                fields[column].strip() if column < len(fields) else "" for column in columns
            )
            yield reader.line_num + 1, user, item, time


def _movielens_rows(first: str, lines: Iterator[str], separator: str) -> Iterator[_Row]:
    for number, line in enumerate([first, *lines], start=1):
        if not line.strip():
            continue
        fields = line.strip().split(separator)
        if len(fields) != 4:
            raise DataError(
                f"Each line must be user, item, rating and time, separated by {separator!r}. "
                f"Received: {line.strip()[:80]!r} on line {number}."
            )
        yield number, fields[0], fields[1], fields[3]


def _collect(kind: str, rows: Iterator[_Row], form: LogFormat) -> tuple[Interactions, LogReport]:
    kept: list[_Row] = []
    left_out = {"user": 0, "item": 0, "time": 0}
    for row in rows:
        missing = next((what for what, text in zip(left_out, row[1:], strict=True) if not text), "")
        if missing:
            left_out[missing] += 1
        else:
            kept.append(row)
    report = LogReport(kind, len(kept) + sum(left_out.values()), left_out)
    if len(kept) < MINIMUM:
        raise DataError(
            f"A log must have at least {MINIMUM} interactions to learn from. "
            f"Received: {len(kept)} ({report})."
        )
    numbers, users, items, times = zip(*kept, strict=True)
    log = Interactions.from_ids(
        [_normal_id(user) for user in users],
        [_normal_id(item) for item in items],
        parse_times(times, numbers, form.time_format),
    )
    return log, report


def _normal_id(text: str) -> str:
    match = _WHOLE_FLOAT.fullmatch(text)
    return match[1] if match else text


def parse_times(
    texts: Sequence[str], lines: Sequence[int], time_format: str | None = None
) -> NDArray[np.int64]:
    """Converts texts to whole seconds since 1970. A time without a zone is UTC.

    Args:
        texts: the times as written, `[n]`.
        lines: the line of each time in the file, for the error message, `[n]`.
        time_format: as for `datetime.strptime`; None for numbers and ISO 8601.

    Raises:
        DataError: a text is not a time; the message names the first one and its line.
    """
    known: dict[str, int] = {}  # a log repeats the same times
    for text, line in zip(texts, lines, strict=True):
        if text not in known:
            try:
                known[text] = _seconds(text, time_format)
            except (ValueError, OverflowError) as error:
                expected = f"match {time_format!r}" if time_format else "be a number or ISO 8601"
                raise DataError(
                    f"Each time must {expected} (set --time-format, as for datetime.strptime). "
                    f"Received: {text!r} on line {line}."
                ) from error
    return np.fromiter((known[text] for text in texts), np.int64, len(texts))


def _seconds(text: str, time_format: str | None) -> int:
    if time_format is not None:
        moment = datetime.strptime(text, time_format)
    else:
        try:
            return int(float(text))
        except ValueError:
            moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1] == "Z" else text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp())
