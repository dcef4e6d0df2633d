"""Initializes Variables from another run's checkpoint: `de.warm_start`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import tensorflow as tf

from de_core.base.checks import received
from de_core.checkpoint.save_restore import restore_tables
from de_core.checkpoint.sources import tables_in
from de_core.checkpoint.targets import tables_of
from de_core.snapshot import table_files
from de_core.tables.sharded import ShardedTable, living


def warm_start(
    ckpt_to_initialize_from: str | os.PathLike[str],
    vars_to_warm_start: str | Sequence[str] | Sequence[tf.Module] = ".*",
    var_name_to_prev_var_name: Mapping[str, str] | None = None,
    *,
    slots: bool = False,
    merge: bool = False,
    convert: bool = False,
) -> list[str] | tf.Operation:
    """Fills Variables from another run's checkpoint, by name.

    Args:
        ckpt_to_initialize_from: Any path that `de.checkpoint.restore` accepts.
        vars_to_warm_start: A regular expression that matches the beginning of Variables' names; a
            list of expressions; or a list of Variables. Expressions match the Variables of the
            current graph, or in eager mode of this process.
        var_name_to_prev_var_name: Names in the checkpoint, by the name of the Variable. Needed for
            Variables whose names differ.
        slots: True to read optimizer slots too, and without `merge` also the count of steps and
            the rate of a Variable's own optimizer.
        merge: True to keep rows that are not in the checkpoint.
        convert: True to convert values from another floating-point dtype.

    Returns:
        Names of the filled Variables. In a graph, the op that fills them.

    Raises:
        ValueError: An expression is invalid or matches no Variable, a name in the map belongs to no
            Variable, or the checkpoint lacks a table.
        TypeError: `vars_to_warm_start` has a wrong type.
        tf.errors.OpError: A file does not fit or is damaged. No Variable changes then.

    Example:
    >>> import tempfile, de_core as de
    >>> old = de.Variable(dim=1, name="user_v1")
    >>> old.upsert([1], [[5.0]])
    >>> directory = tempfile.mkdtemp()
    >>> reports = de.checkpoint.save(old, directory)
    >>> new = de.Variable(dim=1, name="user_v2")
    >>> de.warm_start(directory, [new], {"user_v2": "user_v1"})
    ['user_v2']
    >>> new.lookup([1]).numpy().tolist()
    [[5.0]]
    """
    wanted = [vars_to_warm_start] if isinstance(vars_to_warm_start, str) else vars_to_warm_start
    if not isinstance(wanted, Sequence):
        raise TypeError(
            "`vars_to_warm_start` must be a regular expression, a list of them, or a list of "
            f"Variables. {received(vars_to_warm_start=wanted)}"
        )
    are_expressions = wanted and all(isinstance(each, str) for each in wanted)
    chosen = _matching(wanted) if are_expressions else tables_of(list(wanted))
    former = dict(var_name_to_prev_var_name or {})
    strangers = sorted(set(former) - set(chosen))
    if strangers:
        raise ValueError(
            "`var_name_to_prev_var_name` must name Variables that are to be filled: "
            f"{sorted(chosen)}. Received: {strangers}."
        )
    saved = tables_in(ckpt_to_initialize_from)
    sources = {name: former.get(name, name) for name in chosen}
    missing = {name: source for name, source in sources.items() if source not in saved}
    if missing:
        raise ValueError(
            "The checkpoint must contain a table for each Variable. Received: no "
            f"{sorted(missing.values())} for {sorted(missing)} in a checkpoint of {sorted(saved)}. "
            "If the names differ, pass `var_name_to_prev_var_name`."
        )
    pairs = [(table, saved[sources[name]]) for name, table in chosen.items()]
    if tf.executing_eagerly():
        restore_tables(pairs, merge=merge, slots=slots, convert=convert)
        return list(chosen)
    done = [
        table_files.restore(table, tf.constant(files), merge=merge, slots=slots, convert=convert)
        for table, files in pairs
    ]
    return tf.group(*done)


class WarmStartHook(tf.compat.v1.train.SessionRunHook):
    """Fills Variables when a TensorFlow 1 session begins; see `warm_start`.

    Args:
        ckpt_to_initialize_from: See `warm_start`.
        vars_to_warm_start: See `warm_start`.
        var_name_to_prev_var_name: See `warm_start`.
    """

    def __init__(
        self,
        ckpt_to_initialize_from: str | os.PathLike[str],
        vars_to_warm_start: str | Sequence[str] | Sequence[tf.Module],
        var_name_to_prev_var_name: Mapping[str, str] | None = None,
    ) -> None:
        self._arguments = (ckpt_to_initialize_from, vars_to_warm_start, var_name_to_prev_var_name)
        self._operation: list[str] | tf.Operation | None = None

    def begin(self) -> None:
        """Creates the ops. The session calls it."""
        self._operation = warm_start(*self._arguments)

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Runs the ops. The session calls it."""
        del coord
        session.run(self._operation)


def _matching(expressions: Sequence[str]) -> dict[str, ShardedTable]:
    tables = living()
    found: dict[str, ShardedTable] = {}
    for expression in expressions:
        try:
            re.compile(expression)
        except re.error as error:
            raise ValueError(
                "`vars_to_warm_start` must be a regular expression of Python's `re`. Received: "
                f"{expression!r}: {error}."
            ) from error
        matching = [table for table in tables if re.match(expression, table.name)]
        if not matching:
            raise ValueError(
                "`vars_to_warm_start` must match the name of at least one Variable. Received: "
                f"{expression!r}, while there are {sorted({table.name for table in tables})}."
            )
        for table in matching:
            if found.setdefault(table.name, table) is not table:
                raise ValueError(
                    "`vars_to_warm_start` must match Variables of different names. Received: "
                    f"{expression!r}, which matches two named {table.name!r}. Pass a list of "
                    "Variables."
                )
    return found
