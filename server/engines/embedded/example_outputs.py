"""Checks a model's outputs for examples as TensorFlow Serving does: labels, scores, values."""

import numpy as np

from ...errors import invalid
from ...tensors import Array, Tensors, format_shape

# Labels as `bytes` and scores, shape (examples, classes). One of them may be None.
Classifications = tuple[Array | None, Array | None]


def classifications(outputs: Tensors, examples: int) -> Classifications:
    """Returns the labels and scores among the outputs of a classification signature.

    Args:
        outputs: `classes` (strings), `scores` (float32), or both, of shape (examples, classes).
        examples: The number of examples.

    Raises:
        ServingError: INVALID_ARGUMENT if the outputs have another form.

    Example:
        >>> classifications({"scores": np.ones((1, 2), np.float32)}, 1)[1]
        array([[1., 1.]], dtype=float32)
    """
    classes, scores = outputs.get("classes"), outputs.get("scores")
    if classes is None and scores is None:
        raise invalid(
            "Expected classification signature outputs Tensor to contain at least one of "
            "{classes, scores}."
        )
    for name, output in (("classes", classes), ("scores", scores)):
        if output is None:
            continue
        if output.ndim != 2:
            raise invalid(
                "Expected Tensor shape: [batch_size num_classes] but got "
                f"{format_shape(output.shape)}"
            )
        if len(output) != examples:
            raise invalid(f"Expected {name} output batch size of {examples}. Got: {len(output)}")
    if classes is not None and classes.dtype != np.object_:
        raise invalid(f"Expected classes Tensor of DT_STRING. Got: {classes.dtype.name}")
    if scores is not None and scores.dtype != np.float32:
        raise invalid(f"Expected scores Tensor of DT_FLOAT. Got: {scores.dtype.name}")
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise invalid(
            "Tensors class and score should match in dim_size(1). "
            f"Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    return classes, scores


def regressions(outputs: Tensors, examples: int) -> Array:
    """Returns the values among the outputs of a regression signature, shape (examples,).

    Args:
        outputs: `outputs` (float32) of shape (examples,) or (examples, 1).
        examples: The number of examples.

    Raises:
        ServingError: INVALID_ARGUMENT if the outputs have another form.
    """
    if "outputs" not in outputs:
        raise invalid("No regression outputs found in SignatureDef.")
    values = outputs["outputs"]
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        raise invalid(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got "
            f"{format_shape(values.shape)}"
        )
    if len(values) != examples:
        raise invalid(
            f"Input batch size did not match output batch size: {examples} vs. {len(values)}"
        )
    if values.dtype != np.float32:
        raise invalid(f"Expected output Tensor of DT_FLOAT. Got: {values.dtype.name}")
    return values.reshape(-1)
