"""Tests checks of models' outputs for examples: shapes and types that the answer can express."""

import numpy as np
import pytest

from server.errors import Code, ServingError
from server.services.examples import classifications, regressions

LABELS = np.array([[b"a", b"b"], [b"c", b"d"]], object)
SCORES = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)


def test_labels_scores_or_both():
    both = classifications({"classes": LABELS, "scores": SCORES}, 2)
    assert (both[0] is LABELS, both[1] is SCORES) == (True, True)
    assert classifications({"scores": SCORES}, 2)[0] is None
    assert classifications({"classes": LABELS, "more": SCORES}, 2)[1] is None


def test_values_of_one_column_or_none():
    assert regressions({"outputs": SCORES[:, 0]}, 2).tolist() == [0.25, 0.5]
    assert regressions({"outputs": SCORES[:, :1]}, 2).tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("check", "outputs", "said"),
    [
        (classifications, {"y": SCORES}, "at least one of {classes, scores}"),
        (classifications, {"scores": SCORES[0]}, r"shape: [batch_size num_classes] but got [2]"),
        (classifications, {"scores": SCORES[:1]}, "Expected scores output batch size of 2. Got: 1"),
        (
            classifications,
            {"classes": LABELS[:1]},
            "Expected classes output batch size of 2. Got: 1",
        ),
        (classifications, {"scores": SCORES.astype(float)}, "of DT_FLOAT. Got: float64"),
        (classifications, {"classes": SCORES}, "of DT_STRING. Got: float32"),
        (
            classifications,
            {"classes": LABELS, "scores": SCORES[:, :1]},
            "match in dim_size(1). Got 2 vs. 1",
        ),
        (regressions, {"y": SCORES}, "No regression outputs found in SignatureDef."),
        (regressions, {"outputs": SCORES}, "[batch_size] or [batch_size, 1] but got [2,2]"),
        (regressions, {"outputs": np.float32(1.0).reshape(())}, "[batch_size, 1] but got []"),
        (regressions, {"outputs": SCORES[:1, 0]}, "did not match output batch size: 2 vs. 1"),
        (regressions, {"outputs": np.array([1, 2])}, "of DT_FLOAT. Got: int64"),
    ],
)
def test_outputs_of_another_form_are_refused(check, outputs, said):
    with pytest.raises(ServingError) as caught:
        check(outputs, 2)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert said in caught.value.message
