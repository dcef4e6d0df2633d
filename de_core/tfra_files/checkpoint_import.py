"""Imports tables, slots and ordinary variables that `tfra.dynamic_embedding` saved."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.ops import library
from de_core.base.progress import Progress
from de_core.base.types import DTypeLike, Optimizer, Target
from de_core.checkpoint.targets import tables_of
from de_core.tables.restrict import FrequencyRestrictPolicy, TimestampRestrictPolicy
from de_core.tables.sharded import ShardedTable
from de_core.tables.spec import arithmetic_dtype
from de_core.tfra_files import dense_state, key_value_files, location, roles, steps
from de_core.tfra_files.contents import SavedTable, Spec, TableContents, flat
from de_core.tfra_files.dense_state import Assignment
from de_core.tfra_files.tensors import Tensors
from de_core.tfra_files.writer import Writer
from de_core.variable.slots import slots_of
from de_core.variable.variable import Variable

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"  # only a checkpoint of objects has this tensor
_LAYER = "-parameter"  # tfra's Embedding layer adds it to its name
_NUMBER: Any = {"value_dtype": tf.int32, "dim": 1}  # a count or a time in seconds
#: The policy that ranks rows by a metadata column, and the factor of the numbers there.
_POLICIES = {"uses": (FrequencyRestrictPolicy, 1), "time": (TimestampRestrictPolicy, 10**6)}


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


class _Job(NamedTuple):
    """A table to import, and where to."""

    name: str
    saved: TableContents
    spec: Spec
    table: ShardedTable | None


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
        key_dtype: Key dtype of key-value files; None for the target's, or int64.
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
    there, found = location.tables_at(os.fspath(path).rstrip("/"))
    pattern = _pattern(tables)
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
    given = _given(key_dtype, value_dtype, dim)
    if dry_run:
        return _described_all(groups, chosen, given)
    roles.check_doubts(groups, chosen)
    jobs = [
        _Job(name, groups[name], _spec(groups[name].table, table, given, key_dtype), table)
        for name, table in _paired(chosen, wanted, target).items()
    ]
    if optimizer is None and target is not None:
        optimizer = _only_optimizer(target)
    if not slots:
        jobs = list(map(_without_slots, jobs))
    _check_slots(jobs, optimizer)
    total = _verified(jobs, key_dtype is not None)
    made = {job.name: _made(job) for job in jobs if job.table is None}
    jobs = [
        job if job.table is not None else job._replace(table=made[job.name]._table) for job in jobs
    ]
    writer = Writer(session)
    numbers = _numbers(there, jobs, target, optimizer, slots)
    names = _made_slots(writer, jobs, optimizer)
    with Progress(total, "import") as progress:
        for job in jobs:
            _write(writer, job, names.get(job.name, {}), progress)
    if there is not None:
        writer.restore_named(there.prefix, there.shapes)
    for each in numbers:
        writer.assign(each.variable, each.value)
    if numbers and tf.executing_eagerly():
        dense_state.count_products(optimizer)
    return {job.name: _described(groups[job.name], job.spec, made.get(job.name)) for job in jobs}


def _pattern(tables: str | None) -> re.Pattern[str] | None:
    try:
        return None if tables is None else re.compile(tables)
    except re.error as error:
        raise ValueError(
            "`tables` must be a regular expression of Python's `re`. Received: "
            f"{tables!r}: {error}."
        ) from error


def _given(
    key_dtype: DTypeLike | None, value_dtype: DTypeLike | None, dim: int | None
) -> Spec | None:
    if value_dtype is None or dim is None:
        return None
    return Spec(tf.as_dtype(key_dtype or tf.int64), tf.as_dtype(value_dtype), dim)


def _spec(
    saved: SavedTable, table: ShardedTable | None, given: Spec | None, key_dtype: DTypeLike | None
) -> Spec:
    own = None if table is None else Spec(*(getattr(table.spec, each) for each in Spec._fields))
    spec = saved.spec() or own or given
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
    saved: TableContents, spec: Spec | None, variable: Variable | None, left_out: str = ""
) -> ImportedTable:
    table, slots = saved.table, tuple(sorted(saved.slots))
    policies = tuple(_POLICIES[each][0].__name__ for each in sorted(saved.columns))
    no = (None, None, None, None)
    known: tuple[Any, Any, Any, Any] = no if spec is None else (*spec, table.rows(spec))
    return ImportedTable(*known, len(table.shards), slots, variable, policies, left_out)


def _described_all(
    groups: Mapping[str, TableContents], chosen: list[str], given: Spec | None
) -> dict[str, ImportedTable]:
    described = {}
    for name, saved in groups.items():
        left_out = "" if name in chosen else "`tables` does not match its name"
        if saved.doubts:
            left_out = f"it may be {saved.doubts}; `tables` must decide"
        described[name] = _described(saved, saved.table.spec() or given, None, left_out)
    return described


def _only_optimizer(target: Any) -> Optimizer | None:
    if not hasattr(target, "_trackable_children"):
        return None
    found = [
        each
        for each in tf.train.TrackableView(target).descendants()
        if hasattr(each, "slots_owner")
    ]
    return found[0] if len(found) == 1 else None


def _without_slots(job: _Job) -> _Job:
    kept = job.saved.columns if job.table is None else job.table.policy.columns
    columns = {name: each for name, each in job.saved.columns.items() if name in kept}
    return job._replace(saved=job.saved._replace(slots={}, columns=columns))


def _check_slots(jobs: list[_Job], optimizer: Optimizer | None) -> None:
    with_slots = {job.name: sorted(job.saved.slots) for job in jobs if job.saved.slots}
    if with_slots and not hasattr(optimizer, "slots_owner"):
        raise ValueError(
            "Optimizer slots must go to an optimizer that DynamicEmbeddingOptimizer returned, or "
            f"to the table's own. {received(slots=with_slots, optimizer=optimizer)} Pass "
            "`optimizer`, or slots=False to import only the rows."
        )


def _verified(jobs: list[_Job], is_key_given: bool) -> int:
    """Reads all files once and returns the number of rows with those of what belongs to them."""
    total = 0
    for job in jobs:
        spec = job.spec
        total += job.saved.table.verify(spec)
        key_value_files.check_keys(job.saved.table, spec, is_key_given)
        for column, saved in job.saved.columns.items():
            total += saved.verify(spec._replace(**_NUMBER))
            policy = _POLICIES[column][0]
            if job.table is not None and column not in job.table.policy.columns:
                raise ValueError(
                    f"The Variable for table {job.name!r} must have the policy that its files "
                    f"have. {received(columns=job.table.policy.columns)} Make the Variable with "
                    f"restrict_policy={policy.__name__}, or pass slots=False to import only rows."
                )
        for saved in job.saved.slots.values():
            own = saved.spec() or spec
            if (own.key_dtype, own.dim) != (spec.key_dtype, spec.dim):
                raise ValueError(
                    f"A slot of table {job.name!r} must have its key dtype and dim, {spec}. "
                    f"Received: {saved.name!r} of {own}."
                )
            total += saved.verify(own)
    return total


def _made(job: _Job) -> Variable:
    policy = next((_POLICIES[each][0] for each in job.saved.columns), None)
    rows = job.saved.table.rows(job.spec)
    return Variable(*job.spec, name=job.name, init_size=rows, restrict_policy=policy)


def _numbers(
    there: Tensors | None,
    jobs: list[_Job],
    target: Any,
    optimizer: Optimizer | None,
    slots: bool,
) -> list[Assignment]:
    """Returns the values of ordinary variables and of the optimizer's numbers."""
    if there is None:
        return []
    if _GRAPH not in there.shapes:
        return [] if optimizer is None or not slots else steps.of_saver(there, optimizer)
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


