"""The verb `import-tfra`: lists tables of tfra, or turns them into a checkpoint of tables."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

from de_core_cli import library, terminal
from de_core_cli.errors import CommandError

_COLUMNS = ("table", "key_dtype", "value_dtype", "dim", "rows", "shards", "slots")


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "import-tfra",
        help="turn tables of tfra.dynamic_embedding into a checkpoint",
        description="Reads tables that tfra.dynamic_embedding saved, and writes their rows as "
        "de.checkpoint.save does. de.warm_start and de.checkpoint.restore read the result. To keep "
        "optimizer slots, call de_core.tfra.import_checkpoint in the program that trains on.",
        **terminal.examples(
            ("What is there?", "import-tfra run/ckpt-9 --dry-run"),
            ("A checkpoint of TensorFlow, or a SavedModel:", "import-tfra run/ckpt-9 tables"),
            (
                "Key-value files, which do not name their dtypes:",
                "import-tfra kv tables --value-dtype float32 --dim 16",
            ),
            ("Some tables:", "import-tfra run/ckpt-9 tables --tables 'user|item'"),
        ),
    )
    verb.add_argument("source", help="a checkpoint's prefix, a SavedModel, or key-value files")
    verb.add_argument("target", nargs="?", help="the new directory")
    verb.add_argument(
        "--dry-run", action="store_true", help="list the tables and their slots; write nothing"
    )
    verb.add_argument(
        "--tables", default=".*", metavar="RE", help="tables whose full names match this regex"
    )
    verb.add_argument("--key-dtype", default="int64", choices=("int64", "int32"))
    verb.add_argument("--value-dtype", metavar="DTYPE", help="dtype of key-value files")
    verb.add_argument("--dim", type=int, metavar="N", help="values per row of key-value files")
    terminal.add_json(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Lists the tables, or imports them and saves them."""
    if options.target is None and not options.dry_run:
        raise CommandError("A target must be given. Received: none. Pass a directory or --dry-run.")
    if options.target is not None and pathlib.Path(options.target).exists():
        raise CommandError(f"The target must not exist yet. Received: {options.target!r}.")
    library.load()
    import de_core as de
    from de_core.tfra import import_checkpoint

    found = import_checkpoint(
        options.source,
        tables=options.tables,
        slots=False,
        key_dtype=options.key_dtype,
        value_dtype=options.value_dtype,
        dim=options.dim,
        dry_run=options.dry_run,
    )
    if not options.dry_run:
        de.checkpoint.save({name: each.variable for name, each in found.items()}, options.target)
    rows = [(name, *_texts(each)) for name, each in found.items()]
    if options.json:
        for row in rows:
            terminal.print_json(dict(zip(_COLUMNS, row, strict=True)))
    else:
        shown = [(*row[:-1], ", ".join(row[-1])) for row in rows]
        terminal.print_table(_COLUMNS, [["" if x is None else x for x in row] for row in shown])
    if not options.dry_run and any(each.slots for each in found.values()):
        print(
            "Optimizer slots are left out. To keep them, call de_core.tfra.import_checkpoint.",
            file=sys.stderr,
        )


def _texts(table: Any) -> tuple[Any, ...]:
    dtypes = (None if each is None else each.name for each in (table.key_dtype, table.value_dtype))
    return (*dtypes, table.dim, table.rows, table.shards, list(table.slots))
