"""Compares the speed of de_core, tfra and FBGEMM, each in its own environment.

Each round starts one process per library and dim. The processes measure in turns. All use two
threads. tfra is tensorflow-recommenders-addons 0.8.1 with tensorflow-cpu 2.16.2 and tf_keras 2.16.
FBGEMM is fbgemm-gpu-cpu 1.9.0 with torch 2.14; its tables have a fixed number of rows, so it gets
no new keys, and it has no upsert.

Run: python bench/compare_libraries.py --tfra PYTHON --fbgemm PYTHON --rounds 5
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from turns import Child, Runs, answer, interleaved

ROOT = Path(__file__).resolve().parents[1]
ROWS, BATCH, TURNS, THREADS = 1_000_000, 16_384, 4, 2
LOOKUP, UPSERT, INSERT = "lookup", "upsert of present keys", "upsert of new keys"
ADAM, ADAGRAD = "step with Adam", "step with Adagrad"
OPERATIONS = {
    LOOKUP: ("de_core", "tfra", "fbgemm"),
    UPSERT: ("de_core", "tfra"),
    ADAM: ("de_core", "tfra"),  # FBGEMM has no Adam on the CPU
    ADAGRAD: ("de_core", "tfra", "fbgemm"),
    INSERT: ("de_core", "tfra"),
}
SPREAD = 7919  # keys are its multiples
#: The last table gets the new keys: it begins empty, and has no slots.
TABLES = ("adam", "adagrad", "new")


def batches(count: int = 20) -> list[np.ndarray]:
    draws = np.random.default_rng(0)
    return [draws.integers(0, ROWS, BATCH) for _ in range(count)]


def runs_of(operations: dict[str, Callable], keys: list, new_keys: list) -> Runs:
    """Calls each operation three times, and returns all operations with their batches."""
    fresh = iter(new_keys)
    runs = {}
    for name, run in operations.items():
        for some in keys[:3]:
            run(next(fresh) if name == INSERT else some)
        runs[name] = (
            (lambda _, run=run: run(next(fresh)), keys, 1) if name == INSERT else (run, keys, 1)
        )
    return runs


def measure_tensorflow(dim: int, library: str) -> None:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    if library == "de_core":
        import keras

        import de_core as de

        tables = [de.Variable(dim=dim, name=name, initializer="zeros") for name in TABLES]
        trained, look_up = tables, de.embedding_lookup
        optimizers = [keras.optimizers.Adam(1e-3), keras.optimizers.Adagrad(1e-3)]
    else:
        from tensorflow_recommenders_addons import dynamic_embedding as de

        tables = [
            de.get_variable(name, dim=dim, initializer=0.0, init_size=ROWS) for name in TABLES[:2]
        ] + [de.get_variable(TABLES[2], dim=dim, initializer=0.0)]
        trained = [
            de.shadow_ops.ShadowVariable(table, name=f"shadow_{number}")
            for number, table in enumerate(tables[:2])
        ]
        look_up = de.shadow_ops.embedding_lookup
        legacy = tf.keras.optimizers.legacy
        optimizers = [legacy.Adam(1e-3), legacy.Adagrad(1e-3)]
    optimizers = [de.DynamicEmbeddingOptimizer(optimizer) for optimizer in optimizers]
    for first in range(0, ROWS, 4 * BATCH):
        keys = np.arange(first, min(ROWS, first + 4 * BATCH), dtype=np.int64) * SPREAD
        for table in tables[:2]:
            table.upsert(tf.constant(keys), tf.ones([len(keys), dim]))
    rows = tf.ones([BATCH, dim])
    table = tables[0]
    if library == "de_core":
        optimizers[0].build(tables[0].trainable_variables)
        optimizers[1].build(tables[1].trainable_variables)

    @tf.function
    def lookup(keys):
        return table.lookup(keys)

    @tf.function
    def upsert(keys):
        table.upsert(keys, rows)

    @tf.function
    def insert(keys):
        tables[2].upsert(keys, rows)

    def step_of(number):
        variable, optimizer = trained[number], optimizers[number]
        weights = variable.trainable_variables if library == "de_core" else [variable]

        @tf.function
        def step(keys):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(look_up(variable, keys) ** 2)
            optimizer.apply_gradients(list(zip(tape.gradient(loss, weights), weights)))  # noqa: B905

        return step

    keys = [tf.constant(each * SPREAD) for each in batches()]
    found = lookup(keys[0]).numpy()
    assert found.shape == (BATCH, dim)
    assert (found == 1).all()
    new = (tf.constant(np.arange(n * BATCH, (n + 1) * BATCH) + 2**40) for n in itertools.count())
    operations = {
        LOOKUP: lookup,
        UPSERT: upsert,
        ADAM: step_of(0),
        ADAGRAD: step_of(1),
        INSERT: insert,
    }
    runs = runs_of(operations, keys, new)
    assert (trained[1].lookup(keys[0]) if library == "de_core" else tables[1].lookup(keys[0]))[
        0, 0
    ] < 1
    answer(runs, [library, tf.__version__])


def measure_fbgemm(dim: int) -> None:
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        PoolingMode,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.set_num_threads(THREADS)

    def table_of(optimizer):
        table = SplitTableBatchedEmbeddingBagsCodegen(
            [(ROWS, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)],
            optimizer=optimizer,
            learning_rate=1e-3,
            pooling_mode=PoolingMode.SUM,
        )
        table.split_embedding_weights()[0].fill_(1.0)
        return table

    offsets = torch.arange(BATCH + 1)
    plain = table_of(EmbOptimType.EXACT_ADAGRAD)

    def lookup(ids):
        with torch.no_grad():
            return plain(ids, offsets)

    def step_of(table):
        def step(ids):
            (table(ids, offsets) ** 2).sum().backward()

        return step

    ids = [torch.from_numpy(each) for each in batches()]
    assert bool((lookup(ids[0]) == 1).all())
    operations = {LOOKUP: lookup, ADAGRAD: step_of(table_of(EmbOptimType.EXACT_ADAGRAD))}
    answer(runs_of(operations, ids, []), ["fbgemm", torch.__version__])


def back_free_memory() -> None:
    """Makes a virtual machine's host provide memory, so that its time does not count."""
    np.empty(1 << 30, np.uint8)[::4096] = 1


