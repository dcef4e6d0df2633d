"""SavedModels that the real `tfra` wheel exported, with the answers that it gave.

`saved_models/make.py` made them. Tests compare with its answers: rows bit by bit, scores to 1e-6.
"""

import functools
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent / "saved_models"
#: The models that a session can load.
NAMES = (
    "keras_save",
    "keras_de_save_model",
    "module",
    "module_of_strings",
    "simple_save",
    "builder",
)
#: Outputs that are rows of tables, or answers without rounding.
EXACT = ("embeddings", "exists", "kind")


@functools.cache
def _unpacked() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tfra_saved_models_")


def saved_model(name: str) -> Path:
    """Returns the folder of a SavedModel. Tests must not change it."""
    path = Path(_unpacked().name) / name
    if not path.is_dir():
        with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
            archive.extractall(path.parent, filter="data")
    return path


def answers(path: Path) -> dict[str, Any]:
    """Returns the requests and tfra's answers, by signature, and its rows, by table."""
    return json.loads((path / "answers.json").read_text("utf-8"))


def in_session(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """Returns a model's answers to the same requests, in a session as of a model server."""
    found: dict[str, Any] = {"signatures": {}, "tables": {}}
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        load = tf.compat.v1.saved_model.load
        signatures = load(session, ["serve"], str(path)).signature_def
        for name, asked in expected["signatures"].items():
            own = signatures[name]
            feeds = {own.inputs[key].name: each for key, each in asked["inputs"].items()}
            fetches = {key: each.name for key, each in own.outputs.items()}
            found["signatures"][name] = session.run(fetches, feeds)
        for node in graph.get_operations():
            if node.type == "TFRA>CuckooHashTableExport":
                found["tables"][node.inputs[0].op.name] = session.run(node.outputs)
    return found


def called(path: Path, expected: dict[str, Any]) -> dict[str, Any]:
    """Returns a model's answers to the same requests, as loaded by `tf.saved_model.load`."""
    loaded = tf.saved_model.load(str(path))
    found = {}
    for name, asked in expected["signatures"].items():
        function = loaded.signatures[name]
        specs = function.structured_input_signature[1]
        inputs = {key: tf.constant(each, specs[key].dtype) for key, each in asked["inputs"].items()}
        found[name] = {key: each.numpy() for key, each in function(**inputs).items()}
    return {"signatures": found}


def check_answers(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compares answers of signatures with tfra's."""
    assert expected["signatures"]
    for name, asked in expected["signatures"].items():
        assert sorted(found["signatures"][name]) == sorted(asked["outputs"])
        for key, wanted in asked["outputs"].items():
            value = found["signatures"][name][key]
            if key == "kind":
                assert (value.decode() if isinstance(value, bytes) else value) == wanted
            elif key in EXACT:
                dtype = bool if key == "exists" else np.float32
                np.testing.assert_array_equal(np.asarray(value, dtype), np.asarray(wanted, dtype))
            else:
                np.testing.assert_allclose(value, wanted, rtol=0, atol=1e-6)


def check_tables(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compares the exported rows of all tables with tfra's, bit by bit."""
    assert sorted(found["tables"]) == sorted(expected["tables"])
    for name, wanted in expected["tables"].items():
        keys, rows = found["tables"][name]
        plain = [each.decode() if isinstance(each, bytes) else each for each in keys.tolist()]
        assert sorted(zip(plain, rows.tolist(), strict=True)) == [tuple(each) for each in wanted]
