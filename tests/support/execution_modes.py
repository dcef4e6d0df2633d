"""Runs the same steps eagerly, in a `tf.function`, and in a session of TensorFlow 1."""

import contextlib

import numpy as np
import tensorflow as tf

NAMES = ("eager", "function", "graph")


class Eager:
    """Calls functions directly."""

    name = "eager"

    def run(self, function, *arguments):
        """Calls `function` with the arguments as tensors; returns the result as numpy arrays."""
        return _values(function(*map(tf.convert_to_tensor, arguments)))


class Function(Eager):
    """Traces functions first, with unknown shapes."""

    name = "function"

    def run(self, function, *arguments):
        tensors = [tf.convert_to_tensor(each) for each in arguments]
        specs = [tf.TensorSpec([None] * each.shape.rank, each.dtype) for each in tensors]

        def traced(*arguments):
            result = function(*arguments)  # an operation has no result
            return None if isinstance(result, tf.Operation) else result

        return _values(tf.function(traced, input_signature=specs)(*tensors))


class Graph:
    """Builds functions in one graph and runs them in one session."""

    name = "graph"

    def __init__(self, session):
        self._session = session

    def run(self, function, *arguments):
        feeds = {}
        for argument in arguments:
            value = tf.get_static_value(tf.convert_to_tensor(argument))
            place = tf.compat.v1.placeholder(tf.as_dtype(value.dtype), [None] * value.ndim)
            feeds[place] = value
        fetches = function(*feeds)
        kept = tf.nest.map_structure(lambda each: [] if each is None else each, fetches)
        values = self._session.run(kept, feeds)
        return None if isinstance(fetches, tf.Operation) else values

    def initialize(self):
        """Runs the initializers of all variables."""
        self._session.run(
            [
                tf.compat.v1.global_variables_initializer(),
                tf.compat.v1.local_variables_initializer(),
            ]
        )


@contextlib.contextmanager
def entered(name):
    """Yields the mode called `name`, within its graph if it needs one."""
    if name == "graph":
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            yield Graph(session)
    else:
        yield Eager() if name == "eager" else Function()


def _values(result):
    return tf.nest.map_structure(
        lambda each: each.numpy() if isinstance(each, tf.Tensor) else each, result
    )


def int64(*values):
    return np.array(values, np.int64)
