"""Publishes versions of a model every few minutes: full versions, and deltas between them."""

from __future__ import annotations

import dataclasses
import numbers
import os
import pathlib
import secrets
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.ops import library
from de_core.base.types import DTypeLike, InputSpecs, Model, Request, Signatures, UnknownIds
from de_core.exports import served_rows, version, warm_up
from de_core.exports.served_rows import KeepRows, ServedRows
from de_core.exports.template import Template
from de_core.exports.version import Version
from de_core.snapshot import chain_file
from de_core.snapshot.chain_file import Link
from de_core.snapshot.table_files import follow
from de_core.tables.served_copy import SUFFIX, FrozenTable, file_stem
from de_core.tables.sharded import living
from de_core.tables.table import Table

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_KEY = "used_variables/{}/.ATTRIBUTES/VARIABLE_VALUE"
_PREFIX = "variables/variables"


def publish(
    model: Model,
    root: str | os.PathLike[str],
    signatures: Signatures = None,
    *,
    full_every: int = 20,
    full_part: float = 0.5,
    keep_versions: int | None = 3,
    full: bool = False,
    consistent: bool = False,
    inputs: InputSpecs = None,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
    oov: UnknownIds | Mapping[str, UnknownIds] = "initial",
    keep: KeepRows | Mapping[str, KeepRows] | None = None,
    sample: Request | Sequence[Request] | None = None,
) -> Version:
    """Writes the next version of a model into a directory that a server watches.

    The first version contains all rows (a base). A later version contains a hard link to the base,
    a delta and the dense weights. The delta holds the rows that changed and the keys that were
    removed since the previous version. A version appears atomically, even if this process or the
    disk fails, and needs no file of another version. It has the graph of the last full version:
    changed code is published with the next full version.

    A version is full again when the deltas are many or large, when an argument changed, or when
    another process published into the directory.

    Args:
        model: As for `de.export`.
        root: The directory of the versions, on a local file system.
        signatures: As for `de.export`.
        full_every: Write a full version after this many versions.
        full_part: Write a full version once deltas exceed this fraction of the bases' bytes, all
            tables together.
        keep_versions: Number of published versions to keep; None for all. At least 2, so that a
            server can finish its requests to the previous version.
        full: Whether to force a full version.
        consistent: Whether all rows of a table are saved as of the moment when its save begins; see
            `de.checkpoint.save`.
        inputs: As for `de.export`.
        dtype: As for `de.export`.
        oov: As for `de.export`.
        keep: Bounds on the rows, as for `de.export`, but without `where`. If an unchanged row falls
            below a bound, the next full version removes it.
        sample: Warm-up requests, as for `de.export`. Taken with a full version.

    Returns:
        The version directory, a string with a `report`: `kind` ("full" or "delta"), `previous` (the
        version that a delta follows), and `tables`, which has for each table the `rows`,
        `tombstones` and `bytes` written.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of range.
        tf.errors.OpError: A file cannot be written. Then the version does not appear. The next
            version still contains all changes.

    Example:
    >>> import keras, tempfile, de_core as de
    >>> model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2, name="t")])
    >>> root = tempfile.mkdtemp()
    >>> de.publish(model, root).report["kind"]
    'full'
    >>> model.get_layer("t").table.upsert([7], [[1.0, 2.0]])
    >>> de.publish(model, root).report["tables"]["t"]["rows"]
    1
    """
    check_when_full(full_every, full_part)
    check_integer("keep_versions", keep_versions, 2, or_none=True)
    for each in keep.values() if isinstance(keep, Mapping) else [keep]:
        if getattr(each, "where", None) is not None:
            raise ValueError(
                "`keep` must have no `where` here: a delta must know which rows the earlier "
                f"versions left out. {received(keep=keep)} Use bounds alone, or de.export."
            )
    folder = version.local(root, "root").resolve()
    arguments = (model, signatures, inputs, dtype, oov, keep)
    with version.alone_in(folder):
        known: Publication | None = None
        for table in living() if not full else []:
            before = table.publications.get(str(folder))
            if before is not None and all(map(_same, before[0], arguments)):
                known = before[1]
                break
        last = None if known is None else known.followed(full_every, full_part)
        if known is None or last is None:
            template = Template(model, signatures, inputs)
            rows = served_rows.of_tables(template.names, dtype, oov, keep)
            function = template.functions[template.main_signature]
            requests = None if sample is None else warm_up.requests(sample, function)
            known = Publication(folder, template, rows, requests)
        target = version.next_in(folder, None)
        with version.being_written(target, version.WORK_PREFIX) as work:
            try:
                written = known.write(work, last, consistent)
            except tf.errors.FailedPreconditionError:
                if last is None:
                    raise
                # A table's delta cannot follow its last save. Write a full version.
                shutil.rmtree(work)
                work.mkdir()
                last = None
                written = known.write(work, last, consistent)
            chains = {written.assets[shard]: links for shard, links in written.links.items()}
            previous = None if last is None else int(last.path.name)
            report = version.write_chains(work, chains, written.reports, previous)
        # Only now, because the next delta must follow a version that exists.
        tables = known.template.names
        for name, table in tables.items():
            for shard, made in zip(table.tables, written.reports[name], strict=True):
                shard.run(library.de_table_commit_save, made["id"], chain=known.chain)
        written.path = target
        known.last = written
        next(iter(tables.values())).publications[str(folder)] = (arguments, known)
        version.prune(folder, keep_versions)
    return Version(str(target), report)


