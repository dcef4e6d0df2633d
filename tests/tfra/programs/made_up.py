"""Made-up logs and starting weights for the programs, the same in every process."""

import json
import sys
from pathlib import Path

import numpy as np

USERS, ITEMS = 40, 60
#: Ids are hashes, not row numbers.
USER_IDS = np.random.default_rng(1).choice(2**62, USERS, replace=False)
ITEM_IDS = np.random.default_rng(2).choice(2**62, ITEMS, replace=False)


def ratings(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns users, items and ratings from 1 to 5, each [count]. Ids repeat in a batch."""
    draws = np.random.default_rng(3)
    user, item = draws.integers(USERS, size=count), draws.integers(ITEMS, size=count)
    stars = 1.0 + (user * 7 + item * 3) % 5
    return USER_IDS[user], ITEM_IDS[item], stars.astype(np.float32)


def rows(ids: np.ndarray, dim: int) -> np.ndarray:
    """Returns a starting row for each id, float32 [ids, dim]."""
    return np.random.default_rng(4).normal(0.0, 0.3, (len(ids), dim)).astype(np.float32)


def set_weights(layers: list) -> None:
    """Sets the weights of built dense layers to small numbers."""
    draws = np.random.default_rng(5)
    for layer in layers:
        shapes = [weight.shape for weight in layer.get_weights()]
        layer.set_weights([draws.normal(0.0, 0.2, shape).astype(np.float32) for shape in shapes])


def write(**results: list) -> None:
    """Writes a program's results into the JSON file that its first argument names."""
    plain = {
        name: [float(f"{value:.8g}") for value in np.asarray(values, np.float64)]
        for name, values in results.items()
    }
    Path(sys.argv[1]).write_text(json.dumps(plain) + "\n", "utf-8")
