"""The update rules have the names and settings of the engine's rules, in the same order."""

from __future__ import annotations

import re
from pathlib import Path

import keras
import pytest
import tensorflow as tf

import de_core as de
from de_core.optimizers import rules

ENGINE = Path("de_core/cc/engine/optimizer")


def structs_of(header: str) -> dict[str, tuple[str, ...]]:
    """Returns the names of the fields of each struct."""
    found = re.findall(r"struct (\w+) \{\n  double ([\w, ]+);\n\};", header)
    return {name: tuple(fields.split(", ")) for name, fields in found}


def test_they_have_the_fields_of_the_engines_structs(pytestconfig: pytest.Config):
    folder = pytestconfig.rootpath / ENGINE
    header = (folder / "rule_settings.h").read_text("utf-8")
    structs = structs_of(header)
    assert len(structs) == header.count("struct ")
    sources = "".join(each.read_text("utf-8") for each in folder.glob("*.cc"))
    named = re.findall(r'RuleOf<(\w+)>\("(\w+)"', sources)
    assert len(named) == sources.count("RuleOf<")
    assert {rule: structs[struct] for struct, rule in named} == rules.SETTINGS


def test_nadam_multiplies_its_momenta_once_per_step():
    names = {"float32": "a", "float64": "b"}  # tables of two dtypes, which have different settings
    tables = [de.Variable(dim=1, name=name, value_dtype=d) for d, name in names.items()]
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Nadam(0.1))
    gradient = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([7], tf.int64))
    for _ in range(3):
        optimizer.apply([gradient] * 2, [table.trainable_variables[0] for table in tables])
    momenta = [0.9 * (1 - 0.5 * 0.96**step) for step in (1, 2, 3)]
    product = momenta[0] * momenta[1] * momenta[2]
    assert float(optimizer.u_product.value) == pytest.approx(product)
