"""What had to be called before the ops or the savers worked, and need not be any more."""

from __future__ import annotations


def register_all(custom_kernels: bool = True) -> None:
    """Does nothing: importing `de_core` registers the ops, their gradients and the Keras classes.

    Args:
        custom_kernels: Not used.
    """
    del custom_kernels


def patch_on_tf() -> None:
    """Does nothing: TensorFlow is never changed. Wrap optimizers in `DynamicEmbeddingOptimizer`."""


def patch_on_tf_save_restore() -> None:
    """Does nothing: checkpoints and Savers include the tables by TensorFlow's own interfaces."""
