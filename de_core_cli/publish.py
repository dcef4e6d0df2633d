"""The verb `publish`: publishes models of other processes as versions that differ by deltas."""

from __future__ import annotations

import argparse
import json
import pathlib
import tempfile
import time
import zipfile
from typing import Any

from de_core_cli import library, terminal
from de_core_cli.library import CommandError

_ABOUT = """\
A server watches ROOT and serves its newest numbered directory. A published version contains the
graph, the dense weights and, for each table, a base and its deltas. Versions share these files by
hard links, so a version only costs the disk space of its changes. Each version is complete in
itself: you can delete or copy any of them by hand.

A trainer publishes from Python, and writes only what changed since its last publish:
    de.publish(model, "models/ranker")
This verb does the same for a model that another process saved. It compares the model with the
newest version and publishes the difference.
"""


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "publish",
        help="publish a model as the next version; list and prune versions",
        description=_ABOUT,
        **terminal.examples(
            ("Publish last night's export:", "publish add exports/ranker/31 models/ranker"),
            ("Publish a Keras model file:", "publish add ranker.keras models/ranker"),
            (
                "Replace all files, so that no older one is needed:",
                "publish add exports/ranker models/ranker --full",
            ),
            ("The versions, their ages and sizes:", "publish list models/ranker"),
            (
                "Delete all versions but the two newest:",
                "publish prune models/ranker --keep 2",
            ),
        ),
    )
    actions = verb.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("add", help="publish a model as the next version")
    new.add_argument(
        "source",
        type=pathlib.Path,
        help="a version that de.export wrote, a folder of them for the newest, or a .keras file",
    )
    new.add_argument("--full", action="store_true", help="force a full version")
    new.add_argument(
        "--full-every", type=int, default=20, metavar="N", help="full after N versions (20)"
    )
    new.add_argument(
        "--full-part",
        type=float,
        default=0.5,
        metavar="PART",
        help="full once deltas exceed this fraction of the base's bytes (0.5)",
    )
    listed = actions.add_parser("list", help="list the published versions")
    prune = actions.add_parser("prune", help="delete the oldest published versions")
    for action, run in ((new, _add), (listed, _list), (prune, _prune)):
        action.add_argument("root", help="directory of the published versions")
        terminal.add_json(action)
        action.set_defaults(run=run)
    for action in (new, prune):
        action.add_argument(
            "--keep", type=int, default=3, metavar="N", help="versions that stay, 2 at least (3)"
        )


def _root(options: argparse.Namespace) -> pathlib.Path:
    if getattr(options, "keep", 2) < 2:
        raise CommandError(
            "`--keep` must be at least 2, so that a server can finish its requests to the "
            f"previous version. Received: --keep {options.keep}."
        )
    library.load()
    from de_core.exports import version

    return version.local(options.root, "root")


def _add(options: argparse.Namespace) -> None:
    root = _root(options)
    if not options.source.exists():
        raise CommandError(f"The model must exist. Received: {str(options.source)!r}.")
    import de_core as de
    from de_core.base.keras import keras
    from de_core.exports.publish import from_export

    with tempfile.TemporaryDirectory(prefix="de_core_publish_") as folder:
        source = options.source
        if zipfile.is_zipfile(source):
            model = keras.saving.load_model(source, compile=False)
            source = pathlib.Path(de.export(model, folder))
        elif not (source / "saved_model.pb").is_file():
            versions = [each for each in source.glob("*/") if each.name.isdecimal()]
            source = max(versions, key=lambda each: int(each.name), default=source)
        made = from_export.add(
            source, root, options.full_every, options.full_part, options.full, options.keep
        )
    report = made.report
    if options.json:
        terminal.print_json({"version": str(made), **report})
        return
    print(f"published {made}, {report['kind']}")
    columns = ("table", "rows written", "removed", "bytes")
    rows = [(n, t["rows"], t["tombstones"], t["bytes"]) for n, t in report["tables"].items()]
    terminal.print_table(columns, rows)


def _list(options: argparse.Namespace) -> None:
    root = _root(options)
    from de_core.exports import version
    from de_core.exports.publish import versions
    from de_core.snapshot.table_files import about

    found = versions.all_in(root)
    if not found:
        raise CommandError(f"The root must contain a published version. Received: {str(root)!r}.")
    rows = []
    for each in found:
        sizes = [file.stat() for file in each.path.rglob("*") if file.is_file()]
        total = sum(size.st_size for size in sizes)
        own = sum(size.st_size for size in sizes if size.st_nlink == 1)  # in no other version
        deltas = max(map(len, each.chains.values())) - 1
        report = version.read_report(each.path)
        created = max(
            about(str(each.path / "assets" / links[-1].name))["created_micros"]
            for links in each.chains.values()
        )
        age = time.time() - created / 1e6
        kind = report.get("kind", "?")
        rows.append((each.number, kind, deltas, total, own, _age(age)))
        if options.json:
            names = ("version", "kind", "deltas", "bytes", "own_bytes")
            fields = dict(zip(names, rows[-1], strict=False))
            print(json.dumps({**fields, "age_seconds": age, "tables": report.get("tables", {})}))
    if not options.json:
        terminal.print_table(("version", "kind", "deltas", "bytes", "own bytes", "age"), rows)


def _prune(options: argparse.Namespace) -> None:
    root = _root(options)
    from de_core.exports.publish import versions

    if not root.is_dir():
        raise CommandError(f"The root must be a directory. Received: {str(root)!r}.")
    with versions.alone_in(root):
        gone = versions.prune(root, options.keep)
    if options.json:
        terminal.print_json({"deleted": gone})
    else:
        print(f"deleted {', '.join(map(str, gone)) or 'nothing'}")


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
