"""Copies of a Keras 3 optimizer that update gathered rows of tables."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from de_core.base.checks import received
from de_core.optimizers.gathered_rows import Copies, GatheredRows
from de_core.tables.sharded import ShardedTable

# Settings that the copies do not share with the original. Our own code does their work.
_OFF: dict[str, Any] = {"use_ema": False, "gradient_accumulation_steps": None}


class KerasCopies(Copies):
    """Copies that update the variable of the gathered rows."""

    def _new_copy(self, table: ShardedTable) -> Any:
        kind = type(self._optimizer)
        over_rows: Any = type(f"RowsOf{kind.__name__}", (_OverRows, kind), {})
        try:
            copy = over_rows.from_config({**self._optimizer.get_config(), **_OFF})
        except TypeError as error:
            raise TypeError(
                "An optimizer of tables must define `get_config` with the arguments of its "
                f"constructor. {received(optimizer=self._optimizer)} {error}"
            ) from error
        copy.start(self._optimizer, table)
        return copy

    def begin(self) -> None:
        """Takes over the original's numbers, flags and texts, which may change between steps."""
        plain = (bool, int, float, str, type(None))
        for copy in self._copies.values():
            own = vars(copy)
            for name, value in vars(self._optimizer).items():
                known = isinstance(value, plain) and isinstance(own.get(name), plain)
                if known and name not in (*_OFF, *copy.made_by_build):
                    own[name] = value

    def update(self, table: ShardedTable, gradient: tf.Tensor) -> None:
        """Changes the gathered rows and slots of a table by their gradient, [n, dim]."""
        copy = self._copy_for(table)
        rate = tf.cast(self._optimizer.learning_rate, gradient.dtype)
        copy._backend_update_step([gradient], [copy.gathered.rows], rate)

    def shared_variables(self, table: ShardedTable) -> list[Any]:
        """Returns the variables of a table's copy that are not kept per row."""
        copy = self._copy_for(table)
        of_keras = [each for each in vars(copy).values() if isinstance(each, keras.Variable)]
        counted = (copy._iterations, copy._learning_rate)
        own = [each for each in of_keras if not any(each is other for other in counted)]
        return [*copy.shared_variables, *own]


class _OverRows:
    """A mixin that lets a copy of an optimizer update gathered rows of a table.

    In the list of base classes, it comes before the optimizer's class.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.shared_variables: list[Any] = []  # a constructor may make some
        super().__init__(*args, **settings)

    def start(self, original: Any, table: ShardedTable) -> None:
        self.original = original
        self.gathered = GatheredRows(table)
        # Keras's Muon looks for "embedding" in a variable's path, to update it by AdamW.
        self.gathered.rows.path = f"{table.name}/embeddings"
        before = dict(vars(self))
        self.build([self.gathered.rows])  # type: ignore[attr-defined]
        #: Attributes that belong to the gathered rows, such as `built`.
        self.made_by_build = {k for k, v in vars(self).items() if v is not before.get(k)}

    def __setattr__(self, name: str, value: Any) -> None:
        # Skip Keras's tracking of attributes. Slots are saved with the table, and the original
        # optimizer tracks all other state.
        object.__setattr__(self, name, value)

    @property
    def iterations(self) -> Any:
        original = self.__dict__.get("original")
        return self.__dict__["_iterations"] if original is None else original.iterations

    def add_variable_from_reference(
        self, reference_variable: Any, name: str = "slot", initializer: Any = "zeros"
    ) -> Any:
        shape = tuple(reference_variable.shape)
        return self.add_variable(shape, initializer, reference_variable.dtype, name=name)

    def add_variable(
        self,
        shape: Any,
        initializer: Any = "zeros",
        dtype: Any = None,
        aggregation: str = "none",
        layout: Any = None,
        name: str | None = None,
    ) -> Any:
        """Makes one slot per row. If the shape has no axis for rows, all rows share a variable."""
        shape = tuple(shape)
        if not shape or shape[0] is not None:
            variable = super().add_variable(  # type: ignore[misc]
                shape, initializer, dtype, aggregation=aggregation, layout=layout, name=name
            )
            self.shared_variables.append(variable)
            return variable
        dtype = tf.as_dtype(dtype or tf.float32)
        value = keras.initializers.get(initializer)((1, *shape[1:]), dtype=dtype.name)
        return self.gathered.add(name or "slot", value)
