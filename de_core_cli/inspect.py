"""The verb `inspect`: describes files by their headers."""

from __future__ import annotations

import argparse
import datetime
from typing import Any

from de_core_cli import sources, terminal


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "inspect",
        help="describe files by their headers",
        description="Describes files by their headers. Copies those inside Keras files first.",
        **terminal.examples(
            ("One file, with all that its header says:", "inspect users.de"),
            ("All tables of a checkpoint or a model:", "inspect training/ckpt-12 model.keras"),
            ("Rows of each file, for a program:", "inspect models/ranker --json | jq .rows"),
        ),
    )
    verb.add_argument("paths", nargs="+", metavar="PATH", help="a file, a checkpoint or a version")
    terminal.add_json(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints a description of each file."""
    with sources.opened(options.paths) as files:
        found = [(each.name, _shown(each.info)) for each in files]
    if options.json:
        for name, info in found:
            terminal.print_json({"file": name, **info})
    elif len(found) == 1:
        terminal.print_table(("field", "value"), _fields(*found[0]))
    else:
        columns = ("table", "shard", "kind", "keys", "values", "rows", "removed", "bytes", "file")
        terminal.print_table(columns, (_row(*each) for each in found))


def _shown(info: dict[str, Any]) -> dict[str, Any]:
    """Returns a description with the dtype of the Variable's keys."""
    metadata = {**info["metadata"]}
    key_dtype = metadata.pop("keys", info["key_dtype"])
    return {**info, "key_dtype": key_dtype, "metadata": metadata}


def _values(info: dict[str, Any]) -> str:
    stored = info["value_dtype"]
    return f"{info['reads_as']}[{info['dim']}]" + (
        "" if stored == info["reads_as"] else f" stored as {stored}"
    )


def _row(name: str, info: dict[str, Any]) -> tuple[Any, ...]:
    metadata = info["metadata"]
    names = (metadata.get("table", "?"), metadata.get("shard", "?"), info["kind"])
    numbers = (info["rows"], info["tombstones"], info["bytes"])
    return (*names, info["key_dtype"], _values(info), *numbers, name)


def _fields(name: str, info: dict[str, Any]) -> list[tuple[str, Any]]:
    created = datetime.datetime.fromtimestamp(info["created_micros"] / 1e6, datetime.timezone.utc)
    slots = [f"{s['owner']}/{s['name']} {s['dtype']}[{s['width']}]" for s in info["slots"]]
    initializer = {k: v for k, v in info["initializer"].items() if v or k == "kind"}
    metadata = info["metadata"]
    rest = {k: v for k, v in metadata.items() if k not in ("table", "shard")}
    return [
        ("file", name),
        ("table", metadata.get("table", "?")),
        ("shard", metadata.get("shard", "?")),
        ("kind", info["kind"] + (f", parent {info['parent']}" if info["parent"] else "")),
        ("keys", info["key_dtype"]),
        ("values", _values(info)),
        ("rows", f"{info['rows']:,}"),
        ("removed", f"{info['tombstones']:,}"),
        ("bytes", f"{info['bytes']:,}"),
        ("optimizer slots", ", ".join(slots) or ("left out" if info["values_only"] else "none")),
        ("initial row", " ".join(f"{k}={v}" for k, v in initializer.items())),
        ("created", f"{created:%Y-%m-%d %H:%M:%S} UTC"),
        ("id", info["id"]),
        ("sequence", str(info["sequence"])),
        *((key, value) for key, value in rest.items()),
    ]
