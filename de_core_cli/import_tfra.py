"""The verb `import-tfra`: turns tables of tfra into a checkpoint of tables."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from de_core_cli import library, terminal
from de_core_cli.errors import CommandError


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "import-tfra",
        help="turn tables of tfra.dynamic_embedding into a checkpoint",
        description="Reads tables that tfra.dynamic_embedding saved, and writes them as "
        "de.checkpoint.save does. de.warm_start and de.checkpoint.restore read the result.",
        **terminal.examples(
            ("A checkpoint of TensorFlow, or a SavedModel:", "import-tfra run/ckpt-9 tables"),
            (
                "Key-value files, which do not name their dtypes:",
                "import-tfra kv tables --value-dtype float32 --dim 16",
            ),
            ("Without optimizer slots:", "import-tfra run/ckpt-9 tables --tables 'user|item'"),
        ),
    )
    verb.add_argument("source", help="a checkpoint's prefix, a SavedModel, or key-value files")
    verb.add_argument("target", help="the new directory")
    verb.add_argument(
        "--tables", default=".*", metavar="RE", help="tables whose full names match this regex"
    )
    verb.add_argument("--key-dtype", default="int64", choices=("int64", "int32"))
    verb.add_argument("--value-dtype", metavar="DTYPE", help="dtype of key-value files")
    verb.add_argument("--dim", type=int, metavar="N", help="values per row of key-value files")
    terminal.add_json(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Imports the tables and saves them."""
    if pathlib.Path(options.target).exists():
        raise CommandError(f"The target must not exist yet. Received: {options.target!r}.")
    library.load()
    import de_core as de

    found = de.import_tfra(
        options.source,
        tables=options.tables,
        key_dtype=options.key_dtype,
        value_dtype=options.value_dtype,
        dim=options.dim,
    )
    reports = de.checkpoint.save(dict(found), options.target)
    rows = [
        (name, sum(each["rows"] for each in files), found[name].dim)
        for name, files in reports.items()
    ]
    if options.json:
        for name, count, dim in rows:
            terminal.print_json({"table": name, "rows": count, "dim": dim})
    else:
        terminal.print_table(("table", "rows", "dim"), rows)
