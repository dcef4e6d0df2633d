"""The command `python -m de_core.exports.publish`."""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence

import tensorflow as tf

from de_core.base.error_text import error_text
from de_core.exports import version
from de_core.exports.publish import from_export, versions
from de_core.exports.publish.publication import Schedule
from de_core.snapshot.table_files import about

_EPILOG = """\
A server watches ROOT and serves its newest numbered directory. A published version contains the
graph, the dense weights and, for each table, a base and its deltas. Versions share these files by
hard links, so a version only costs the disk space of its changes. Each version is complete in
itself: you can delete or copy any of them by hand.

A trainer publishes from Python, and writes only what changed since its last publish:
    de.publish(model, "models/ranker")
This command does the same for a model that another process exported. It compares the export with
the newest version and publishes the difference.

examples:
  Publish last night's export, as a delta if a version exists already:
    python -m de_core.exports.publish add exports/ranker/31 models/ranker
  List the published versions, their ages and their sizes:
    python -m de_core.exports.publish list models/ranker
  Delete all published versions but the two newest:
    python -m de_core.exports.publish prune models/ranker --keep 2
  Inspect the tables of a version:
    python -m de_core.checkpoint inspect models/ranker/7

exit status: 0 on success; 2 on failure, after printing the reason.
"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m de_core.exports.publish",
        description="Publishes exported models as versions that differ by deltas.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser("add", help="publish an exported version as the next one")
    add.add_argument("export", type=pathlib.Path, help="a version directory that de.export wrote")
    add.add_argument("--full", action="store_true", help="force a full version")
    add.add_argument(
        "--full-every",
        type=int,
        default=20,
        metavar="N",
        help="write a full version after N versions (default 20)",
    )
    add.add_argument(
        "--full-part",
        type=float,
        default=0.5,
        metavar="PART",
        help="write a full version once deltas exceed this fraction of the bases' bytes "
        "(default 0.5)",
    )
    listed = commands.add_parser("list", help="list the published versions")
    prune = commands.add_parser("prune", help="delete the oldest published versions")
    for command in (add, listed, prune):
        command.add_argument("root", type=_folder, help="directory of the published versions")
    for command in (add, prune):
        command.add_argument(
            "--keep",
            type=int,
            default=3,
            metavar="N",
            help="number of versions to keep, at least 2 (default 3)",
        )
    return result


def _folder(text: str) -> pathlib.Path:
    try:
        return version.local(text, "root")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    Args:
        arguments: Command line arguments; None for this process's arguments.
    """
    options = parser().parse_args(arguments)
    try:
        {"add": _add, "list": _list, "prune": _prune}[options.command](options)
    except (tf.errors.OpError, ValueError, OSError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return 2
    return 0


def _add(options: argparse.Namespace) -> None:
    _check_keep(options.keep)
    made = from_export.add(
        options.export,
        options.root,
        Schedule(options.full_every, options.full_part),
        full=options.full,
        keep_versions=options.keep,
    )
    print(f"published {made}, {made.report['kind']}")
    for name, table in made.report["tables"].items():
        print(
            f"  {name}: {table['rows']:,} rows, {table['tombstones']:,} removed, "
            f"{table['bytes']:,} bytes written"
        )


def _list(options: argparse.Namespace) -> None:
    found = versions.all_in(options.root)
    if not found:
        raise ValueError(f"ROOT must contain a published version. Received: {str(options.root)!r}.")
    for each in found:
        total, own = each.bytes()
        report = version.read_report(each.path)
        created = max(
            about(str(each.path / "assets" / links[-1].name))["created_micros"]
            for links in each.chains.values()
        )
        print(
            f"{each.number}: {report.get('kind', '?')}, {each.deltas} deltas on a base, "
            f"{total:,} bytes ({own:,} in no other version), "
            f"{_age(time.time() - created / 1e6)} old"
        )
        for name, table in report.get("tables", {}).items():
            print(f"  {name}: wrote {table['rows']:,} rows, {table['tombstones']:,} removed")


def _prune(options: argparse.Namespace) -> None:
    _check_keep(options.keep)
    with versions.alone_in(options.root):
        gone = versions.prune(options.root, options.keep)
    print(f"deleted {', '.join(map(str, gone)) or 'nothing'}")


def _check_keep(keep: int) -> None:
    if keep < 2:
        raise ValueError(
            "`--keep` must be at least 2, so that a server can finish its requests to the "
            f"previous version. Received: --keep {keep}."
        )


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"


if __name__ == "__main__":
    sys.exit(main())
