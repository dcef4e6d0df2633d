"""The verb `publish`: publishes models of other processes as versions that differ by deltas."""

from __future__ import annotations

import argparse
import pathlib
import tempfile
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
        help="publish a model as the next version",
        description=_ABOUT,
        **terminal.examples(
            ("Publish last night's export:", "publish add exports/ranker/31 models/ranker"),
            ("Publish a Keras model file:", "publish add ranker.keras models/ranker"),
            (
                "Replace all files, so that no older one is needed:",
                "publish add exports/ranker models/ranker --full",
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
        "--full-every",
        type=terminal.whole(1),
        default=20,
        metavar="N",
        help="full after N versions (20)",
    )
    new.add_argument(
        "--full-part",
        type=float,
        default=0.5,
        metavar="PART",
        help="full once deltas exceed this fraction of the base's bytes (0.5)",
    )
    new.add_argument("root", help="directory of the published versions")
    new.add_argument(
        "--keep",
        type=terminal.whole(2),
        default=3,
        metavar="N",
        help="keep this many versions, at least 2: a server still uses the last but one (3)",
    )
    terminal.add_json(new)
    new.set_defaults(run=run, parser=new)


def run(options: argparse.Namespace) -> None:
    """Publishes the model and prints its tables.

    Raises:
        CommandError: There is no model, or it cannot be loaded.
    """
    if not 0 < options.full_part <= 10:
        options.parser.error(
            f"--full-part must be above 0 and at most 10. Received: {options.full_part}."
        )
    if not options.source.exists():
        raise CommandError(f"The model must exist. Received: {str(options.source)!r}.")
    library.load()
    import de_core as de
    from de_core.base.keras import keras
    from de_core.exports import version
    from de_core.exports.publish import from_export
    from de_core.storage.creator import all_in_memory

    root = version.local(options.root, "root")
    with tempfile.TemporaryDirectory(prefix="de_core_publish_") as folder:
        source = options.source
        if zipfile.is_zipfile(source):
            # The loaded rows must not replace the rows in the storage of the model's tables.
            token = all_in_memory.set(True)
            try:
                model = keras.saving.load_model(source, compile=False)
            except Exception as error:  # of any type, if the file is damaged
                raise CommandError(
                    "The model must be a whole file that Keras can load. Received: "
                    f"{str(source)!r}: {type(error).__name__}: {error}."
                ) from error
            finally:
                all_in_memory.reset(token)
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
