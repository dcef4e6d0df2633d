"""The verb `cat`: prints the rows of files as text, JSON lines, CSV or Parquet."""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from de_core_cli import sources, terminal
from de_core_cli.library import CommandError

#: Called as `write(file, rows, with_slots)` with a `SnapshotFile` and some of its `Rows`.
Write = Callable[[Any, Any, bool], None]


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
    verb.add_argument("--limit", type=terminal.whole(0), metavar="N", help="stop after N rows")
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
    if options.format == "parquet" and options.output is None:
        options.parser.error("--format parquet writes a file. Add --output FILE.")
    absent = dict.fromkeys(options.key or [])
    with (
        sources.whole(options.paths, options.table) as files,
        _writer(options.format, options.output) as write,
    ):
        from de_core.snapshot.file import SnapshotFile

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

    texts: dict[Any, list[str]] = {}  # of each key: `--key 7 --key 07` is one key
    for text in absent:
        texts.setdefault(terminal.key_of(text, file.info["key_dtype"], name), []).append(text)
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
                    absent.update(dict.fromkeys(texts[key], True))
                if mask.any():
                    yield rows.take(mask)
            if shown:
                bar.add(len(rows))


@contextlib.contextmanager
def _writer(form: str, output: str | None) -> Iterator[Write]:
    """Yields a function that writes rows. An output file appears when it is complete."""
    if output is None:
        yield _lines(form, sys.stdout)
        return
    temporary = pathlib.Path(f"{output}.tmp-{os.getpid()}")
    try:
        if form == "parquet":
            with _parquet(temporary) as write:
                yield write
        else:
            with temporary.open("w", encoding="utf-8", newline="") as file:
                yield _lines(form, file)
        if not temporary.exists():
            raise CommandError("A Parquet file needs at least one row. Received: no rows.")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def _lines(form: str, stream: Any) -> Write:
    # All text is quoted: Python before 3.13 leaves a carriage return without quotes.
    table = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    shown = terminal.shown if stream.isatty() else str
    plain = terminal.plain if form == "json" else terminal.in_text
    header: list[str] = []

    def write(file: Any, rows: Any, slots: bool) -> None:
        of_rows = file.slots_of(rows.slots) if slots else {}
        if form == "csv":
            columns = ["key", "deleted"]
            for name, array in {"value": rows.values, **of_rows}.items():
                columns += [f"{name}_{each}" for each in range(array.shape[1])]
            if not header:
                header.extend(columns)
                table.writerow(columns)
            _check_same(header, columns, file)
        for index, key in enumerate(rows.keys):
            row: dict[str, Any] = {"key": plain(key)}
            if rows.deleted[index]:
                row["deleted"] = True
            else:
                row["value"] = list(map(plain, rows.values[index]))
                if slots:
                    found = of_rows.items()
                    row["slots"] = {k: list(map(plain, v[index])) for k, v in found}
            if form == "json":
                stream.write(terminal.json_line(row))
            elif form == "csv":
                cells = [row["key"], int("deleted" in row), *row.get("value", ())]
                cells += [each for slot in row.get("slots", {}).values() for each in slot]
                table.writerow([shown(each) if isinstance(each, str) else each for each in cells])
            else:
                stream.write(_text(row) + "\n")

    return write


def _text(row: dict[str, Any]) -> str:
    if "deleted" in row:
        return f"{terminal.shown(row['key'])}\tdeleted"
    cells = [terminal.shown(row["key"]), " ".join(map(terminal.short, row["value"]))]
    slots = row.get("slots", {}).items()
    return "\t".join([*cells, *(f"{k}={' '.join(map(terminal.short, v))}" for k, v in slots)])


@contextlib.contextmanager
def _parquet(path: pathlib.Path) -> Iterator[Write]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError:
        raise CommandError("Parquet needs pyarrow. Run: pip install pyarrow") from None
    import numpy as np

    with contextlib.ExitStack() as stack:
        made: list[Any] = []

        def lists(array: Any, like: Any) -> Any:
            if array.dtype == object:
                flat = pa.array(array.reshape(-1).tolist(), pa.binary())
            else:
                kept = array.dtype.kind in "biu" or array.dtype in (np.float16, np.float64)
                array = array if kept else array.astype(np.float32)  # bfloat16
                flat = pa.array(np.ascontiguousarray(array).reshape(-1))
            return pa.FixedSizeListArray.from_arrays(flat, like)

        def write(file: Any, rows: Any, slots: bool) -> None:
            keys = pa.array(rows.keys.tolist(), pa.binary()) if rows.keys.dtype == object else None
            columns = {
                "key": pa.array(rows.keys.astype(np.int64)) if keys is None else keys,
                "deleted": pa.array(rows.deleted),
                "value": lists(rows.values, file.info["dim"]),
            }
            if slots:
                for name, array in file.slots_of(rows.slots).items():
                    columns[name] = lists(array, array.shape[1])
            batch = pa.RecordBatch.from_pydict(columns)
            if not made:
                made.append(stack.enter_context(parquet.ParquetWriter(path, batch.schema)))
            _check_same(made[0].schema, batch.schema, file)
            made[0].write_batch(batch)

        yield write


def _check_same(first: Any, other: Any, file: Any) -> None:
    if first != other:
        raise CommandError(
            "One output file must hold tables of the same dtypes, dim and slots. Received: "
            f"another table in {file.path!r}. Choose a table by --table."
        )
