"""The verb `cat`: prints the rows of files as text, JSON lines, CSV or Parquet."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from de_core_cli import library, sources, terminal
from de_core_cli.library import CommandError
from de_core_cli.row_formats import writer


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "cat",
        help="print the rows of files: text, JSON lines, CSV, Parquet",
        description="Prints the rows of files. A base and its deltas are merged first.",
        **terminal.examples(
            ("The rows of two keys, with their slots:", "cat users.de --key 7 --key 12 --slots"),
            ("All rows, one JSON object per line:", "cat model.keras --json > users.jsonl"),
            ("For a spreadsheet:", "cat run/ckpt-12 --table users --format csv --output users.csv"),
            ("For pandas:", "cat users.de --format parquet --output users.parquet"),
        ),
    )
    verb.add_argument("paths", nargs="+", metavar="PATH", help="a file, a checkpoint or a version")
    verb.add_argument("--table", metavar="NAME", help="print this table only")
    verb.add_argument("--key", action="append", metavar="KEY", help="this key only; repeatable")
    verb.add_argument("--limit", type=int, metavar="N", help="stop after N rows")
    verb.add_argument("--slots", action="store_true", help="print optimizer slots too")
    verb.add_argument("--output", metavar="FILE", help="write this file instead of printing")
    form = verb.add_mutually_exclusive_group()
    form.add_argument("--format", choices=("text", "csv", "parquet"), help="default: text")
    form.add_argument(
        "--json", action="store_const", dest="format", const="json", help="print an object per line"
    )
    verb.set_defaults(run=run, parser=verb, format="text")


def run(options: argparse.Namespace) -> None:
    """Prints the rows.

    Raises:
        CommandError: A wanted key has no row.
    """
    if options.limit is not None and options.limit < 0:
        options.parser.error(f"--limit must be 0 or more. Received: {options.limit}.")
    if options.format == "parquet" and options.output is None:
        options.parser.error("--format parquet writes a file. Add --output FILE.")
    absent = dict.fromkeys(options.key or [])
    found = sources.chosen(options.paths, options.table)
    library.load()
    from de_core.snapshot.file import SnapshotFile

    with sources.whole(found) as files, writer(options.format, options.output) as write:
        left = options.limit
        for name, path in files:
            file = SnapshotFile(path)
            for rows in _wanted(file, name, absent, options):
                taken = rows.take(slice(0, left))
                write(file, taken, options.slots)
                left = None if left is None else left - len(taken)
                if left == 0:
                    return
        missing = [key for key, seen in absent.items() if not seen]
        if missing:
            raise CommandError(
                f"Each key must have a row. Received: no row of {' '.join(missing)}."
            )


def _wanted(
    file: Any, name: str, absent: dict[str, Any], options: argparse.Namespace
) -> Iterator[Any]:
    """Yields the rows of a file that the options choose. Marks the keys it finds in `absent`."""
    import numpy as np

    from de_core.base.progress import Progress

    texts = {terminal.key_of(key, file.info["key_dtype"], name): key for key in absent}
    # Show no progress bar if rows are printed on the same terminal.
    shown = options.output is not None or not sys.stdout.isatty()
    bar: Any = Progress(file.rows, "cat") if shown else contextlib.nullcontext()
    with bar:
        for rows in file.batches():
            if not absent:
                yield rows
            else:
                mask = np.array([key in texts for key in rows.keys.tolist()], bool)
                for key in rows.keys[mask].tolist():
                    absent[texts[key]] = True
                if mask.any():
                    yield rows.take(mask)
            if shown:
                bar.add(len(rows))
