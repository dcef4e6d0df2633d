"""The command `python -m de_core.checkpoint`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.error_text import error_text
from de_core.base.progress import Progress
from de_core.checkpoint.sources import tables_in
from de_core.snapshot.difference import compare
from de_core.snapshot.file import Rows, SnapshotFile
from de_core.snapshot.table_files import about

_EPILOG = """\
A snapshot file holds a table, or its changes since its parent file (a delta): keys, rows of
values, optimizer slots, and a checksum for every block. FILE may also be a checkpoint: a directory
that de.checkpoint.save wrote, the prefix of a tf.train.Checkpoint, or an exported version. Then the
command reads all files of the checkpoint.

examples:
  What is in a checkpoint, and is it whole?
    python -m de_core.checkpoint inspect training/ckpt-12
    python -m de_core.checkpoint verify training/ckpt-12
  The rows of two keys, with their optimizer slots:
    python -m de_core.checkpoint cat users.de --key 7 --key 12 --slots
  All rows of a table for another program, one JSON object per line:
    python -m de_core.checkpoint cat users.de --json > users.jsonl
  Which keys changed between two saves?
    python -m de_core.checkpoint diff monday.de tuesday.de

exit status: 0 no problem; 1 a file is damaged, or two files differ; 2 a file cannot be read at all.
"""


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m de_core.checkpoint",
        description="Describes, prints, checks and compares snapshot files of tables.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = result.add_subparsers(dest="command", required=True, metavar="COMMAND")
    inspect = commands.add_parser("inspect", help="describe files, reading only their headers")
    verify = commands.add_parser("verify", help="check every byte of files")
    for command in (inspect, verify):
        command.add_argument("files", nargs="+", metavar="FILE", help="a file or a checkpoint")
    inspect.add_argument("--json", action="store_true", help="print one JSON object per file")
    cat = commands.add_parser("cat", help="print the rows of files")
    cat.add_argument("files", nargs="+", metavar="FILE", help="a file or a checkpoint")
    cat.add_argument("--limit", type=int, metavar="N", help="stop after N rows")
    cat.add_argument(
        "--key", action="append", metavar="KEY", help="print this key only; repeatable"
    )
    cat.add_argument("--slots", action="store_true", help="print optimizer slots too")
    cat.add_argument("--json", action="store_true", help="print one JSON object per row")
    diff = commands.add_parser("diff", help="list the keys that differ between two files")
    diff.add_argument("files", nargs=2, metavar="FILE", help="a file, or a checkpoint of one file")
    diff.add_argument(
        "--limit", type=int, default=20, metavar="N", help="list at most N keys of each kind (20)"
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status.

    Args:
        arguments: Command line arguments; None for this process's arguments.
    """
    options = parser().parse_args(arguments)
    run = {"inspect": _inspect, "verify": _verify, "cat": _cat, "diff": _diff}[options.command]
    try:
        return run(options)
    except BrokenPipeError:
        return 0
    except (tf.errors.OpError, ValueError) as error:
        print(f"error: {error_text(error)}", file=sys.stderr)
        return 2


def _inspect(options: argparse.Namespace) -> int:
    for path in _files(options.files):
        info = about(path)
        print(json.dumps({"file": path, **info}) if options.json else _described(path, info))
    return 0


def _described(path: str, info: dict[str, Any]) -> str:
    stored = "" if info["reads_as"] == info["value_dtype"] else f" stored as {info['value_dtype']}"
    lines = [
        path,
        f"  {info['kind']} of table {info['metadata'].get('table', '?')!r}, "
        f"shard {info['metadata'].get('shard', '?')}",
        f"  {info['key_dtype']} -> {info['reads_as']}[{info['dim']}]{stored}",
        f"  {info['rows']:,} rows, {info['tombstones']:,} tombstones, "
        f"{info['sections']:,} sections, {info['bytes']:,} bytes",
        f"  id {info['id']}, sequence {info['sequence']}"
        + (f", parent {info['parent']}" if info["kind"] == "delta" else ""),
        f"  keys without a row: {info['initializer']}",
    ]
    slots = "left out" if info["values_only"] else "none"
    names = [f"{s['owner']}/{s['name']} {s['dtype']}[{s['width']}]" for s in info["slots"]]
    lines.append(f"  optimizer slots: {', '.join(names) or slots}")
    rest = {k: v for k, v in info["metadata"].items() if k not in ("table", "shard")}
    return "\n".join([*lines, f"  metadata: {rest}"])