def check_when_full(full_every: int, full_part: float) -> None:
    """Raises if the rules for the next full version are out of range."""
    check_integer("full_every", full_every, 1)
    if not isinstance(full_part, numbers.Real) or not 0 < full_part <= 10:
        raise ValueError(
            f"`full_part` must be a number above 0 and at most 10. {received(full_part=full_part)}"
        )


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # raised for arrays inside other objects
        return False


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


@dataclasses.dataclass
class Written:
    """The state of a written version that the next version needs.

    Attributes:
        path: The version's directory.
        assets: For each shard, the name of its chain file.
        weights: The dense weights.
        links: For each shard, the files of its chain: the base first, then the deltas.
        reports: For each table, by name, the reports of its shards' files.
    """

    path: pathlib.Path
    assets: dict[Table, str]
    weights: Weights
    links: dict[Table, list[Link]] = dataclasses.field(default_factory=dict)
    reports: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)


class Publication:
    """A model published by this process, with the state for its next version."""

    def __init__(
        self,
        root: pathlib.Path,
        template: Template,
        rows: dict[str, ServedRows],
        requests: list[dict[str, tf.Tensor]] | None,
    ) -> None:
        self._root = root
        self._rows = rows
        self._requests = requests
        self.template = template
        #: Name of the series of saves of the tables.
        self.chain = f"publish {root}"
        #: The newest version, once it has its name.
        self.last: Written | None = None

    def followed(self, full_every: int, full_part: float) -> Written | None:
        """Returns the version that the next delta follows, or None if the next version is full."""
        last = self.last
        if last is None or version.numbers_in(self._root)[-1:] != [int(last.path.name)]:
            return None
        if version.full_is_due(last.path, last.links.values(), full_every, full_part):
            return None
        newest = [links[-1].identity for links in last.links.values()]
        return last if follow(last.links, self.chain, newest) else None

    def write(self, folder: pathlib.Path, last: Written | None, consistent: bool) -> Written:
        """Writes the files of a version, apart from its chains and its report.

        Args:
            folder: An empty directory.
            last: The version that a delta follows, or None for a full version.
            consistent: Whether all rows of a table are saved as of one moment.
        """
        assets = folder / "assets"
        if last is not None and last.weights.are_all:
            # Link the graph of the last version, and write new weights.
            own = {each.name for links in last.links.values() for each in links}
            own |= set(last.assets.values())
            assets.mkdir()
            others = [file for file in (last.path / "assets").iterdir() if file.name not in own]
            for name in ("saved_model.pb", "fingerprint.pb", warm_up.FILE):
                if (last.path / name).is_file():
                    others.append(last.path / name)
            for other in others:
                target = folder / other.relative_to(last.path)
                target.parent.mkdir(exist_ok=True)
                version.link(other, target)
            last.weights.write(folder)
            made = Written(folder, last.assets, last.weights)
        else:
            copies: dict[Table, FrozenTable] = self.template.save(folder, chain_file.SUFFIX)
            if self._requests is not None:
                name = self.template.main_signature
                warm_up.write(folder, self._root.name, name, self._requests)
            chain_names = {table: copy.file.name for table, copy in copies.items()}
            weights = Weights(folder, self.template.module.used_variables)
            made = Written(folder, chain_names, weights)
        for name, table in self.template.names.items():
            stems = (f"{file_stem(shard.name)}-{secrets.token_hex(4)}" for shard in table.tables)
            files = [stem + SUFFIX for stem in stems]
            made.reports[name] = reports = self._rows[name].write(
                table,
                [str(assets / file) for file in files],
                chain=self.chain,
                delta=last is not None,
                commit=False,
                consistent=consistent,
            )
            for shard, file, report in zip(table.tables, files, reports, strict=True):
                made.links[shard] = [Link(report["id"], file)]
                if last is not None:
                    for each in last.links[shard]:
                        version.link(last.path / "assets" / each.name, assets / each.name)
                    made.links[shard] = [*last.links[shard], *made.links[shard]]
        return made