def one_round(pythons: dict[str, str], dim: int) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the median wall and CPU time per call in ms, by operation and library."""
    paths = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
    children = {}
    for library, python in pythons.items():
        environment = {"PYTHONPATH": paths, "TF_USE_LEGACY_KERAS": "01"[library == "tfra"]}
        command = [python, "-P", __file__, "--measure", library, str(dim)]
        children[library] = Child(command, environment)
    results = {}
    for operation, libraries in OPERATIONS.items():
        able = [library for library in libraries if library in children]
        # A table grows in some calls only: their time counts too.
        growth = (statistics.fmean, back_free_memory) if operation == INSERT else ()
        times = interleaved([children[each] for each in able], operation, TURNS, *growth)
        results.update(
            {(operation, library): time for library, time in zip(able, times, strict=True)}
        )
    for child in children.values():
        child.end()
    return results


def print_table(dim: int, rounds: list[dict[tuple[str, str], tuple[float, float]]]) -> None:
    print(f"\n| dim {dim} | library | wall, ms | / de_core, quartiles | CPU, ms | / de_core |")
    print("|---|---|---|---|---|---|")
    for operation, library in rounds[0]:
        own = [each[operation, library] for each in rounds]
        ours = [each[operation, "de_core"] for each in rounds]
        wall, cpu = (statistics.median(time[clock] for time in own) for clock in (0, 1))
        ratios = [
            [time[clock] / base[clock] for time, base in zip(own, ours, strict=True)]
            for clock in (0, 1)
        ]
        low, middle, high = np.percentile(ratios[0], [25, 50, 75])
        print(
            f"| {operation} | {library} | {wall:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) "
            f"| {cpu:.2f} | {statistics.median(ratios[1]):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tfra", metavar="PYTHON", help="the interpreter that has tfra")
    parser.add_argument("--fbgemm", metavar="PYTHON", help="the interpreter that has FBGEMM")
    parser.add_argument("--dims", type=int, nargs="+", default=[16, 64], help="default 16 64")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    arguments = parser.parse_args()
    pythons = {"de_core": sys.executable}
    for library in ("tfra", "fbgemm"):
        if getattr(arguments, library):
            pythons[library] = getattr(arguments, library)
    for dim in arguments.dims:
        rounds = []
        for number in range(arguments.rounds):
            rounds.append(one_round(pythons, dim))
            print(f"dim {dim}, round {number + 1} of {arguments.rounds}", file=sys.stderr)
        print_table(dim, rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        library, dim = sys.argv[2], int(sys.argv[3])
        with contextlib.redirect_stdout(sys.stderr):  # tfra prints when it is imported
            measure_fbgemm(dim) if library == "fbgemm" else measure_tensorflow(dim, library)
    else:
        main()
