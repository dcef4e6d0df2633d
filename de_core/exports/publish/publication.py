"""Publishes one model into one directory repeatedly."""

from __future__ import annotations

import dataclasses
import pathlib
import secrets
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.exports import version, warm_up
from de_core.exports.served_rows import ServedRows
from de_core.exports.template import Template
from de_core.snapshot import chain_file
from de_core.snapshot.chain_file import Link
from de_core.snapshot.table_files import follow
from de_core.tables.served_copy import SUFFIX, FrozenTable, file_stem
from de_core.tables.table import Table

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
