"""Each error that the page "Troubleshooting" shows is raised with that text."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.keras import _wrong_backend
from tests.support.commands import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/howto/troubleshooting.md").read_text("utf-8")
SECTION = re.compile(r"^### (.+)\n\n```text\n(.+)\n```$", re.MULTILINE)


def of_an_unknown_op(folder: Path) -> str:
    de.export(keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2)]), folder)
    load = f"import tensorflow as tf; tf.saved_model.load({str(folder / '1')!r})"
    return run(sys.executable, "-c", load).stderr


def of_a_plain_optimizer(_: Path) -> str:
    model = keras.Sequential([keras.Input([1], dtype="int64"), de.layers.Embedding(2)])
    model.compile("adam", "mse")
    return raised(lambda: model.fit(np.ones([1, 1], np.int64), np.ones([1, 1, 2]), verbose=0))


def of_float_ids(_: Path) -> str:
    return raised(lambda: de.layers.Embedding(2)(np.ones([1])))


def of_a_dense_gradient(_: Path) -> str:
    table = de.Variable(dim=2)
    with tf.GradientTape() as tape:
        rows = de.embedding_lookup(table, [1])
    (gradient,) = tape.gradient(rows, table.trainable_variables)
    return raised(lambda: tf.convert_to_tensor(gradient))


def of_another_backend(_: Path) -> str:
    return str(_wrong_backend("jax"))


def of_a_damaged_file(folder: Path) -> str:
    table = de.Variable(dim=2, name="damaged")
    table.upsert([1], tf.ones([1, 2]))
    de.checkpoint.save(table, folder)
    (file,) = folder.rglob("*.de")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return raised(lambda: de.checkpoint.restore(table, folder))


ERRORS: dict[str, Callable[[Path], str]] = {
    "Op type not registered": of_an_unknown_op,
    "No optimizer for the table": of_a_plain_optimizer,
    "Ids of a wrong dtype": of_float_ids,
    "A gradient became dense": of_a_dense_gradient,
    "Another Keras backend": of_another_backend,
    "A file is damaged": of_a_damaged_file,
}


def raised(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return str(caught.value)


def test_the_page_shows_these_errors():
    assert dict(SECTION.findall(PAGE)).keys() == ERRORS.keys()


@pytest.mark.parametrize(
    "title",
    [
        pytest.param(each, marks=[pytest.mark.slow] * (each == "Op type not registered"))
        for each in ERRORS
    ],
)
def test_an_error_has_the_text_of_the_page(title, tmp_path):
    shown = dict(SECTION.findall(PAGE))[title]
    pattern = ".*".join(map(re.escape, shown.split("…")))
    assert re.search(pattern, ERRORS[title](tmp_path), re.DOTALL)
