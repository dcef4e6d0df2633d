"""A synthetic log from a seed: long-tailed ids, known tastes, new users and items every day."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ranking.interactions import Interactions

_DAY = 86_400
_START = 1_700_000_000
_FAVOURITE, _SECOND = 0.5, 0.25  # the rest of a user's interactions depend only on popularity


def synthetic_log(
    seed: int = 0,
    *,
    num_users: int = 4000,
    num_items: int = 4000,
    num_events: int = 150_000,
    num_genres: int = 20,
    num_days: int = 30,
) -> Interactions:
    """Creates a log with learnable tastes.

    Every item has a genre and every user has two favourite genres. The frequency of an item or a
    user falls as a power of its rank (Zipf). Three in ten users and items first occur on a later
    day, so the end of the log has ids that its beginning lacks. A user takes an item only once.

    Args:
        seed: the same seed gives the same log.
        num_users: largest number of users.
        num_items: largest number of items.
        num_events: number of drawn interactions; repeated pairs are dropped.
        num_genres: number of genres.
        num_days: number of days in the log.
    """
    rng = np.random.default_rng(seed)
    genre = rng.integers(num_genres, size=num_items)
    tastes = rng.integers(num_genres, size=(num_users, 2))
    item_weight = _zipf(num_items, 0.9, rng)
    user_weight = _zipf(num_users, 0.6, rng)
    item_born = _first_day(num_items, num_days, rng)
    user_born = _first_day(num_users, num_days, rng)
    # Row g < num_genres: the items of genre g. The last row: all items.
    in_genre = np.vstack([genre == np.arange(num_genres)[:, None], np.ones(num_items, bool)])

    users, items, times = [], [], []
    for day, count in enumerate(np.bincount(rng.integers(num_days, size=num_events))):
        present = user_weight * (user_born <= day)
        user = rng.choice(num_users, size=count, p=present / present.sum())
        chance = rng.random(count)
        row = np.where(chance < _FAVOURITE, tastes[user, 0], tastes[user, 1])
        row[chance > _FAVOURITE + _SECOND] = num_genres
        users.append(user)
        items.append(_draw(in_genre * item_weight * (item_born <= day), row, rng))
        times.append(_START + day * _DAY + np.sort(rng.integers(_DAY, size=count)))

    user, item, time = np.concatenate(users), np.concatenate(items), np.concatenate(times)
    _, first = np.unique(user * num_items + item, return_index=True)
    first = np.sort(first)
    return Interactions.from_ids(
        [f"u{n}" for n in user[first]], [f"i{n}" for n in item[first]], time[first]
    )


def _zipf(count: int, power: float, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.permutation((10.0 + np.arange(count)) ** -power)


def _first_day(count: int, num_days: int, rng: np.random.Generator) -> NDArray[np.int64]:
    late = rng.random(count) < 0.3
    return np.where(late, rng.integers(1, max(2, num_days), size=count), 0)


def _draw(
    weights: NDArray[np.float64], rows: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draws a column for each r in `rows`, with probabilities in proportion to `weights[r]`."""
    empty = weights.sum(axis=1) == 0  # a genre that has no items yet on this day
    weights = np.where(empty[:, None], weights[-1], weights)
    share = np.cumsum(weights, axis=1)
    # Search all rows at once: row r's cumulative probabilities plus r lie in (r, r + 1], so the
    # concatenated rows are one ascending sequence.
    line = (share / share[:, -1:] + np.arange(len(share))[:, None]).ravel()
    points = np.searchsorted(line, rows + rng.random(len(rows)), side="right")
    return np.minimum(points - rows * weights.shape[1], weights.shape[1] - 1)
