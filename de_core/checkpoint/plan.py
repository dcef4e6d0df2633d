"""Passes options and results between a `Manager` and the tables that TensorFlow saves."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from de_core.snapshot.table_files import Reading
from de_core.tables.sharded import ShardedTable


@dataclasses.dataclass
class Plan:
    """Options for every table that is saved or restored while the plan is active, and results.

    Attributes:
        attributes: Attributes of the save ops, such as `chain` and `delta`.
        earlier: For each table, the names and ids of the files that its deltas continue, [n, 2].
        reading: Options for reading files.
        written: For each saved table, the reference to its files and the files' reports.
        restored: For each restored table, the reference to its files.
    """

    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    earlier: dict[ShardedTable, tf.Tensor] = dataclasses.field(default_factory=dict)
    reading: Reading = Reading()  # noqa: RUF009
    written: dict[ShardedTable, tuple[tf.Tensor, list[Any]]] = dataclasses.field(
        default_factory=dict
    )
    restored: dict[ShardedTable, tf.Tensor] = dataclasses.field(default_factory=dict)


_active: contextvars.ContextVar[Plan] = contextvars.ContextVar("de_core_plan")


def current() -> Plan:
    """Returns the active plan, or a default one."""
    return _active.get(Plan())


@contextlib.contextmanager
def following(plan: Plan) -> Iterator[Plan]:
    """Makes a plan the active plan within a `with` block."""
    token = _active.set(plan)
    try:
        yield plan
    finally:
        _active.reset(token)
