"""A log of interactions, who took what and when: read from a file, or made from a seed."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MINIMUM = 20
# Column names to try in this order if no option names the column. Letter case does not matter.
_USUAL_NAMES = {
    "user": ("user", "user_id", "userid", "customer", "customer_id", "customerid", "visitorid"),
    "item": ("item", "item_id", "itemid", "movieid", "product_id", "productid", "stockcode"),
    "time": ("timestamp", "time", "date", "datetime", "invoicedate"),
}
_MOVIELENS = re.compile(r"\d+(\t|::)\d+\1[\d.]+\1\d+")
_WHOLE_FLOAT = re.compile(r"([+-]?\d+)\.0+")


@dataclass(frozen=True)
class Interactions:
    """Users who took items at times; rows are ordered by time.

    Numpy uses positions, which index the ids of this log. The model gets the ids themselves, never
    positions, so it needs no vocabulary.

    Attributes:
        users: int64 `[n]`, positions in `user_ids`.
        items: int64 `[n]`, positions in `item_ids`.
        times: int64 `[n]`, seconds since 1970, ascending.
        user_ids: `[num_users]` strings, each id once.
        item_ids: `[num_items]` strings, each id once.
    """

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    times: NDArray[np.int64]
    user_ids: NDArray[np.str_]
    item_ids: NDArray[np.str_]

    @classmethod
    def from_ids(
        cls, users: Sequence[str], items: Sequence[str], times: Sequence[int] | NDArray[np.int64]
    ) -> Interactions:
        """Numbers the ids and sorts the rows by time. Rows with equal times keep their order."""
        user_ids, user_places = np.unique(np.asarray(users, np.str_), return_inverse=True)
        item_ids, item_places = np.unique(np.asarray(items, np.str_), return_inverse=True)
        seconds = np.asarray(times, np.int64)
        order = np.argsort(seconds, kind="stable")
        return cls(user_places[order], item_places[order], seconds[order], user_ids, item_ids)

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: NDArray[np.int64] | slice) -> Interactions:
        """Returns the chosen rows, with the same ids."""
        return replace(self, users=self.users[rows], items=self.items[rows], times=self.times[rows])

    def pairs(self) -> NDArray[np.int64]:
        """Returns one number per row's (user, item) `[n]`: equal numbers mean the same pair."""
        return self.users * len(self.item_ids) + self.items


def read_log(
    path: Path,
    columns: Mapping[str, str | None] | None = None,
    time_format: str | None = None,
    encoding: str = "utf-8-sig",
) -> tuple[Interactions, int]:
    """Reads a CSV file with named columns, or MovieLens' `u.data` or `ratings.dat`.

    The values of a CSV file are separated by a comma, semicolon, tab or "|". Ids are strings. A
    whole number written as a float (17850.0, as data frames write a column with gaps) is read as
    this number. A time without a zone is UTC.

    `columns` has the names of the columns "user", "item" and "time"; common names are found.
    `time_format` is as for `datetime.strptime`; None for numbers and ISO 8601.

    Returns:
        The log, and the number of lines that were left out without a user, an item or a time.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is no such log.
    """
    rows: list[list[str]] = []
    left_out = 0
    with path.open(encoding=encoding, newline="") as file:
        first = next(file, "")
        lines = itertools.chain([first], file)
        movielens = _MOVIELENS.fullmatch(first.strip())
        if movielens:
            header = ["user", "item", "rating", "time"]
            table = (line.strip().split(movielens[1]) for line in lines)
        else:
            table = csv.reader(lines, delimiter=max(",;\t|", key=first.count))
            header = [name.strip() for name in next(table, [])]
        places = [_column(header, what, (columns or {}).get(what)) for what in _USUAL_NAMES]
        for fields in table:
            row = [fields[place].strip() for place in places if place < len(fields)]
            if len(row) == 3 and all(row):
                rows.append(row)
            elif any(fields):
                left_out += 1
    if len(rows) < MINIMUM:
        raise ValueError(
            f"A log must have at least {MINIMUM} interactions to learn from. "
            f"Received: {path} with {len(rows)}."
        )
    users, items, texts = zip(*rows, strict=True)
    seconds = {text: _seconds(text, time_format) for text in set(texts)}
    ids = ([_WHOLE_FLOAT.sub(r"\1", text) for text in column] for column in (users, items))
    return Interactions.from_ids(*ids, [seconds[text] for text in texts]), left_out


