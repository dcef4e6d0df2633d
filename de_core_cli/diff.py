"""The verb `diff`: compares the rows of two files."""

from __future__ import annotations

import argparse
from typing import Any

from de_core_cli import sources, terminal
from de_core_cli.library import CommandError

_KINDS = ("removed", "added", "changed")


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "diff",
        help="list the keys that differ between two files",
        description="Lists the keys that differ between two files. Exits with 1 if they differ.",
        **terminal.examples(
            ("Which keys changed between two saves?", "diff monday.de tuesday.de"),
            ("One table of two checkpoints:", "diff run/ckpt-1 run/ckpt-2 --table users"),
            ("All differing keys, for a program:", "diff a.keras b.keras --limit 1000000 --json"),
        ),
    )
    verb.add_argument("paths", nargs=2, metavar="PATH", help="a file, or a checkpoint of one file")
    verb.add_argument("--table", metavar="NAME", help="compare this table of the checkpoints")
    verb.add_argument(
        "--limit",
        type=terminal.whole(0),
        default=20,
        metavar="N",
        help="list at most N keys of a kind (20)",
    )
    terminal.add_json(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the differences. Returns 1 if there are any."""
    first, second = options.paths
    with (
        sources.whole([first], options.table) as left,
        sources.whole([second], options.table) as right,
    ):
        for path, files in ((first, left), (second, right)):
            if len(files) != 1:
                raise CommandError(
                    f"diff compares single files. Received: {path!r} with "
                    f"{[name for name, _ in files]}. Name one of the files, or pass --table if "
                    "they are of several tables."
                )
        return _compared(left[0][1], right[0][1], options)


def _compared(left: str, right: str, options: argparse.Namespace) -> int:
    from de_core.base.progress import Progress
    from de_core.snapshot.difference import compare
    from de_core.snapshot.file import SnapshotFile

    first, second = SnapshotFile(left), SnapshotFile(right)
    counts = dict.fromkeys(_KINDS, 0)
    keys: dict[str, list[Any]] = {kind: [] for kind in _KINDS}
    same = 0
    with Progress(first.rows + second.rows, "diff") as progress:
        for part in compare(first, second, progress.add):
            same += part.same
            for kind in _KINDS:
                found = getattr(part, kind)
                counts[kind] += len(found)
                room = max(options.limit - len(keys[kind]), 0)
                keys[kind].extend(terminal.plain(key) for key in found[:room])
    slots = first.info["slots"] == second.info["slots"]
    if options.json:
        terminal.print_json({**counts, "same": same, "slots_compared": slots, "keys": keys})
    else:
        rows = []
        for kind in _KINDS:
            more = counts[kind] - len(keys[kind])
            listed = " ".join(map(str, keys[kind])) + (f" and {more:,} more" if more else "")
            rows.append((kind, counts[kind], listed))
        terminal.print_table(("difference", "rows", "keys"), [*rows, ("same", same, "")])
        if not slots:
            print("Optimizer slots were not compared: the files have different slots.")
    return int(any(counts.values()))
