"""The verb `convert`: turns a SavedModel of tfra into an export of this library."""

from __future__ import annotations

import argparse
from typing import Any

from de_core_cli import library, terminal

_ABOUT = """\
Reads a SavedModel that tfra.dynamic_embedding exported, and writes it as de.export does: with the
same signatures and answers, and with tables that a server maps into memory.
"""


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
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
    verb.add_argument("--version", type=int, metavar="N", help="its number (the next one)")
    verb.add_argument("--dtype", metavar="DTYPE", help="storage format: float16, bfloat16, int8")
    terminal.add_json(verb)
    verb.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
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
