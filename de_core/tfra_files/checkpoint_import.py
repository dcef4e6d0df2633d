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
from de_core.optimizers.plan import arithmetic_dtype
from de_core.optimizers.tf1.optimizer import Tf1Optimizer
from de_core.tables.sharded import ShardedTable
from de_core.tfra_files import (
    dense_state,
    key_value_files,
    location,
    roles,
    steps,
)
from de_core.tfra_files import (
    tensors as tensor_tables,
)
from de_core.tfra_files.contents import SavedTable, Spec, flat
from de_core.tfra_files.dense_state import Assignment
from de_core.tfra_files.roles import TableWithSlots
from de_core.tfra_files.tensors import Tensors
from de_core.tfra_files.writer import Writer
from de_core.variable.slots import slots_of
from de_core.variable.variable import Variable

_LAYER = "-parameter"  # tfra's Embedding layer adds it to its name


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
    """

    key_dtype: tf.DType | None
    value_dtype: tf.DType | None
    dim: int | None
    rows: int | None
    shards: int
    slots: tuple[str, ...]
    variable: Variable | None


class _Job(NamedTuple):
    """A table to import, and where to."""

    name: str
    saved: TableWithSlots
    spec: Spec | None
    table: ShardedTable | None


def import_checkpoint(
    path: str | os.PathLike[str],
    target: Target | None = None,
    *,
    optimizer: Optimizer | None = None,
    tables: str = ".*",
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
    rows are added to the rows of the tables. Optimizer slots are written into the rows, and the
    optimizer's number of steps is set. All files are read once before the first table changes. So
    a missing or damaged file changes nothing.

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
        tables: A regular expression that matches the full names of the tables to import.
        slots: True to import optimizer slots, steps and learning rate. False to leave them out.
        key_dtype: Key dtype of key-value files without a target; None for int64.
        value_dtype: Value dtype of key-value files without a target.
        dim: Values per row of key-value files without a target.
        session: In a TensorFlow 1 graph, the session; None for the default session. Call it after
            the initializer. The ordinary variables of the graph that the checkpoint names are
            restored too.
        dry_run: True to change nothing and return what the files hold.

    Returns:
        The tables by name.

    Raises:
        ValueError: There are no such tables, a shard is missing, keys and values do not match, a
            file holds addresses of strings, `target` or `optimizer` does not fit, or there are
            slots without an optimizer.
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
    tensors, found = _found(os.fspath(path).rstrip("/"))
    groups = roles.grouped(found, [*wanted, *(name + _LAYER for name in wanted)])
    chosen = _chosen(groups, tables, path)
    given = _given(key_dtype, value_dtype, dim)
    jobs = [
        _Job(name, groups[name], _spec(groups[name].table, table, given, dry_run), table)
        for name, table in _paired(chosen, wanted, target).items()
    ]
    if dry_run:
        return {job.name: _described(job, groups, None) for job in jobs}
    if optimizer is None and target is not None:
        optimizer = _only_optimizer(target)
    if not slots:
        jobs = [job._replace(saved=job.saved._replace(slots={})) for job in jobs]
    _check_slots(jobs, optimizer)
    total = _verified(jobs)
    made = {job.name: _made(job) for job in jobs if job.table is None}
    jobs = [
        job if job.table is not None else job._replace(table=made[job.name]._table) for job in jobs
    ]
    writer = Writer(session)
    numbers = _numbers(tensors, jobs, target, optimizer, slots)
    names = _made_slots(writer, jobs, optimizer)
    with Progress(total, "import") as progress:
        for job in jobs:
            _write(writer, job, names.get(job.name, {}), progress)
    if tensors is not None:
        writer.restore_named(tensors.prefix, tensors.shapes)
    for each in numbers:
        writer.assign(each.variable, each.value)
    if numbers and tf.executing_eagerly():
        dense_state.count_products(optimizer)
    return {job.name: _described(job, groups, made.get(job.name)) for job in jobs}


def _found(path: str) -> tuple[Tensors | None, dict[str, SavedTable]]:
    prefix = location.prefix_of(path)
    if prefix is not None:
        tensors = Tensors.of(prefix)
        here, beside = tensor_tables.tables_in(tensors)
        return tensors, here | (location.rows_beside(prefix, beside) if beside else {})
    if not tf.io.gfile.isdir(path):
        if tf.io.gfile.exists(path):
            raise ValueError(
                "The path must not be a file: tfra writes no rows into files with the endings .h5, "
                f".weights.h5 and .keras. {received(path=path)} Pass a checkpoint or a SavedModel "
                "of the same run."
            )
        raise tf.errors.NotFoundError(
            None,
            None,
            "The path must be a checkpoint's prefix, a SavedModel, or a directory of checkpoints "
            f"or key-value files. Received: path={path!r}.",
        )
    return None, key_value_files.tables_in(path)


def _chosen(groups: Mapping[str, Any], tables: str, path: Any) -> list[str]:
    try:
        pattern = re.compile(tables)
    except re.error as error:
        raise ValueError(
            "`tables` must be a regular expression of Python's `re`. Received: "
            f"{tables!r}: {error}."
        ) from error
    chosen = [name for name in groups if pattern.fullmatch(name)]
    if not chosen:
        raise ValueError(
            "The path must hold tables of tfra whose names `tables` matches. "
            f"{received(path=os.fspath(path), found=sorted(groups), tables=tables)} Pass "
            "another path, or other `tables`."
        )
    return chosen


def _given(
    key_dtype: DTypeLike | None, value_dtype: DTypeLike | None, dim: int | None
) -> Spec | None:
    if value_dtype is None or dim is None:
        return None
    return Spec(tf.as_dtype(key_dtype or tf.int64), tf.as_dtype(value_dtype), dim)


def _spec(
    saved: SavedTable, table: ShardedTable | None, given: Spec | None, optional: bool
) -> Spec | None:
    spec = saved.spec()
    own = None if table is None else Spec(*(getattr(table.spec, each) for each in Spec._fields))
    if spec is None:
        spec = own or given
    if spec is None and not optional:
        raise ValueError(
            f"Key-value files do not contain their dtypes and dim. Received: table={saved.name!r} "
            "without a target. Pass `value_dtype` and `dim`, and `key_dtype` unless it is int64."
        )
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
    job: _Job, groups: Mapping[str, TableWithSlots], variable: Variable | None
) -> ImportedTable:
    table, spec = job.saved.table, job.spec
    slots = tuple(sorted(groups[job.name].slots))
    if spec is None:
        return ImportedTable(None, None, None, None, len(table.shards), slots, variable)
    return ImportedTable(*spec, table.rows(spec), len(table.shards), slots, variable)


def _only_optimizer(target: Any) -> Optimizer | None:
    if not hasattr(target, "_trackable_children"):
        return None
    found = [
        each
        for each in tf.train.TrackableView(target).descendants()
        if hasattr(each, "slots_owner")
    ]
    return found[0] if len(found) == 1 else None


def _check_slots(jobs: list[_Job], optimizer: Optimizer | None) -> None:
    with_slots = {job.name: sorted(job.saved.slots) for job in jobs if job.saved.slots}
    if with_slots and not hasattr(optimizer, "slots_owner"):
        raise ValueError(
            "Optimizer slots must go to an optimizer that DynamicEmbeddingOptimizer returned, or "
            f"to the table's own. {received(slots=with_slots, optimizer=optimizer)} Pass "
            "`optimizer`, or slots=False to import only the rows."
        )


def _verified(jobs: list[_Job]) -> int:
    """Reads all files once and returns the number of rows with those of the slots."""
    total = 0
    for job in jobs:
        for saved in (job.saved.table, *job.saved.slots.values()):
            spec = saved.spec() or job.spec
            assert spec is not None
            assert job.spec is not None
            if (spec.key_dtype, spec.dim) != (job.spec.key_dtype, job.spec.dim):
                raise ValueError(
                    f"A slot of table {job.name!r} must have its key dtype and dim, {job.spec}. "
                    f"Received: {saved.name!r} of {spec}."
                )
            total += saved.verify(spec)
    return total


def _made(job: _Job) -> Variable:
    assert job.spec is not None
    return Variable(*job.spec, name=job.name, init_size=job.saved.table.rows(job.spec))


def _numbers(
    tensors: Tensors | None,
    jobs: list[_Job],
    target: Any,
    optimizer: Optimizer | None,
    slots: bool,
) -> list[Assignment]:
    """Returns the values of ordinary variables and of the optimizer's numbers."""
    if tensors is None:
        return []
    if isinstance(optimizer, Tf1Optimizer) and slots:
        betas = (getattr(optimizer.inner_optimizer, f"_beta{each}", 0.9) for each in (1, 2))
        count = steps.of_saver(tensors, *betas)
        return [] if count is None else [Assignment(optimizer.steps, "global_step", count)]
    if not tf.executing_eagerly():
        return []
    is_tree = hasattr(target, "_trackable_children") and not isinstance(target, (Variable, list))
    dense = dense_state.of_target(tensors, target, optimizer) if is_tree else None
    of_slots = sorted({job.saved.optimizer for job in jobs if job.saved.slots})
    found = of_slots or dense_state.optimizer_paths(tensors)
    if optimizer is None or not slots or not found:
        return dense or []
    if len(found) > 1:
        raise ValueError(
            "The tables of one call must have one optimizer in the checkpoint. "
            f"{received(optimizers=found)} Import the tables of each optimizer by a call of its "
            "own, with `tables` and `optimizer`."
        )
    return [*(dense or ()), *dense_state.of_optimizer(tensors, found[0], optimizer, dense)]


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
    assert spec is not None

    def upsert(keys: tf.Tensor, values: tf.Tensor) -> tf.Operation | None:
        return table.write(library.de_table_insert_or_assign, (keys, values))

    writer.write(upsert, spec[:2], job.saved.table.batches(spec), progress)
    for name, full_name in names.items():
        saved = job.saved.slots[name]

        def assign(
            keys: tf.Tensor, values: tf.Tensor, slot: tf.Tensor = full_name
        ) -> tf.Operation | None:
            return table.assign_slot(keys, values, slot)

        dtypes = (spec.key_dtype, arithmetic_dtype(table))
        writer.write(assign, dtypes, saved.batches(saved.spec() or spec), progress)
