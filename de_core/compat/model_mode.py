"""The process's mode, which is remembered and changes nothing.

A lookup is a pure read that any number of threads may do at once, in training as in inference; and
what an export holds is decided when it is written. So there is nothing to switch.
"""

from __future__ import annotations


class ModelMode:
    """The modes.

    Attributes:
        TRAIN: The mode at first.
        INFERENCE: The other one.
        CURRENT_SETTING: The one that was enabled last.
    """

    TRAIN = "train"
    INFERENCE = "inference"
    CURRENT_SETTING = TRAIN


def get_model_mode() -> str:
    """Returns the mode that was enabled last: "train" or "inference".

    Example:
    >>> get_model_mode()
    'train'
    """
    return ModelMode.CURRENT_SETTING


def enable_train_mode() -> None:
    """Makes `get_model_mode` return "train"; nothing else depends on it."""
    ModelMode.CURRENT_SETTING = ModelMode.TRAIN


def enable_inference_mode() -> None:
    """Makes `get_model_mode` return "inference"; nothing else depends on it."""
    ModelMode.CURRENT_SETTING = ModelMode.INFERENCE
