"""The verb `verify`: checks every byte of files."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from de_core_cli import library, sources, terminal


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "verify",
        help="check every byte of files",
        description="Checks every byte of files, and that a checkpoint's files belong together. "
        "Exits with 1 if a file is damaged.",
        **terminal.examples(
            ("Is a checkpoint whole?", "verify training/ckpt-12"),
            ("Only the damaged files, for a program:", "verify models/ranker/7 --json"),
        ),
    )
    verb.add_argument("paths", nargs="+", metavar="PATH", help="a file, a checkpoint or a version")
    terminal.add_json(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints for each file whether it is undamaged. Returns 1 if any file is damaged."""
    library.load()
    import tensorflow as tf

    from de_core.base.paths import folder_of, join
    from de_core.base.progress import Progress
    from de_core.exports.version import saved_model
    from de_core.snapshot.file import about

    damage = (library.CommandError, tf.errors.OpError, OSError, ValueError)
    found: list[sources.Source] = []
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        for path in options.paths:
            try:
                found += (new := stack.enter_context(sources.opened([path])))
                folder = folder_of(folder_of(new[0].path))
                if tf.io.gfile.exists(join(folder, "saved_model.pb")):
                    saved_model(folder)
            except damage as error:  # no file, a damaged one, or files that do not belong together
                results.append({"file": path, "whole": False, "reason": library.line_of(error)})
        progress = stack.enter_context(Progress(len(found), "verify"))
        for source in found:
            result: dict[str, Any] = {"file": source.name}
            try:
                info = about(source.path, verified=True)
                result |= {"whole": True, "rows": info["rows"], "bytes": info["bytes"]}
            except damage as error:
                result |= {"whole": False, "reason": library.line_of(error)}
            results.append(result)
            progress.add(1)
    if options.json:
        for result in results:
            terminal.print_json(result)
    else:
        rows = [
            (each["file"], "whole", f"{each['rows']:,} rows, {each['bytes']:,} bytes")
            if each["whole"]
            else (each["file"], "damaged", each["reason"])
            for each in results
        ]
        terminal.print_table(("file", "state", "detail"), rows)
    return int(not all(result["whole"] for result in results))
