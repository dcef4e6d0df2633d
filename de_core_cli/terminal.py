"""Prints tables, keys and values that a reader can read, and JSON for machines."""

from __future__ import annotations

import argparse
import base64
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_WIDE = 10_000  # width in characters if the output is no terminal, so that no line is wrapped


def add_json(verb: argparse.ArgumentParser) -> None:
    """Adds the flag `--json` to a verb."""
    verb.add_argument("--json", action="store_true", help="print JSON, one object per line")


def examples(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Returns the arguments of a subparser whose help ends with examples."""
    lines = [f"  {text}\n    de-core {command}" for text, command in pairs]
    return {
        "epilog": "examples:\n" + "\n".join(lines),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def whole(least: int, most: int = 2**62) -> Callable[[str], int]:
    """Returns the type of an argument that must be a whole number, such as 1000 or 1e3."""

    def parsed(text: str) -> int:
        try:
            number = int(text) if text.isdecimal() else float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most or number != int(number):
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {least} to {most}. Received: {text}."
            )
        return int(number)

    return parsed


def shown(value: Any) -> str:
    """Returns a value as text. Characters that a terminal would obey are escaped, as in Python."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(value))


def json_line(value: Any) -> str:
    """Returns a value as one line of JSON. Bytes are written as the gateway's JSON has them."""
    return json.dumps(value, default=_json_value) + "\n"


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return str(value)


def print_json(value: Any) -> None:
    """Prints a value as one line of JSON."""
    print(json_line(value), end="")


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], as_json: bool) -> None:
    """Prints rows as a table, or each as one line of JSON."""
    if not as_json:
        print_table(columns, rows)
        return
    for row in rows:
        print_json(dict(zip(columns, row, strict=True)))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints a table. Numbers are aligned right, with separators of thousands.

    None is printed as an empty cell, and the elements of a list are separated by commas.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number, name in enumerate(columns):
        numeric = all(isinstance(row[number], int) for row in rows)
        justify: Any = "right" if rows and numeric else "left"
        table.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE)
    with console.capture() as captured:  # rich would exit with 1 when `head` closes the pipe
        console.print(table)
    print(captured.get(), end="")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return shown(", ".join(value))
    return f"{value:,}" if isinstance(value, int) else shown("" if value is None else value)


def plain(value: Any) -> Any:
    """Returns a key or an element as a value for `json_line`.

    Bytes that are UTF-8 become text. NaN and infinities, which JSON lacks, become text too.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if value.dtype.kind in "biu":
        return value.item()
    number = float(value)
    return number if math.isfinite(number) else str(number)


def in_text(value: Any) -> Any:
    """Returns a key or an element as `plain` does, but bytes that are not UTF-8 as JSON text."""
    found = plain(value)
    return json_line(found).rstrip() if isinstance(found, bytes) else found


def short(value: Any) -> str:
    """Returns an element as text, with the 9 digits that identify a float32."""
    return f"{value:.9g}" if isinstance(value, float) else shown(value)


def key_of(text: str, key_dtype: str, name: str) -> Any:
    """Returns the key that an argument names; `key_dtype` is "int64" or "string", never "int32".

    Raises:
        ValueError: The file has integer keys, and the argument is no integer of 64 bits.
    """
    if key_dtype == "string":
        return text.encode("utf-8", "surrogateescape")
    try:
        number = int(text)
    except ValueError:
        number = 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(
            f"Keys of {name!r} must be integers of 64 bits. Received: --key {text!r}. "
            "Choose another table by --table."
        )
    return number
