"""The dense weights of a SavedModel, written anew beside a graph that stays."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import tensorflow as tf

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_KEY = "used_variables/{}/.ATTRIBUTES/VARIABLE_VALUE"
_PREFIX = "variables/variables"


class Weights:
    """The variables that a SavedModel of a `Skeleton` holds.

    Args:
        folder: A version directory that TensorFlow wrote.
        variables: `used_variables` of its root.
    """

    def __init__(self, folder: pathlib.Path, variables: Sequence[tf.Variable]) -> None:
        reader = tf.train.load_checkpoint(str(folder / _PREFIX))
        distinct: dict[int, tuple[str, tf.Variable]] = {}
        for index, variable in enumerate(variables):
            distinct.setdefault(id(variable), (_KEY.format(index), variable))
        self._saved = dict(distinct.values())
        #: Whether they are all of the SavedModel's state; else only TensorFlow can write it anew.
        self.are_all = set(reader.get_variable_to_shape_map()) == {*self._saved, _GRAPH}
        graph = reader.get_tensor(_GRAPH) if self.are_all else b""
        # Tensors once, not with every version.
        self._graph = tf.constant(graph)
        self._names = tf.constant([*self._saved, _GRAPH])
        self._whole = tf.constant([""] * len(self._names))

    def write(self, folder: pathlib.Path) -> None:
        """Writes their values of now into a version directory."""
        (folder / _PREFIX).parent.mkdir()
        values = (variable.read_value() for variable in self._saved.values())
        tf.raw_ops.SaveV2(
            prefix=str(folder / _PREFIX),
            tensor_names=self._names,
            shape_and_slices=self._whole,
            tensors=[*values, self._graph],
        )
