"""The verb `rm-key`: copies files without the rows of some keys."""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from de_core_cli import keras_file, library, sources, terminal
from de_core_cli.library import CommandError
from de_core_cli.sources import Source, find, on_disk


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "rm-key",
        help="copy a file, a checkpoint or a version without some keys",
        description="Copies SOURCE to TARGET without the rows of some keys: values, optimizer "
        "slots and tombstones. TARGET appears when every byte of it is checked; SOURCE stays as it "
        "is. A base and its deltas become one base. Needs memory for one shard of a table.",
        **terminal.examples(
            ("Remove two users from a checkpoint:", "rm-key run/ckpt-9 clean/ckpt-9 --key 7"),
            ("From one table of a model file:", "rm-key a.keras b.keras --table users --key 7"),
            (
                "Remove many keys, one per line of a file, as the next version of a model:",
                "rm-key models/ranker/31 models/ranker/32 --keys-from erased.txt",
            ),
        ),
    )
    verb.add_argument("source", help="a file, a checkpoint or a version")
    verb.add_argument("target", help="the new file, directory or prefix; it must not exist")
    verb.add_argument("--key", action="append", default=[], metavar="KEY", help="repeatable")
    verb.add_argument("--keys-from", metavar="FILE", help="a file with one key per line")
    verb.add_argument("--table", metavar="NAME", help="remove from this table only")
    terminal.add_json(verb)
    verb.set_defaults(run=run, parser=verb)


def run(options: argparse.Namespace) -> int:
    """Writes the target. Returns 1, without a target, if no file has any of the keys."""
    texts = list(options.key)
    if options.keys_from is not None:
        lines = pathlib.Path(options.keys_from).read_bytes().splitlines()
        texts += [line.decode("utf-8", "surrogateescape") for line in lines if line]
    if not texts:
        options.parser.error("Name the keys: --key KEY or --keys-from FILE.")
    if "://" in options.source or "://" in options.target:
        raise CommandError("rm-key works on local files. Copy the checkpoint to a local disk.")
    for path in (options.target, f"{options.target}.index"):
        if pathlib.Path(path).exists():
            raise CommandError(f"The target must not exist yet. Received: {path!r}.")
    found = sources.find(options.source, checked=True)
    wanted = [options.table is None or _table(each) == options.table for each in found]
    if not any(wanted):
        raise CommandError(
            f"The source must hold the table. Received: --table {options.table!r}. It holds: "
            f"{', '.join(sorted(set(map(_table, found))))}."
        )
    keys = [
        [terminal.key_of(text, each.header().info["key_dtype"], each.name) for text in texts]
        if is_wanted
        else []
        for each, is_wanted in zip(found, wanted, strict=True)
    ]
    removed = _copy(options.source, options.target, found, keys)
    rows = [(name, gone, left) for name, (gone, left) in removed.items()]
    if options.json:
        for name, gone, left in rows:
            terminal.print_json({"table": name, "removed": gone, "rows": left})
    else:
        terminal.print_table(("table", "removed", "rows left"), rows)
    return 0


def _table(source: sources.Source) -> str:
    return str(source.header().info["metadata"].get("table", ""))


def _copy(
    path: str, target: str, found: Sequence[Source], keys: Sequence[list[Any]]
) -> dict[str, tuple[int, int]]:
    """Copies what is at `path` without the rows of keys.

    Args:
        path: A local snapshot file, Keras file, checkpoint or version.
        target: The copy, which does not exist.
        found: The snapshot files at `path`, each base before its deltas.
        keys: For each file, the keys to remove.

    Returns:
        By table, the number of removed rows and of rows that are left.

    Raises:
        CommandError: No table has any of the keys, or a file cannot be copied.
        tf.errors.OpError: A file is damaged, or the disk is full.
    """
    parent = pathlib.Path(target).absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    totals: dict[str, tuple[int, int]] = {}
    with (
        on_disk(found) as paths,
        tempfile.TemporaryDirectory(prefix=".rm-key-", dir=parent) as work,
    ):
        chains = _chains(found, paths)
        made: dict[int, tuple[pathlib.Path, dict[str, Any]]] = {}
        for chain in chains:
            first = chain[0]
            file = pathlib.Path(work) / f"{first}.de"
            name, gone, report = _without(
                [paths[each] for each in chain], found[chain[-1]], keys[first], file
            )
            made[first] = (file, report)
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + gone, before[1] + report["rows"])
        if not any(gone for gone, _ in totals.values()):
            raise CommandError("A table must have one of the keys. Received: no row of any key.")
        ready = pathlib.Path(work) / "ready"
        source = pathlib.Path(path)
        if pathlib.Path(f"{path}.index").exists():
            _to_prefix(path, target, chains, paths, made)
        elif source.is_dir():
            _to_directory(source, ready, found, chains, made)
            ready.rename(target)
        elif found[0].inside:
            files = {found[first].inside: file for first, (file, _) in made.items()}
            keras_file.rewrite(path, ready, files)
            from de_core.base.paths import sync
            from de_core.snapshot.table_files import verify

            with on_disk(find(str(ready))) as copied:
                verify(copied)
            sync(str(ready))
            ready.rename(target)
        else:
            made[0][0].rename(target)
    return totals


