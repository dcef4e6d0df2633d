"""The verb `rm-key`: copies files without the rows of some keys."""

from __future__ import annotations

import argparse
import pathlib
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any

from de_core_cli import keras_file, sources, terminal
from de_core_cli.library import CommandError
from de_core_cli.sources import Source

#: The first bytes of every snapshot file.
_MAGIC = b"\x89DES\r\n\x1a\n"


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


def run(options: argparse.Namespace) -> None:
    """Writes the target and prints the number of removed rows.

    Raises:
        CommandError: No table has any of the keys, or a file cannot be copied.
        tf.errors.OpError: A file is damaged, or the disk is full.
    """
    texts = list(options.key)
    if options.keys_from is not None:
        lines = pathlib.Path(options.keys_from).read_bytes().splitlines()
        texts += [line.decode("utf-8", "surrogateescape") for line in lines if line]
    if not texts:
        options.parser.error("Name the keys: --key KEY or --keys-from FILE.")
    if "://" in options.source or "://" in options.target:
        raise CommandError("rm-key works on local files. Copy the checkpoint to a local disk.")
    source, target = pathlib.Path(options.source), pathlib.Path(options.target)
    for path in (options.target, f"{options.target}.index"):
        if pathlib.Path(path).exists():
            raise CommandError(f"The target must not exist yet. Received: {path!r}.")
    with sources.opened([options.source]) as found:
        if source.is_dir() and not pathlib.Path(f"{source}.index").exists():
            source = _copied(source, found)
            if source.resolve() in target.resolve().parents:
                raise CommandError(
                    f"The target must lie outside of the source, {str(source)!r}. Received: "
                    f"{options.target!r}."
                )
        wanted = sources.of_table(found, options.table)
        chains = sources.chains(found)
        keys = {}  # by the base; a text that is no key is an error before any work
        for base, *_ in chains:
            own = texts if base in wanted else []
            keys[base] = [terminal.key_of(each, base.info["key_dtype"], base.name) for each in own]
        parent = target.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        totals: dict[str, tuple[int, int]] = {}  # by table, the rows that are removed and left
        with tempfile.TemporaryDirectory(prefix=".rm-key-", dir=parent) as work:
            made: dict[Source, tuple[pathlib.Path, dict[str, Any]]] = {}  # by the base
            for base, *deltas in chains:
                if base.info["kind"] != "base":
                    raise CommandError(
                        f"A delta alone cannot be copied. Received: {base.path!r}. Name its "
                        "checkpoint."
                    )
                file = pathlib.Path(work) / f"{len(made)}.de"
                gone, report = sources.without([base, *deltas], keys[base], file)
                made[base] = (file, report)
                before = totals.get(base.table, (0, 0))
                totals[base.table] = (before[0] + gone, before[1] + report["rows"])
            if not any(gone for gone, _ in totals.values()):
                raise CommandError(
                    "A table must have one of the keys. Received: no row of any key."
                )
            ready = pathlib.Path(work) / "ready"
            if pathlib.Path(f"{source}.index").exists():
                new = {base.path: each for base, each in made.items()}
                _to_prefix(options.source, options.target, new)
            elif source.is_dir():
                _to_directory(source, ready, made)
                ready.rename(target)
            elif found[0].inside:
                inside = {base.inside: file for base, (file, _) in made.items()}
                keras_file.rewrite(options.source, ready, inside)
                from de_core.base.paths import sync
                from de_core.snapshot.file import verify

                with sources.opened([str(ready)]) as copied:
                    verify([each.path for each in copied])
                sync(str(ready))
                ready.rename(target)
            else:
                made[found[0]][0].rename(target)
    rows = [(name, *numbers) for name, numbers in totals.items()]
    terminal.print_rows(("table", "removed", "rows"), rows, options.json)


