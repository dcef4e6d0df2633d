"""Tests checks of models' outputs for examples: shapes and types that the answer can express."""

import asyncio

import numpy as np
import pytest

from server.dependencies import DataPlane
from server.errors import Code, ServingError
from server.services.examples import run_examples
from server.settings import load_settings
from server.tensors import CLASSIFY_METHOD, REGRESS_METHOD
from tests.server.support.numpy_engine import NumpyEngine, NumpyServable, signature, tensor

LABELS = np.array([[b"a", b"b"], [b"c", b"d"]], object)
SCORES = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
OUTPUTS = {CLASSIFY_METHOD: ("classes", "scores"), REGRESS_METHOD: ("outputs",)}


def ask(method, outputs):
    declared = [tensor(name, "float") for name in OUTPUTS[method]]
    spec = signature("s", [tensor("inputs", "string", None)], declared)
    servable = NumpyServable(1, {"s": (spec, lambda **_: outputs)}, 0.0)
    plane = DataPlane(NumpyEngine(), load_settings(model_dir="unused"))
    examples = np.array([b"", b""], object)
    return asyncio.run(run_examples(plane, servable, "s", method, examples))


def test_labels_scores_or_both():
    both = ask(CLASSIFY_METHOD, {"classes": LABELS, "scores": SCORES})
    assert (both[0] is LABELS, both[1] is SCORES) == (True, True)
    assert ask(CLASSIFY_METHOD, {"scores": SCORES})[0].tolist() == [[b"", b""], [b"", b""]]
    assert not ask(CLASSIFY_METHOD, {"classes": LABELS, "more": SCORES})[1].any()


def test_values_of_one_column_or_none():
    assert ask(REGRESS_METHOD, {"outputs": SCORES[:, 0]})[0].tolist() == [0.25, 0.5]
    assert ask(REGRESS_METHOD, {"outputs": SCORES[:, :1]})[0].tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("method", "outputs", "said"),
    [
        (CLASSIFY_METHOD, {"y": SCORES}, "at least one of {classes, scores}"),
        (CLASSIFY_METHOD, {"scores": SCORES[0]}, r"shape: [batch_size num_classes] but got [2]"),
        (CLASSIFY_METHOD, {"scores": SCORES[:1]}, "Expected scores output batch size of 2. Got: 1"),
        (
            CLASSIFY_METHOD,
            {"classes": LABELS[:1]},
            "Expected classes output batch size of 2. Got: 1",
        ),
        (CLASSIFY_METHOD, {"scores": SCORES.astype(float)}, "of DT_FLOAT. Got: float64"),
        (CLASSIFY_METHOD, {"classes": SCORES}, "of DT_STRING. Got: float32"),
        (
            CLASSIFY_METHOD,
            {"classes": LABELS, "scores": SCORES[:, :1]},
            "match in dim_size(1). Got 2 vs. 1",
        ),
        (REGRESS_METHOD, {"y": SCORES}, "No regression outputs found in SignatureDef."),
        (REGRESS_METHOD, {"outputs": SCORES}, "[batch_size] or [batch_size, 1] but got [2,2]"),
        (REGRESS_METHOD, {"outputs": np.float32(1.0).reshape(())}, "[batch_size, 1] but got []"),
        (REGRESS_METHOD, {"outputs": SCORES[:1, 0]}, "did not match output batch size: 2 vs. 1"),
        (REGRESS_METHOD, {"outputs": np.array([1, 2])}, "of DT_FLOAT. Got: int64"),
    ],
)
def test_outputs_of_another_form_are_refused(method, outputs, said):
    with pytest.raises(ServingError) as caught:
        ask(method, outputs)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert said in caught.value.message
