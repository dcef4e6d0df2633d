"""The verb `rm-key`: copies files without the rows of some keys."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from de_core_cli import removal, sources, terminal, values
from de_core_cli.errors import CommandError


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "rm-key",
        help="copy a file, a checkpoint or a version without some keys",
        description="Copies SOURCE to TARGET without the rows of some keys: values, optimizer "
        "slots and tombstones. TARGET appears when every byte of it is checked; SOURCE stays as it "
        "is. A base and its deltas become one base. Needs memory for one shard of a table.",
        **terminal.examples(
            ("Remove two users from a checkpoint:", "rm-key run/ckpt-9 clean/ckpt-9 --key 7"),
            ("From one table of a model file:", "rm-key a.keras b.keras --table users --key 7"),
            (
                "Remove many keys, one per line of a file, as the next version of a model:",
                "rm-key models/ranker/31 models/ranker/32 --keys-from erased.txt",
            ),
        ),
    )
    verb.add_argument("source", help="a file, a checkpoint or a version")
    verb.add_argument("target", help="the new file, directory or prefix; it must not exist")
    verb.add_argument("--key", action="append", default=[], metavar="KEY", help="repeatable")
    verb.add_argument("--keys-from", metavar="FILE", help="a file with one key per line")
    verb.add_argument("--table", metavar="NAME", help="remove from this table only")
    terminal.add_json(verb)
    verb.set_defaults(run=run, parser=verb)


def run(options: argparse.Namespace) -> int:
    """Writes the target. Returns 1, without a target, if no file has any of the keys."""
    texts = list(options.key)
    if options.keys_from is not None:
        lines = pathlib.Path(options.keys_from).read_bytes().splitlines()
        texts += [line.decode("utf-8", "surrogateescape") for line in lines if line]
    if not texts:
        options.parser.error("Name the keys: --key KEY or --keys-from FILE.")
    if "://" in options.source or "://" in options.target:
        raise CommandError("rm-key works on local files. Copy the checkpoint to a local disk.")
    for path in (options.target, f"{options.target}.index"):
        if pathlib.Path(path).exists():
            raise CommandError(f"The target must not exist yet. Received: {path!r}.")
    found = sources.find(options.source, checked=True)
    wanted = [options.table is None or _table(each) == options.table for each in found]
    if not any(wanted):
        raise CommandError(
            f"The source must hold the table. Received: --table {options.table!r}. It holds: "
            f"{', '.join(sorted(set(map(_table, found))))}."
        )
    keys = [
        [values.key_of(text, each.header().info["key_dtype"], each.name) for text in texts]
        if is_wanted
        else []
        for each, is_wanted in zip(found, wanted, strict=True)
    ]
    removed = removal.copy(options.source, options.target, found, keys)
    rows = [(name, gone, left) for name, (gone, left) in removed.items()]
    if options.json:
        for name, gone, left in rows:
            terminal.print_json({"table": name, "removed": gone, "rows": left})
    else:
        terminal.print_table(("table", "removed", "rows left"), rows)
    return 0


def _table(source: sources.Source) -> str:
    return str(source.header().info["metadata"].get("table", ""))