def _copied(source: pathlib.Path, found: Sequence[Source]) -> pathlib.Path:
    """Returns the directory to copy: the source, or its newest checkpoint or version."""
    from de_core.checkpoint.sources import latest

    if not any((source / name).exists() for name in ("MANIFEST", "saved_model.pb")):
        newest = latest(source)
        if newest is not None and pathlib.Path(f"{newest}.index").exists():
            raise CommandError(
                f"The source must be one checkpoint. Received: {str(source)!r}, a directory of "
                f"checkpoints. Name a prefix, for example the newest: {newest!r}."
            )
        source = pathlib.Path(found[0].path).parent
    if source.name == "assets" and (source.parent / "saved_model.pb").is_file():
        source = source.parent
    return source


def _to_directory(
    source: pathlib.Path,
    ready: pathlib.Path,
    made: dict[Source, tuple[pathlib.Path, dict[str, Any]]],
) -> None:
    """Copies a directory with a manifest, or a version of a model, with new snapshot files."""
    from de_core.checkpoint import manifest
    from de_core.snapshot import chain_file

    def snapshots(folder: str, inside: list[str]) -> list[str]:
        # No snapshot file is copied: files that a killed save left may hold the keys too.
        found = []
        for path in filter(pathlib.Path.is_file, (pathlib.Path(folder, name) for name in inside)):
            with path.open("rb") as file:
                if file.read(len(_MAGIC)) == _MAGIC:
                    found.append(path.name)
        return found

    shutil.copytree(source, ready, ignore=snapshots)
    top = ready / pathlib.Path(next(iter(made)).path).parent.relative_to(source)
    reports = {}
    for base, (file, report) in made.items():
        name = pathlib.Path(base.path).name
        file.rename(top / name)
        reports[name] = report
    if manifest.exists(str(ready)):
        tables = {
            name: [{**reports[file["file"]], "file": file["file"]} for file in files]
            for name, files in manifest.read(str(ready)).items()
        }
        manifest.write(str(ready), tables)
    links: dict[str, list[chain_file.Link]] = {}
    for path in sorted(top.glob(f"*{chain_file.SUFFIX}")):
        name = chain_file.read(path)[0].name
        links[path.name] = [chain_file.Link(reports[name]["id"], name)]
        chain_file.write(path, links[path.name])
    if links:
        chain_file.write_manifest(ready, links)


def _to_prefix(
    prefix: str, target: str, made: dict[str, tuple[pathlib.Path, dict[str, Any]]]
) -> None:
    """Copies a checkpoint of TensorFlow with references to new snapshot files.

    Args:
        prefix: The checkpoint's prefix.
        target: The prefix of the copy.
        made: The new file and its report, by the path of the base that it replaces.
    """
    import tensorflow as tf

    from de_core.checkpoint import reference

    reader = tf.compat.v1.train.NewCheckpointReader(prefix)
    tensors = {key: reader.get_tensor(key) for key in sorted(reader.get_variable_to_shape_map())}
    inside = [key for key in tensors if key.endswith(reference.KEY) and tensors[key].ndim == 1]
    if inside:
        raise CommandError(
            f"The checkpoint's rows must lie beside it. Received: rows inside of {inside}. "
            "Restore it, then save it with tf.train.Checkpoint.write(prefix)."
        )
    new = dict(zip(made, reference.file_names(target, len(made)), strict=True))
    for key, files in reference.read(prefix).items():
        bases = [file for file in files if file in made]
        tensors[key] = tf.constant([(pathlib.Path(new[b]).name, made[b][1]["id"]) for b in bases])
    place = pathlib.Path(target).absolute()
    with tempfile.TemporaryDirectory(prefix=".rm-key-", dir=place.parent) as work:
        ready = pathlib.Path(work)
        for base, (file, _) in made.items():
            file.rename(ready / pathlib.Path(new[base]).name)
        tf.raw_ops.SaveV2(
            prefix=str(ready / place.name),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(map(tf.convert_to_tensor, tensors.values())),
        )
        reference.read(str(ready / place.name))
        # The index last: without it there is no checkpoint.
        for each in sorted(ready.iterdir()):
            each.rename(place.parent / each.name)