def _verify(options: argparse.Namespace) -> int:
    files = list(_files(options.files))
    damaged = 0
    with Progress(len(files), "verify") as progress:
        for path in files:
            try:
                info = about(path, verified=True)
                print(f"whole: {path}: {info['rows']:,} rows, {info['bytes']:,} bytes")
            except tf.errors.OpError as error:
                damaged += 1
                print(f"damaged: {path}: {error_text(error)}")
            progress.add(1)
    return 1 if damaged else 0


def _cat(options: argparse.Namespace) -> int:
    left = options.limit
    absent = set(options.key or [])
    for path in _files(options.files):
        file = SnapshotFile(path)
        for rows in _wanted(file, options.key):
            for index in range(len(rows)):
                if left is not None and left <= 0:
                    return 0
                print(_row(file, rows, index, options))
                absent = {key for key in absent if not _names(key, rows.keys[index])}
                left = None if left is None else left - 1
    if absent:
        print(f"no row: {' '.join(sorted(absent))}", file=sys.stderr)
    return 0


def _wanted(file: SnapshotFile, keys: list[str] | None) -> Iterator[Rows]:
    wanted: set[Any] | None = None
    if keys is not None:
        strings = file.info["key_dtype"] == "string"
        wanted = {key.encode() if strings else _number(key, file.path) for key in keys}
    quiet = sys.stdout.isatty()  # a progress bar would mix with the printed rows
    with Progress(file.rows, "cat", sys.stdout if quiet and wanted else None) as progress:
        for rows in file.batches():
            if wanted is not None:
                yield rows.take(np.array([key in wanted for key in rows.keys.tolist()], bool))
            else:
                yield rows
            progress.add(len(rows))


def _number(key: str, path: str) -> int:
    try:
        return int(key)
    except ValueError:
        raise ValueError(f"Keys of {path!r} must be integers. Received: --key {key!r}.") from None


def _names(text: str, key: Any) -> bool:
    return bool(text.encode() == key if isinstance(key, bytes) else int(text) == key)


def _row(file: SnapshotFile, rows: Rows, index: int, options: argparse.Namespace) -> str:
    key = _plain(rows.keys[index])
    row: dict[str, Any] = {"key": key}
    if rows.deleted[index]:
        row["deleted"] = True
    else:
        row["value"] = [_plain(each) for each in rows.values[index]]
        if options.slots:
            slots = file.slots_of(rows.slots[index])
            row["slots"] = {k: [_plain(each) for each in v] for k, v in slots.items()}
    if options.json:
        return json.dumps(row)
    cells = [str(key), "deleted" if "deleted" in row else " ".join(map(_short, row["value"]))]
    cells += [f"{k}={' '.join(map(_short, v))}" for k, v in row.get("slots", {}).items()]
    return "\t".join(cells)


def _diff(options: argparse.Namespace) -> int:
    first, second = (SnapshotFile(_one_file(path)) for path in options.files)
    counts = dict.fromkeys(("removed", "added", "changed"), 0)
    named: dict[str, list[str]] = {kind: [] for kind in counts}
    same = 0
    with Progress(first.rows + second.rows, "diff") as progress:
        for part in compare(first, second, progress.add):
            same += part.same
            for kind, keys in named.items():
                found = getattr(part, kind)
                counts[kind] += len(found)
                room = max(options.limit - len(keys), 0)
                keys.extend(str(_plain(key)) for key in found[:room])
    for kind, keys in named.items():
        more = f" and {counts[kind] - len(keys):,} more" if counts[kind] > len(keys) else ""
        print(f"{kind}: {counts[kind]:,}" + (f": {' '.join(keys)}{more}" if keys else more))
    print(f"same: {same:,}")
    if first.info["slots"] != second.info["slots"]:
        print("optimizer slots: not compared, because the files have different slots")
    return 1 if any(counts.values()) else 0


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if tf.io.gfile.exists(path) and not tf.io.gfile.isdir(path):
            yield path
        else:
            for files in tables_in(path).values():
                yield from files


def _one_file(path: str) -> str:
    files = list(_files([path]))
    if len(files) != 1:
        raise ValueError(
            f"diff compares single files. Received: {path!r} with {files}. Name one of the files."
        )
    return files[0]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return repr(value)
    if isinstance(value, np.bool_):
        return bool(value)
    return int(value) if isinstance(value, np.integer) else float(value)


def _short(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