def _chains(found: Sequence[Source], paths: Sequence[str]) -> list[list[int]]:
    """Groups the files' numbers: each base with its deltas."""
    chains: list[list[int]] = []
    for number, source in enumerate(found):
        if source.header().info["kind"] == "base":
            chains.append([number])
        elif chains:
            chains[-1].append(number)
        else:
            raise CommandError(
                f"A delta alone cannot be copied. Received: {paths[number]!r}. Name its checkpoint."
            )
    return chains


def _without(
    files: list[str], last: Source, keys: list[Any], target: pathlib.Path
) -> tuple[str, int, dict[str, Any]]:
    """Writes one shard without keys. Returns its table, the rows removed, and the save's report."""
    library.load()
    import tensorflow as tf

    from de_core.base.ops import library as ops
    from de_core.snapshot.table_files import about

    for path in files:
        about(path, verified=True)
    header = last.header()
    info = header.info
    key_dtype = tf.as_dtype(info["key_dtype"])
    live = ops.de_table(
        anonymous=True,
        key_dtype=key_dtype,
        value_dtype=tf.as_dtype(info["reads_as"]),
        dim=info["dim"],
    )
    stored = "" if info["value_dtype"] == info["reads_as"] else info["value_dtype"]
    ops.de_table_restore(live, files, convert=bool(stored))
    before = int(ops.de_table_size(live))
    wanted = tf.constant(keys, key_dtype)
    ops.de_table_erase(live, wanted)
    metadata = [part for pair in header.metadata.items() for part in pair]
    report = ops.de_table_save(
        live,
        str(target),
        values_only=info["values_only"],
        store_as=stored,
        metadata=metadata,
    )
    made = about(str(target), verified=True)
    gone = before - made["rows"]
    return str(info["metadata"].get("table", "")), gone, dict(json.loads(report.numpy()))


def _to_directory(
    source: pathlib.Path,
    ready: pathlib.Path,
    found: Sequence[Source],
    chains: list[list[int]],
    made: dict[int, tuple[pathlib.Path, dict[str, Any]]],
) -> None:
    """Copies a directory with a manifest, or a version of a model, with new snapshot files."""
    from de_core.checkpoint import manifest
    from de_core.snapshot import chain_file

    tops = ("MANIFEST", "saved_model.pb")
    # A folder of checkpoints or versions means the newest of them.
    if not any((source / name).exists() for name in tops):
        source = pathlib.Path(found[0].path).parent
    names = {pathlib.Path(each.path).name for each in found}
    if source.name == "assets" and (source.parent / "saved_model.pb").is_file():
        source = source.parent
    shutil.copytree(source, ready, ignore=lambda _, inside: names.intersection(inside))
    top = pathlib.Path(found[0].path).parent.relative_to(source)
    renamed: dict[str, tuple[str, dict[str, Any]]] = {}
    for chain in chains:
        file, report = made[chain[0]]
        old = pathlib.Path(found[chain[0]].path).name
        file.rename(ready / top / old)
        renamed[old] = (old, report)
    if manifest.exists(str(ready)):
        tables = {
            name: [{**renamed[file["file"]][1], "file": file["file"]} for file in files]
            for name, files in manifest.read(str(ready)).tables.items()
        }
        manifest.write(str(ready), manifest.Manifest(tables))
    links: dict[str, list[chain_file.Link]] = {}
    for chain_path in sorted((ready / top).glob(f"*{chain_file.SUFFIX}")):
        base = chain_file.read(chain_path)[0].name
        links[chain_path.name] = [chain_file.Link(renamed[base][1]["id"], base)]
        chain_file.write(chain_path, links[chain_path.name])
    if links:
        chain_file.write_manifest(ready, links)


def _to_prefix(
    prefix: str,
    target: str,
    chains: list[list[int]],
    paths: Sequence[str],
    made: dict[int, tuple[pathlib.Path, dict[str, Any]]],
) -> None:
    """Copies a checkpoint of TensorFlow with references to new snapshot files."""
    import tensorflow as tf

    from de_core.checkpoint import reference

    reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    tensors = {key: reader.get_tensor(key) for key in sorted(reader.get_variable_to_shape_map())}
    names = reference.file_names(target, len(chains))
    first_of = {paths[chain[0]]: chain[0] for chain in chains}
    new = dict(zip(first_of.values(), names, strict=True))
    for key, files in reference.read(prefix).items():
        firsts = [first_of[file] for file in files if file in first_of]
        links = [(pathlib.Path(new[each]).name, made[each][1]["id"]) for each in firsts]
        tensors[key] = tf.constant(links)
    inside = [key for key in tensors if key.endswith(reference.KEY) and tensors[key].ndim == 1]
    if inside:
        raise CommandError(
            f"The checkpoint's rows must lie beside it. Received: rows inside of {inside}. "
            "Restore it, then save it with tf.train.Checkpoint.write(prefix)."
        )
    with _removed_on_error(target):
        for first, name in new.items():
            made[first][0].rename(name)
        values = list(map(tf.convert_to_tensor, tensors.values()))
        tf.raw_ops.SaveV2(
            prefix=target,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=values,
        )
        reference.read(target)


@contextlib.contextmanager
def _removed_on_error(prefix: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path = pathlib.Path(prefix)
        for each in path.parent.glob(f"{path.name}.*"):
            each.unlink()
        raise
