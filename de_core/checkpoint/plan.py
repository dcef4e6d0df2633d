"""How the tables of a checkpoint are saved and restored: what doors of our own ask for."""

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
    """What applies to every table that is saved or restored while it is active.

    Attributes:
        attributes: Of the saving ops, such as `chain` and `delta`.
        earlier: Names and ids, [n, 2], of the files that a table's deltas follow.
        reading: How files are read.
        written: The references of the tables saved, and their reports.
        restored: The files of the tables restored.
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
    """Returns the active plan, or one that asks for nothing."""
    return _active.get(Plan())


@contextlib.contextmanager
def following(plan: Plan) -> Iterator[Plan]:
    """Makes a plan the active one."""
    token = _active.set(plan)
    try:
        yield plan
    finally:
        _active.reset(token)