def _made_slots(
    writer: Writer, jobs: list[_Job], optimizer: Any
) -> dict[str, dict[str, tf.Tensor]]:
    """Makes the slots. Returns their full names in the table by the saved names, by table."""
    names = {}
    for job in jobs:
        if job.saved.slots:
            assert job.table is not None
            writer.make_slots(optimizer, job.table)
            own = [each.slot_name for each in slots_of(job.table, optimizer)]
            names[job.name] = {
                saved: tf.strings.join([optimizer.slots_owner, "/", name])
                for saved, name in roles.own_names(job.name, job.saved.slots, own).items()
            }
    return names


def _write(writer: Writer, job: _Job, names: dict[str, tf.Tensor], progress: Progress) -> None:
    table, spec = job.table, job.spec
    assert table is not None

    def upsert(keys: tf.Tensor, values: tf.Tensor) -> tf.Operation | None:
        return table.write(library.de_table_insert_or_assign, (keys, values))

    def assign(slot: tf.Tensor) -> Any:
        return lambda keys, values: table.assign_slot(keys, values, slot)

    def count(column: str) -> Any:
        op, factor = library.de_table_write_column, _POLICIES[column][1]
        return lambda keys, values: table.write(
            op, (keys, factor * tf.reshape(values, [-1])), column=column
        )

    writer.write(upsert, spec[:2], job.saved.table.batches(spec), progress)
    for name, full_name in names.items():
        saved = job.saved.slots[name]
        dtypes = (spec.key_dtype, arithmetic_dtype(spec.value_dtype))
        writer.write(assign(full_name), dtypes, saved.batches(saved.spec() or spec), progress)
    for column, saved in job.saved.columns.items():
        batches = saved.batches(spec._replace(**_NUMBER))
        writer.write(count(column), (spec.key_dtype, tf.int64), batches, progress)
