"""Imports tables, slots and ordinary variables that `tfra.dynamic_embedding` saved."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.progress import Progress
from de_core.base.types import DTypeLike, Optimizer, Target
from de_core.checkpoint.targets import tables_of
from de_core.tables.restrict import FrequencyRestrictPolicy, TimestampRestrictPolicy
from de_core.tables.sharded import ShardedTable
from de_core.tfra_files import dense_state, readers, roles
from de_core.tfra_files.dense_state import Assignment
from de_core.tfra_files.readers import Tensors
from de_core.tfra_files.saved_table import SavedTable, Spec, flat
from de_core.tfra_files.writer import Job, Writer
from de_core.variable.variable import Variable

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # only a checkpoint of objects has this tensor
_LAYER = "-parameter"  # tfra's Embedding layer adds it to its name
#: The policies that rank rows by a metadata column.
_POLICIES = {"uses": FrequencyRestrictPolicy, "time": TimestampRestrictPolicy}


class ImportedTable(NamedTuple):
    """A table in the files of tfra.

    Attributes:
        key_dtype: Dtype of the keys. None if the files do not contain it.
        value_dtype: Dtype of the values. None if the files do not contain it.
        dim: Values per row. None if the files do not contain it.
        rows: Number of rows. None if the files do not contain the dtypes.
        shards: Number of shards in the files.
        slots: Names of the optimizer slots in the files.
        variable: The Variable that was made for the table. None if `target` was given.
        policies: Names of the restrict policies whose counts or times are in the files.
        left_out: Why the table is not imported. Only a dry run returns such tables.
    """

    key_dtype: tf.DType | None
    value_dtype: tf.DType | None
    dim: int | None
    rows: int | None
    shards: int
    slots: tuple[str, ...]
    variable: Variable | None
    policies: tuple[str, ...] = ()
    left_out: str = ""


def import_checkpoint(
    path: str | os.PathLike[str],
    target: Target | None = None,
    *,
    optimizer: Optimizer | None = None,
    tables: str | None = None,
    slots: bool = True,
    key_dtype: DTypeLike | None = None,
    value_dtype: DTypeLike | None = None,
    dim: int | None = None,
    session: tf.compat.v1.Session | None = None,
    dry_run: bool = False,
) -> dict[str, ImportedTable]:
    """Imports what `tfra.dynamic_embedding` saved, with any number of shards.

    Reads checkpoints of `tf.train.Checkpoint`, `save_weights` and a TensorFlow 1 Saver;
    SavedModels; the folders of a `FileSystemSaver`; and the files of `save_to_file_system`. The
    rows are added to the rows of the tables. Optimizer slots, and the counts and times of restrict
    policies, are written into the rows, and the optimizer's number of steps is set. All files are
    read once before the first table changes. So a missing or damaged file changes nothing.

    Args:
        path: The prefix of a checkpoint, a directory of checkpoints for the newest, a SavedModel,
            or a folder of key-value files.
        target: The tables: a Variable, a list or dict of them; or a module, layer, model or
            `tf.train.Checkpoint`. Then its ordinary variables are read too, under the paths that
            they have in the checkpoint. The Variable of a table has the table's name, or a layer's
            name for the table `<layer>-parameter`. One Variable receives the only table under any
            name. None to make a Variable per table.
        optimizer: The result of `DynamicEmbeddingOptimizer` that continues, or the table's own,
            `table.optimizer`. None for the only one in `target`.
        tables: A regular expression that matches the full names of the tables to import; None for
            all. It also decides what the files do not tell: a table `user_m` may be a slot of the
            table `user`.
        slots: True to import optimizer slots, steps and learning rate. False to leave them out,
            and the counts of restrict policies that a Variable does not have.
        key_dtype: Key dtype of key-value files; None for the target's, or int64. If a checkpoint
            tells the dtype, it must be this one.
        value_dtype: Value dtype of key-value files without a target.
        dim: Values per row of key-value files without a target.
        session: In a TensorFlow 1 graph, the session; None for the default session. Call it after
            the initializer. The ordinary variables of the graph that the checkpoint names are
            restored too.
        dry_run: True to change nothing and return what the files hold, with the tables that
            `tables` leaves out.

    Returns:
        The tables by name.

    Raises:
        ValueError: There are no such tables, a shard is missing, keys and values do not match, a
            file holds addresses of strings, `target` or `optimizer` does not fit, there are slots
            without an optimizer or counts without a policy, or the files do not tell whether a
            table is a slot, or the dtype of its keys.
        tf.errors.NotFoundError: `path` does not exist.
        tf.errors.DataLossError: A file is damaged.
        RuntimeError: In a graph, there is no session.

    Example:
    >>> import tempfile
    >>> import de_core as de
    >>> folder = tempfile.mkdtemp()  # with the files of table.save_to_file_system(folder)
    >>> for part, numbers in ("keys", tf.range(2, 4, dtype=tf.int64)), ("values", tf.ones([2, 3])):
    ...     file = f"{folder}/users_mht_1of1_rank0_size1-{part}"
    ...     tf.io.write_file(file, numbers.numpy().tobytes())
    >>> users = de.Variable(dim=3, name="users")
    >>> import_checkpoint(folder, users)["users"].rows
    2
    >>> users.lookup([3]).numpy().tolist()
    [[1.0, 1.0, 1.0]]
    """
    wanted = {} if target is None else tables_of(target)
    there, found = readers.tables_at(os.fspath(path).rstrip("/"))
    try:
        pattern = None if tables is None else re.compile(tables)
    except re.error as error:
        raise ValueError(
            "`tables` must be a regular expression of Python's `re`. Received: "
            f"{tables!r}: {error}."
        ) from error
    groups = roles.collected(
        found,
        [] if there is None else dense_state.optimizer_paths(there),
        [*wanted, *(name + _LAYER for name in wanted)],
        pattern,
    )
    chosen = [name for name in groups if pattern is None or pattern.fullmatch(name)]
    if not chosen:
        raise ValueError(
            "The path must hold tables of tfra whose names `tables` matches. "
            f"{received(path=os.fspath(path), found=sorted(groups), tables=tables)} Pass "
            "another path, or other `tables`."
        )
    given = None
    if value_dtype is not None and dim is not None:
        given = Spec(tf.as_dtype(key_dtype or tf.int64), tf.as_dtype(value_dtype), dim)
    if dry_run:
        return {
            name: _described(saved, saved.spec() or given, None, _left_out(saved, name in chosen))
            for name, saved in groups.items()
        }
    roles.check_doubts(groups, chosen)
    jobs = [
        Job(name, groups[name], _spec(groups[name], table, given, key_dtype), table)
        for name, table in _paired(chosen, wanted, target).items()
    ]
    if optimizer is None and hasattr(target, "_trackable_children"):
        every = tf.train.TrackableView(target).descendants()
        optimizers = [each for each in every if hasattr(each, "slots_owner")]
        optimizer = optimizers[0] if len(optimizers) == 1 else None
    if not slots:
        jobs = list(map(_without_slots, jobs))
    with_slots = {job.name: sorted(job.saved.slots) for job in jobs if job.saved.slots}
    if with_slots and not hasattr(optimizer, "slots_owner"):
        raise ValueError(
            "Optimizer slots must go to an optimizer that DynamicEmbeddingOptimizer returned, or "
            f"to the table's own. {received(slots=with_slots, optimizer=optimizer)} Pass "
            "`optimizer`, or slots=False to import only the rows."
        )
    total = sum(_verified(job, key_dtype is not None) for job in jobs)
    made = {job.name: _made(job) for job in jobs if job.table is None}
    jobs = [job._replace(table=job.table or made[job.name]._table) for job in jobs]
    writer = Writer(session)
    numbers = _numbers(there, jobs, target, optimizer, slots)
    names = {job.name: writer.make_slots(job, optimizer) for job in jobs if job.saved.slots}
    with Progress(total, "import") as progress:
        for job in jobs:
            writer.write(job, names.get(job.name, {}), progress)
    if there is not None:
        writer.restore_named(there.prefix, there.shapes)
    for each in numbers:
        writer.assign(each.variable, each.value)
    if numbers and tf.executing_eagerly():
        dense_state.count_products(optimizer)
    return {job.name: _described(groups[job.name], job.spec, made.get(job.name)) for job in jobs}


def _spec(
    saved: SavedTable, table: ShardedTable | None, given: Spec | None, key_dtype: DTypeLike | None
) -> Spec:
    own = None if table is None else Spec(*(getattr(table.spec, each) for each in Spec._fields))
    known = saved.spec()
    if known is not None and key_dtype is not None and known.key_dtype != tf.as_dtype(key_dtype):
        raise ValueError(
            f"`key_dtype` must be the dtype of the saved keys. {received(key_dtype=key_dtype)} "
            f"The checkpoint holds table {saved.name!r} as {known}. Leave out `key_dtype`: only "
            "key-value files need it."
        )
    spec = known or own or given
    if spec is None:
        raise ValueError(
            f"Key-value files do not contain their dtypes and dim. Received: table={saved.name!r} "
            "without a target. Pass `value_dtype` and `dim`, and `key_dtype` unless it is int64."
        )
    if key_dtype is not None:
        spec = spec._replace(key_dtype=tf.as_dtype(key_dtype))
    if own is not None and own != spec:
        raise ValueError(
            f"The Variable for table {saved.name!r} must have its dtypes and dim, {spec}. "
            f"Received: a Variable of {own}."
        )
    return spec


def _paired(
    chosen: list[str], wanted: Mapping[str, ShardedTable], target: Any
) -> dict[str, ShardedTable | None]:
    if target is None:
        return dict.fromkeys(chosen)
    if len(chosen) == len(wanted) == 1:
        return dict(zip(chosen, wanted.values(), strict=True))
    own = {flat(name): table for name, table in wanted.items()}
    pairs = {
        name: own.get(flat(name)) or own.get(flat(name).removesuffix(_LAYER)) for name in chosen
    }
    without = sorted(name for name, table in pairs.items() if table is None)
    left = sorted(name for name, table in wanted.items() if table not in pairs.values())
    if without or left:
        raise ValueError(
            "Each table in the files must have a Variable of its name, and each Variable a table. "
            f"Received: tables {without} without a Variable, Variables {left} without a table. "
            "Pass a dict from the tables' names to Variables, or choose fewer tables by `tables`."
        )
    return pairs


def _described(
    saved: SavedTable, spec: Spec | None, variable: Variable | None, left_out: str = ""
) -> ImportedTable:
    policies = tuple(_POLICIES[each].__name__ for each in sorted(saved.columns))
    key_dtype, value_dtype, dim = spec or (None, None, None)
    rows = None if spec is None else saved.rows(spec)
    slots = tuple(sorted(saved.slots))
    kind = (key_dtype, value_dtype, dim, rows)
    return ImportedTable(*kind, len(saved.shards), slots, variable, policies, left_out)


def _left_out(saved: SavedTable, is_chosen: bool) -> str:
    if saved.doubts:
        return f"it may be {saved.doubts}; `tables` must decide"
    return "" if is_chosen else "`tables` does not match its name"


def _without_slots(job: Job) -> Job:
    kept = job.saved.columns if job.table is None else job.table.policy.columns
    columns = {name: each for name, each in job.saved.columns.items() if name in kept}
    return job._replace(saved=job.saved._replace(slots={}, columns=columns))


def _verified(job: Job, is_key_given: bool) -> int:
    """Reads all files once; returns the number of rows, of tables and of their slots."""
    for column in job.saved.columns:
        if job.table is not None and column not in job.table.policy.columns:
            raise ValueError(
                f"The Variable for table {job.name!r} must have the policy that its files have. "
                f"{received(columns=job.table.policy.columns)} Make the Variable with "
                f"restrict_policy={_POLICIES[column].__name__}, or pass slots=False to import only "
                "rows."
            )
    for saved in job.saved.slots.values():
        own = saved.spec() or job.spec
        if (own.key_dtype, own.dim) != (job.spec.key_dtype, job.spec.dim):
            raise ValueError(
                f"A slot of table {job.name!r} must have its key dtype and dim, {job.spec}. "
                f"Received: {saved.name!r} of {own}."
            )
    rows = sum(saved.verify(spec) for _, saved, spec in job.parts())
    readers.check_keys(job.saved, job.spec, is_key_given)
    return rows


def _made(job: Job) -> Variable:
    policy = next((_POLICIES[each] for each in job.saved.columns), None)
    rows = job.saved.rows(job.spec)
    return Variable(*job.spec, name=job.name, init_size=rows, restrict_policy=policy)


def _numbers(
    there: Tensors | None,
    jobs: list[Job],
    target: Any,
    optimizer: Optimizer | None,
    slots: bool,
) -> list[Assignment]:
    """Returns the values of ordinary variables and of the optimizer's numbers."""
    if there is None:
        return []
    if _GRAPH not in there.shapes:
        return [] if optimizer is None or not slots else dense_state.of_saver(there, optimizer)
    if not tf.executing_eagerly():
        return []
    is_tree = hasattr(target, "_trackable_children") and not isinstance(target, (Variable, list))
    dense = dense_state.of_target(there, target, optimizer) if is_tree else None
    of_slots = sorted({job.saved.optimizer for job in jobs if job.saved.slots})
    found = of_slots or dense_state.optimizer_paths(there)
    if optimizer is None or not slots or not found:
        return dense or []
    if len(found) > 1:
        raise ValueError(
            "The tables of one call must have one optimizer in the checkpoint. "
            f"{received(optimizers=found)} Import the tables of each optimizer by a call of its "
            "own, with `tables` and `optimizer`."
        )
    return [*(dense or ()), *dense_state.of_optimizer(there, found[0], optimizer, dense)]
