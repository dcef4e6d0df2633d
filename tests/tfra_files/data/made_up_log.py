"""A made-up log of users and items, for programs with tfra and with this library."""

from collections.abc import Iterator

import numpy as np


def batches(first: int, count: int) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Yields ids and labels of some steps. New ids appear in every step; some ids repeat."""
    for step in range(first, first + count):
        numbers = np.arange(6, dtype=np.int64)
        users = (numbers * (step % 5 + 1) + step) % 29 + 2**40
        items = (numbers // 2 + step) % 17
        labels = ((users + items) % 3 / 2).astype(np.float32)[:, None]
        yield {"user_id": users, "item_id": items}, labels
