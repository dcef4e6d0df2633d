"""Names of the collections of dynamic Variables in a graph of TensorFlow 1."""

from __future__ import annotations

from de_core import graph_mode


class GraphKeys:
    """Keys of graph collections.

    They hold the anchors, the variables that stand for the tables in TensorFlow's own collections:
    fit for `var_list`, and for a MetaGraph.

    Attributes:
        DYNAMIC_EMBEDDING_VARIABLES: The anchors of all Variables.
        TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES: Those of the trainable ones.

    Example:
    >>> import tensorflow as tf, de_core as de
    >>> with tf.Graph().as_default():
    ...     users = de.get_variable("users")
    ...     anchors = tf.compat.v1.get_collection(de.GraphKeys.DYNAMIC_EMBEDDING_VARIABLES)
    >>> [anchor.name for anchor in anchors]
    ['users/anchor:0']
    """

    DYNAMIC_EMBEDDING_VARIABLES = graph_mode.DYNAMIC_EMBEDDING_VARIABLES
    TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES = graph_mode.TRAINABLE_DYNAMIC_EMBEDDING_VARIABLES
