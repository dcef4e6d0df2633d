"""Writes new dense weights of a SavedModel beside an unchanged graph."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

import tensorflow as tf

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_KEY = "used_variables/{}/.ATTRIBUTES/VARIABLE_VALUE"
_PREFIX = "variables/variables"


class Weights:
    """The variables in the SavedModel of a `Template`.

    Args:
        folder: A version directory that TensorFlow wrote.
        variables: `used_variables` of the Template's root.
    """

    def __init__(self, folder: pathlib.Path, variables: Sequence[tf.Variable]) -> None:
        reader = tf.train.load_checkpoint(str(folder / _PREFIX))
        distinct: dict[int, tuple[str, tf.Variable]] = {}
        for index, variable in enumerate(variables):
            distinct.setdefault(id(variable), (_KEY.format(index), variable))
        self._saved = dict(distinct.values())
        #: True if the SavedModel's whole state is these variables. Otherwise only TensorFlow can
        #: write new weights.
        self.are_all = set(reader.get_variable_to_shape_map()) == {*self._saved, _GRAPH}
        graph = reader.get_tensor(_GRAPH) if self.are_all else b""
        # Create the tensors once, not for every version.
        self._graph = tf.constant(graph)
        self._names = tf.constant([*self._saved, _GRAPH])
        self._whole = tf.constant([""] * len(self._names))

    def write(self, folder: pathlib.Path) -> None:
        """Writes the variables' current values into a version directory."""
        (folder / _PREFIX).parent.mkdir()
        values = (variable.read_value() for variable in self._saved.values())
        tf.raw_ops.SaveV2(
            prefix=str(folder / _PREFIX),
            tensor_names=self._names,
            shape_and_slices=self._whole,
            tensors=[*values, self._graph],
        )
