"""Tests `de-core plan` against tables that are made: counted bytes, within 5 %."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core_cli.main import main
from tests.support.models import looker

EVICTIONS = {
    "lru": de.EvictionLRU(max_rows=10**9),
    "lfu": de.EvictionLFU(max_rows=10**9),
    "score": de.EvictionScore(max_rows=10**9),
    "ttl-steps": de.EvictionTTL(steps=10**6),
    "ttl-seconds": de.EvictionTTL(seconds=10**6),
}
#: An optimizer with so many slots.
OPTIMIZERS = {1: keras.optimizers.Adagrad, 2: keras.optimizers.Adam}
SETTINGS = [
    {"dim": 8},
    {"dim": 64, "slots": 2},
    {"dim": 16, "slots": 1, "eviction": ["lru", "ttl-steps"], "export_dtype": "int8"},
    {"dim": 32, "value_dtype": "bfloat16", "slots": 2, "slot_dtype": "bfloat16"},
    {"dim": 16, "key_dtype": "string", "key_bytes": 12, "eviction": ["score"]},
    {"dim": 5, "value_dtype": "float64", "slots": 1, "key_dtype": "int32"},
    {"dim": 24, "export_dtype": "float16", "eviction": ["lfu", "ttl-seconds"], "changed": 0.2},
    {"dim": 32, "slots": 1, "tier_memory": 10_000_000},
]


def plan(capsys, rows, **settings):
    arguments = ["plan", "--json", "--rows", str(rows)]
    for name, value in settings.items():
        for each in value if isinstance(value, list) else [value]:
            arguments += [f"--{name.replace('_', '-')}", str(each)]
    assert main(arguments) == 0
    return json.loads(capsys.readouterr().out)


def made(rows, folder, **settings):
    """Returns the bytes of a table, and the table."""
    text = settings.get("key_dtype") == "string"
    tier = settings.get("tier_memory")
    table = de.Variable(
        key_dtype=settings.get("key_dtype", "int64"),
        value_dtype=settings.get("value_dtype", "float32"),
        dim=settings["dim"],
        name="planned",
        eviction=[EVICTIONS[each] for each in settings.get("eviction", [])],
        slot_dtype="bfloat16" if settings.get("slot_dtype") else None,
        tier=None if tier is None else de.DiskTier(str(folder / "tier"), tier),
    )
    optimizer = None
    if "slots" in settings:
        optimizer = de.DynamicEmbeddingOptimizer(OPTIMIZERS[settings["slots"]]())
    real = tf.float64 if settings.get("value_dtype") == "float64" else tf.float32

    def write(numbers):
        keys = tf.constant(numbers, tf.int32 if settings.get("key_dtype") == "int32" else tf.int64)
        keys = tf.strings.as_string(keys, width=settings["key_bytes"], fill="0") if text else keys
        if optimizer is None:
            table.upsert(keys, tf.ones([len(numbers), settings["dim"]], table.value_dtype))
            return
        gradient = tf.IndexedSlices(tf.ones([len(numbers), settings["dim"]], real), keys)
        optimizer.apply([gradient], [table])

    # While a batch is written, a tier may hold its rows in addition.
    batch = 50_000 if tier is None else 1_000
    for first in range(0, rows, batch):
        write(np.arange(first, first + batch))
    usage, disk = table.memory_usage(), 0
    memory = usage["total"] - usage["free"]
    if tier is not None:
        stats = table.stats()["tier"]
        memory, disk = memory + stats["filter_bytes"], stats["disk_bytes"]
    manager = de.checkpoint.Manager(table, folder / "checkpoints", compact_after=9)
    module = looker(table)

    def written():
        manager.save()
        arguments = {"dtype": settings.get("export_dtype"), "full_part": 10}
        version = de.publish(module, folder / "models", module.look, **arguments)
        checkpoint = sum(report["bytes"] for report in manager.reports["planned"])
        return checkpoint, version.report["tables"]["planned"]["bytes"]

    checkpoint, export = written()
    for first in range(0, round(rows * settings.get("changed", 0.01)), 1_000):
        write(np.arange(first, first + 1_000))
    checkpoint_delta, delta = written()
    return {
        "memory": memory,
        "disk": disk,
        "checkpoint": checkpoint,
        "export": export,
        "checkpoint delta": checkpoint_delta,
        "published delta": delta,
    }


@pytest.mark.parametrize("rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_table_takes_what_was_planned(rows, settings, tmp_path, capsys):
    expected = plan(capsys, rows, **settings)
    taken = made(rows, tmp_path, **settings)
    bounds = ("memory", "disk") if "tier_memory" in settings else ()
    for name, value in taken.items():
        if name in bounds:
            assert value <= expected[name], name
        else:
            assert abs(value - expected[name]) <= 0.05 * value, (name, value, expected[name])


def test_the_result_is_a_table_of_bytes(capsys):
    assert main(["plan", "--rows", "1e6", "--dim", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["memory", "disk", "checkpoint"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "1.5", "--dim", "8"], "a whole number from 1 to 4611686018427387904"),
        (["--rows", "1k", "--dim", "8"], "--rows: must be a whole number"),
        (["--rows", "1e6", "--dim", "5000"], "--dim: must be a whole number from 1 to 4096"),
        (["--rows", "1e6", "--dim", "8", "--slots", "-1"], "from 0 to 64. Received: -1"),
        (["--rows", "1e6", "--dim", "8", "--changed", "2"], "`--changed` must be from 0 to 1"),
    ],
)
def test_bad_input(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["plan", *arguments])
    assert message in capsys.readouterr().err
