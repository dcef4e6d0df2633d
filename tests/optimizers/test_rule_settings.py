"""The settings of update rules have the fields of the engine's structs, in the same order."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from de_core.optimizers import rule_settings

HEADER = Path("de_core/cc/engine/optimizer/rule_settings.h")


def structs_of(header: str) -> dict[str, list[str]]:
    """Returns the names of the fields of each struct."""
    found = re.findall(r"struct (\w+) \{\n  double ([\w, ]+);\n\};", header)
    return {name: fields.split(", ") for name, fields in found}


def test_they_have_the_fields_of_the_engines_structs(pytestconfig: pytest.Config):
    header = (pytestconfig.rootpath / HEADER).read_text("utf-8")
    structs = structs_of(header)
    assert len(structs) == header.count("struct ")
    tuples = {
        name: list(kind._fields)
        for name, kind in inspect.getmembers(rule_settings, inspect.isclass)
        if hasattr(kind, "_fields") and name.endswith("Settings")
    }
    assert tuples == structs


def test_fields_in_another_order_are_noticed():
    assert structs_of("struct A {\n  double b, c;\n};\n") == {"A": ["b", "c"]}
