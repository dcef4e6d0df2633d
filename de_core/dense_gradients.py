"""What makes gradients dense, which that of a table cannot be."""

from __future__ import annotations

import tensorflow as tf

from de_core import call_stack
from de_core.anchor import table_of

_RECOMPUTING = "inner_recompute_grad"
_JACOBIAN = "jacobian"


def check_takes_slices() -> None:
    """Checks that whoever asks for a table's gradient takes slices.

    Raises:
        NotImplementedError: It is `tf.recompute_grad`, or `tape.jacobian` with respect to a table.
    """
    frame = call_stack.nearest(lambda frame: frame.f_code.co_name in (_RECOMPUTING, _JACOBIAN))
    if frame is None:
        return
    if frame.f_code.co_name == _RECOMPUTING:
        raise NotImplementedError(
            "tf.recompute_grad makes gradients dense, which that of a table cannot be: look the "
            "ids up before, and recompute what follows, a function of the rows. Received: a "
            "function with a lookup."
        )
    sources = tf.nest.flatten(frame.f_locals.get("sources"))
    if any(table_of(each) is not None for each in sources):
        raise NotImplementedError(
            "A Jacobian is dense, which the gradient of a table cannot be: `watch` the rows that a "
            "lookup returned, and take the Jacobian with respect to them. Received: sources with "
            "the variable of a table."
        )
