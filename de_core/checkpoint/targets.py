"""Finds the tables of a target: a Variable, several Variables, or a whole model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.types import Target
from de_core.checkpoint.table_state import TableState
from de_core.tables.sharded import ShardedTable


def tables_of(target: Target) -> dict[str, ShardedTable]:
    """Returns the tables of a target by name.

    Args:
        target: A Variable; a list of targets; a dict of targets by name; or a module, layer, model
            or `tf.train.Checkpoint`, for all its tracked and checkpointed Variables. If several
            tables share a name, a number is appended to the later ones.

    Raises:
        ValueError: The target has no tables.
    """
    found = by_name(named(target))
    if not found:
        raise ValueError(
            f"There must be at least one de.Variable to save or restore. {received(target=target)}"
        )
    return found


def by_name(tables: Iterable[tuple[str, ShardedTable]]) -> dict[str, ShardedTable]:
    """Returns distinct tables by name. Appends a number to a name that an earlier table has."""
    found: dict[str, ShardedTable] = {}
    for wanted, table in tables:
        if table in found.values():
            continue
        name, number = wanted, 0
        while name in found:
            number += 1
            name = f"{wanted}_{number}"
        found[name] = table
    return found


def named(target: Target) -> Iterator[tuple[str, ShardedTable]]:
    """Yields the tables of a target with their names; see `tables_of`."""
    state = getattr(target, "_checkpointed", None)
    if isinstance(state, TableState):
        yield state.table.name, state.table
    elif isinstance(target, Mapping):
        for name, value in target.items():
            inner = list(named(value))
            for number, (_, table) in enumerate(inner):
                yield name if len(inner) == 1 else f"{name}/{number}", table
    elif isinstance(target, (list, tuple)):
        for each in target:
            yield from named(each)
    elif hasattr(target, "_trackable_children"):
        for each in tf.train.TrackableView(target).descendants():
            if isinstance(each, TableState):
                yield each.table.name, each.table
    else:
        raise TypeError(
            "Tables are found in de.Variables, lists and dicts of them, modules, layers and "
            f"models. {received(target=target)}"
        )
