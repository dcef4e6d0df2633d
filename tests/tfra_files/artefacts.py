"""Reads the small files that the real tfra wrote, and what they hold."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

DATA = Path(__file__).parent / "data" / "artefacts"
#: The checkpoints, SavedModels and folders with the tables of a trained model, and their paths.
TRAINED = {
    "weights": "weights/model",
    "saved_model": "saved_model",
    "beside": "beside/ckpt",
    "beside_saved_model": "beside_saved_model",
    "beside_numbered-1": "beside_numbered/ckpt-1",
    "beside_numbered-2": "beside_numbered/ckpt-2",
    "new_adam": "new_adam/ckpt",
    "legacy_adam": "legacy_adam/ckpt",
    "old_adam": "old_adam/ckpt",
}


@functools.cache
def expected() -> dict[str, Any]:
    """Returns what each form holds."""
    return json.loads((DATA / "expected.json").read_text())


def rows_of(saved: dict[str, Any]) -> dict[Any, np.ndarray]:
    """Returns the rows that a table must have, by key."""
    dtype = tf.as_dtype(saved["value_dtype"]).as_numpy_dtype
    keys = [each.encode() if isinstance(each, str) else each for each in saved["keys"]]
    values = np.array(saved["values"], dtype).reshape([len(keys), saved["dim"]])
    return dict(zip(keys, values, strict=True))


def assert_rows(table: Any, saved: dict[str, Any], read: Any = None) -> None:
    """Asserts that a table or a slot has the saved rows, bit by bit."""
    exported = table.export() if read is None else read(table.export())
    keys, values = (np.asarray(each) for each in exported)
    wanted = rows_of(saved)
    assert sorted(keys.tolist()) == sorted(wanted)
    for key, value in zip(keys.tolist(), values, strict=True):
        np.testing.assert_array_equal(value, wanted[key].astype(value.dtype))
