"""The verbs `import-tfra` and `convert`: read checkpoints and SavedModels of tfra."""

from __future__ import annotations

import argparse
import pathlib
import sys
from typing import Any

from de_core_cli import library, terminal
from de_core_cli.library import CommandError

_COLUMNS = ("table", "key_dtype", "value_dtype", "dim", "rows", "shards", "slots", "policies")
_NOTE = "left_out"
_ABOUT = """\
Reads a SavedModel that tfra.dynamic_embedding exported, and writes it as de.export does: with the
same signatures and answers, and with tables that a server maps into memory.
"""


def add(verbs: Any) -> None:
    """Adds the verbs to a parser."""
    verb = verbs.add_parser(
        "import-tfra",
        help="turn tables of tfra.dynamic_embedding into a checkpoint",
        description="Reads tables that tfra.dynamic_embedding saved, and writes their rows as "
        "de.checkpoint.save does. de.warm_start and de.checkpoint.restore read the result. To keep "
        "optimizer slots, call de_core.tfra.import_checkpoint in the program that trains on.",
        **terminal.examples(
            ("What is there?", "import-tfra run/ckpt-9 --check"),
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
        "--check",
        action="store_true",
        help="list the tables, their slots and policies, and what is left out; write nothing",
    )
    verb.add_argument("--tables", metavar="RE", help="tables whose full names match this regex")
    verb.add_argument("--key-dtype", choices=("int64", "int32"), help="dtype of the keys")
    verb.add_argument("--value-dtype", metavar="DTYPE", help="dtype of key-value files")
    verb.add_argument(
        "--dim", type=terminal.whole(1), metavar="N", help="values per row of key-value files"
    )
    terminal.add_json(verb)
    verb.set_defaults(run=_import)
    verb = verbs.add_parser(
        "convert",
        help="turn a SavedModel of tfra.dynamic_embedding into an export",
        description=_ABOUT,
        **terminal.examples(
            ("The next version of a model:", "convert exports/ranker models/ranker"),
            ("With rows in one byte per element:", "convert exports/ranker models --dtype int8"),
            (
                "As a delta, if the model was published before:",
                "convert exports/ranker new && de-core publish add new models/ranker",
            ),
        ),
    )
    verb.add_argument("source", help="the directory of a SavedModel")
    verb.add_argument("root", help="the directory of the new model's versions")
    verb.add_argument(
        "--version",
        type=terminal.whole(1, 2**63 - 1),
        metavar="N",
        help="its number (the next one)",
    )
    verb.add_argument("--dtype", metavar="DTYPE", help="storage format: float16, bfloat16, int8")
    terminal.add_json(verb)
    verb.set_defaults(run=_convert)


def _import(options: argparse.Namespace) -> None:
    """Lists the tables, or imports them and saves them."""
    if options.target is None and not options.check:
        raise CommandError("A target must be given. Received: none. Pass a directory or --check.")
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
        dry_run=options.check,
    )
    if not options.check:
        de.checkpoint.save({name: each.variable for name, each in found.items()}, options.target)
    # Only a check lists tables that are left out.
    columns = (*_COLUMNS, _NOTE) if any(each.left_out for each in found.values()) else _COLUMNS
    rows = []
    for name, each in found.items():
        dtypes = (None if d is None else d.name for d in (each.key_dtype, each.value_dtype))
        row = (name, *dtypes, each.dim, each.rows, each.shards, list(each.slots))
        rows.append((*row, list(each.policies), each.left_out)[: len(columns)])
    terminal.print_rows(columns, rows, options.json)
    if any(each.slots for each in found.values()):
        print(
            "Optimizer slots are left out. To keep them, call de_core.tfra.import_checkpoint.",
            file=sys.stderr,
        )


def _convert(options: argparse.Namespace) -> None:
    """Converts the model and prints its tables."""
    library.load()
    from de_core.tfra import convert_saved_model

    made = convert_saved_model(options.source, options.root, options.version, dtype=options.dtype)
    tables = made.report["tables"]
    if options.json:
        terminal.print_json({"version": str(made), "tables": tables})
    else:
        rows = [(name, each["rows"], each["bytes"]) for name, each in tables.items()]
        terminal.print_table(("table", "rows", "bytes"), rows)
        print(made)