def _column(header: Sequence[str], what: str, name: str | None) -> int:
    lower = [column.lower() for column in header]
    names = _USUAL_NAMES[what] if name is None else (name.lower(),)
    found = next((lower.index(usual) for usual in names if usual in lower), None)
    if found is None:
        raise ValueError(
            f"The log must have a {what} column; name it with --{what}-column. "
            f"Received: {name or 'no name'}, and the columns {', '.join(header)}."
        )
    return found


def _seconds(text: str, time_format: str | None) -> int:
    try:
        if time_format is not None:
            moment = datetime.strptime(text, time_format)
        elif re.fullmatch(r"[+-]?\d{1,19}(\.\d+)?", text):
            if abs(seconds := int(float(text))) >= 2**63:
                raise ValueError
            return seconds
        else:
            moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1] == "Z" else text)
    except ValueError:
        expected = f"match {time_format!r}" if time_format else "be a number or ISO 8601"
        raise ValueError(
            f"Each time must {expected} (set --time-format, as for datetime.strptime). "
            f"Received: {text!r}."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp())


def synthetic_log(
    seed: int = 0, *, num_ids: int = 4000, num_events: int = 150_000, num_genres: int = 20
) -> Interactions:
    """Makes a log of 30 days with learnable tastes.

    Item `n` is of genre `n % num_genres`, and every user has two favourite genres. Ids with small
    numbers are frequent. Three in ten users and items first occur after the first day, so the end
    of the log has ids that its beginning lacks. A user takes an item only once.

    Args:
        seed: The same seed gives the same log.
        num_ids: Largest number of users, and of items.
        num_events: Number of drawn interactions; repeated pairs are dropped.
        num_genres: Number of genres.
    """
    rng = np.random.default_rng(seed)
    day = np.sort(rng.integers(30, size=num_events))
    present = 0.7 + 0.01 * day  # the part of the ids that there is on a day
    user = (num_ids * present * rng.random(num_events) ** 2).astype(np.int64)
    tastes = rng.integers(num_genres, size=(num_ids, 2))
    chance, genre = rng.random(num_events), rng.integers(num_genres, size=num_events)
    genre = np.where(chance < 0.5, tastes[user, 0], genre)
    genre = np.where((chance >= 0.5) & (chance < 0.75), tastes[user, 1], genre)
    rank = (num_ids // num_genres * present * rng.random(num_events) ** 2).astype(np.int64)
    item = rank * num_genres + genre
    time = 1_700_000_000 + day * 86_400 + rng.integers(86_400, size=num_events)
    kept = np.unique(user * num_ids + item, return_index=True)[1]
    return Interactions.from_ids(
        [f"u{n}" for n in user[kept]], [f"i{n}" for n in item[kept]], time[kept]
    )


def split_by_time(log: Interactions) -> tuple[Interactions, Interactions]:
    """Divides a log at the time after about four fifths of its rows, for training and test.

    Rows with equal times stay together. The test has each (user, item) pair once, without the pairs
    of the training: a model could rank such items by remembering them, without learning tastes. It
    includes users and items that the training does not have.

    Raises:
        ValueError: The log has only one time, or no new pair after the cut.
    """
    time = log.times[int(len(log) * 0.8)]
    cut = np.searchsorted(log.times, time) or np.searchsorted(log.times, time, side="right")
    train, later = log.take(slice(0, cut)), log.take(slice(cut, None))
    first = np.sort(np.unique(later.pairs(), return_index=True)[1])
    test = later.take(first[~np.isin(later.pairs()[first], train.pairs())])
    if len(test) == 0:
        raise ValueError(
            "A log must have a pair of a user and an item in its last fifth that is new. Received: "
            f"{len(log)} interactions, {len(later)} of them after the cut. Give a longer log."
        )
    return train, test
