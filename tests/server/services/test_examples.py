"""Tests checks of models' outputs for examples: shapes and types that the answer can express."""

import asyncio

import numpy as np
import pytest

from server.dependencies import DataPlane
from server.errors import Code, ServingError
from server.services.examples import run_classify, run_regress
from server.settings import load_settings
from tests.server.support.numpy_engine import NumpyEngine, NumpyServable, signature, tensor

LABELS = np.array([[b"a", b"b"], [b"c", b"d"]], object)
SCORES = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
OUTPUTS = {run_classify: ("classes", "scores"), run_regress: ("outputs",)}


def ask(run, outputs):
    declared = [tensor(name, "float") for name in OUTPUTS[run]]
    spec = signature("s", [tensor("inputs", "string", None)], declared)
    servable = NumpyServable(1, {"s": (spec, lambda **_: outputs)}, 0.0)
    plane = DataPlane(NumpyEngine(), load_settings(model_dir="unused"))
    return asyncio.run(run(plane, servable, "s", np.array([b"", b""], object)))


def test_labels_scores_or_both():
    both = ask(run_classify, {"classes": LABELS, "scores": SCORES})
    assert (both[0] is LABELS, both[1] is SCORES) == (True, True)
    assert ask(run_classify, {"scores": SCORES})[0] is None
    assert ask(run_classify, {"classes": LABELS, "more": SCORES})[1] is None


def test_values_of_one_column_or_none():
    assert ask(run_regress, {"outputs": SCORES[:, 0]}).tolist() == [0.25, 0.5]
    assert ask(run_regress, {"outputs": SCORES[:, :1]}).tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("run", "outputs", "said"),
    [
        (run_classify, {"y": SCORES}, "at least one of {classes, scores}"),
        (run_classify, {"scores": SCORES[0]}, r"shape: [batch_size num_classes] but got [2]"),
        (run_classify, {"scores": SCORES[:1]}, "Expected scores output batch size of 2. Got: 1"),
        (run_classify, {"classes": LABELS[:1]}, "Expected classes output batch size of 2. Got: 1"),
        (run_classify, {"scores": SCORES.astype(float)}, "of DT_FLOAT. Got: float64"),
        (run_classify, {"classes": SCORES}, "of DT_STRING. Got: float32"),
        (
            run_classify,
            {"classes": LABELS, "scores": SCORES[:, :1]},
            "match in dim_size(1). Got 2 vs. 1",
        ),
        (run_regress, {"y": SCORES}, "No regression outputs found in SignatureDef."),
        (run_regress, {"outputs": SCORES}, "[batch_size] or [batch_size, 1] but got [2,2]"),
        (run_regress, {"outputs": np.float32(1.0).reshape(())}, "[batch_size, 1] but got []"),
        (run_regress, {"outputs": SCORES[:1, 0]}, "did not match output batch size: 2 vs. 1"),
        (run_regress, {"outputs": np.array([1, 2])}, "of DT_FLOAT. Got: int64"),
    ],
)
def test_outputs_of_another_form_are_refused(run, outputs, said):
    with pytest.raises(ServingError) as caught:
        ask(run, outputs)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert said in caught.value.message
