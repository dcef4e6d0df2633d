"""Publishes a version that `de.export` wrote, from files to files, without the model."""

from __future__ import annotations

import json
import os
import pathlib
import secrets
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.ops import library
from de_core.exports import version
from de_core.exports.publish import check_when_full
from de_core.exports.version import Version
from de_core.snapshot import chain_file
from de_core.snapshot.chain_file import Link
from de_core.snapshot.difference import compare
from de_core.snapshot.file import SnapshotFile, about, metadata_of
from de_core.tables.served_copy import SUFFIX

_CHAIN = "publish"


def add(
    source: pathlib.Path,
    root: pathlib.Path,
    full_every: int,
    full_part: float,
    full: bool,
    keep_versions: int,
) -> Version:
    """Publishes an exported version: as a delta if a version exists already, otherwise in full.

    Copies graph and weights from the export. A delta holds the rows that differ from the newest
    version. Needs memory for the rows of one table, and for the keys that differ.

    Raises:
        ValueError: `source` is not a version directory that `de.export` wrote, or `full_every` or
            `full_part` is out of range.
        tf.errors.OpError: A file is damaged or cannot be written.
    """
    check_when_full(full_every, full_part)
    files = sorted(source.glob(f"assets/*{SUFFIX}"))
    published = next(source.glob(f"assets/*{chain_file.SUFFIX}"), None)
    if not files or published or not (source / "saved_model.pb").is_file():
        raise ValueError(
            "The export must be a version directory that de.export wrote, with a saved_model.pb "
            f"and snapshot files in its assets. Received: {str(source)!r}."
        )
    infos = {file: about(str(file), verified=True) for file in files}
    with version.alone_in(root):
        last = None if full else next(reversed(version.published_in(root)), None)
        before: dict[pathlib.Path, list[pathlib.Path]] = {}
        if last is not None and int(last.name) == version.numbers_in(root)[-1]:
            links_of = version.chains_of(last)
            before = _followed(infos, last, links_of)
            if before and version.full_is_due(last, links_of.values(), full_every, full_part):
                before = {}
        target = version.next_in(root, None)
        with version.being_written(target, version.WORK_PREFIX) as folder:
            _copy_graph(source, folder, {file.name for file in files})
            reports: dict[str, list[dict[str, Any]]] = {}
            chains: dict[str, list[Link]] = {}
            for file, info in infos.items():
                name = f"{info['metadata'].get('table', '')}"
                if before:
                    links, made = _write_delta(file, info, before[file], folder / "assets")
                else:
                    version.link(file, folder / "assets" / file.name)
                    links, made = [Link(info["id"], file.name)], info
                reports.setdefault(name, []).append(made)
                chains[_asset_name(file.name)] = links
            previous = int(last.name) if last is not None and before else None
            report = version.write_chains(folder, chains, reports, previous)
        version.prune(root, keep_versions)
    return Version(str(target), report)


def _key(info: dict[str, Any]) -> tuple[Any, ...]:
    metadata = info["metadata"]
    fields = ("table", "shard", "partition")
    return (
        *(metadata.get(field) for field in fields),
        *(info[field] for field in ("key_dtype", "reads_as", "value_dtype", "dim", "initializer")),
    )


def _followed(
    infos: Mapping[pathlib.Path, dict[str, Any]], last: pathlib.Path, old: Mapping[str, list[Link]]
) -> dict[pathlib.Path, list[pathlib.Path]]:
    """Returns for each file of an export the files that its delta would follow; {} if one has none.

    Args:
        infos: The files of the export, with their descriptions.
        last: The version that a delta would follow.
        old: The version's chains.

    Raises:
        tf.errors.DataLossError: The version's chain files and its manifest differ.
    """
    chain_file.check_manifest(last, old)
    chains: dict[str, list[pathlib.Path]] = {}
    for links in old.values():
        paths = [last / "assets" / each.name for each in links]
        chains[repr(_key(about(str(paths[-1]))))] = paths
    found = {file: chains.get(repr(_key(info)), []) for file, info in infos.items()}
    are_same = len(chains) == len(old) == len(found) and all(found.values())
    return found if are_same else {}


def _copy_graph(source: pathlib.Path, folder: pathlib.Path, own: set[str]) -> None:
    """Copies all but the tables' snapshot files `own`, and renames these assets to chain files."""
    for path, _, names in os.walk(source):
        target = folder / pathlib.Path(path).relative_to(source)
        target.mkdir(exist_ok=True)
        for name in names:
            if name not in {*own, "fingerprint.pb"}:
                shutil.copyfile(pathlib.Path(path, name), target / name)
    message = version.saved_model(str(source))
    for graph in message.meta_graphs:
        for asset in graph.asset_file_def:
            if asset.filename in own:
                asset.filename = _asset_name(asset.filename)
    (folder / "saved_model.pb").write_bytes(message.SerializeToString(deterministic=True))


def _asset_name(name: str) -> str:
    return name.removesuffix(SUFFIX) + chain_file.SUFFIX


def _write_delta(
    file: pathlib.Path, info: dict[str, Any], old: list[pathlib.Path], assets: pathlib.Path
) -> tuple[list[Link], dict[str, Any]]:
    before = [str(path) for path in old]
    whole = str(assets / f".{secrets.token_hex(4)}")
    library.de_snapshot_compact(before, whole)
    live = library.de_table(
        anonymous=True,
        key_dtype=tf.as_dtype(info["key_dtype"]),
        value_dtype=tf.as_dtype(info["reads_as"]),
        dim=info["dim"],
    )
    stored, reads_as = info["value_dtype"], info["reads_as"]
    library.de_table_restore(live, before, convert=stored != reads_as, chain=_CHAIN)
    parts = list(compare(SnapshotFile(whole), SnapshotFile(str(file))))
    if removed := [part.removed for part in parts if len(part.removed)]:
        library.de_table_erase(live, tf.constant(np.concatenate(removed)))
    if keys := [each for part in parts for each in (part.added, part.changed) if len(each)]:
        # Once for all keys: the op reads the whole file each time.
        fresh = tf.constant(np.concatenate(keys))
        library.de_table_restore_keys(live, str(file), fresh, replace=False, convert=True)
    pathlib.Path(whole).unlink()
    name = f"{file.name.removesuffix(SUFFIX)}-{secrets.token_hex(4)}{SUFFIX}"
    report = library.de_table_save(
        live,
        str(assets / name),
        values_only=True,
        chain=_CHAIN,
        delta=True,
        store_as="" if stored == reads_as else stored,
        metadata=metadata_of(info),
    )
    made = dict(json.loads(report.numpy()))
    links = [Link(about(path)["id"], pathlib.Path(path).name) for path in before]
    for path in old:
        version.link(path, assets / path.name)
    return [*links, Link(made["id"], name)], made
