"""Small data with something to learn, for Keras models over tables."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def ratings():
    """Users, items (int64 [512]) and whether they please (float32 [512, 1])."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 40, size=512) + 2**40
    items = rng.integers(0, 30, size=512)
    pleases = (users + items) % 3 == 0
    return users.astype(np.int64), items.astype(np.int64), pleases.astype(np.float32)[:, None]
