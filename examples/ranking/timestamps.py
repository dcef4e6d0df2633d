"""Reads times: numbers, ISO 8601, or the user's own format."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np
from numpy.typing import NDArray

from ranking.errors import DataError


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
