"""Compares the speed of models with many features: an `EmbeddingCollection`, and FBGEMM.

FBGEMM runs in an environment of its own. Its tables have a fixed number of rows. The processes
measure in turns, on two threads each. Threads of OpenMP do not spin while they wait, because that
would count as CPU time. Every feature has one id per example, drawn from a Zipf distribution with
exponent 1.2. Both take the ids of all features as one tensor: a `tf.function` with an argument per
feature needs some 20 us of CPU time for each, which `fit` does not.

The large size needs 14 GB of memory for SGD, and 27 GB for Adagrad. With --apart, at most one
process measures at a time, and half of that is enough. The rounds still alternate.

With --one-table, the peer is not FBGEMM but one table of `de_core` with the same ids.

Run: python bench/compare_collections.py --fbgemm PYTHON --rounds 3
     python bench/compare_collections.py --fbgemm PYTHON --sizes large --apart
     python bench/compare_collections.py --one-table --sizes many
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from pathlib import Path

import numpy as np
from turns import Child, answer, interleaved

ROOT = Path(__file__).resolve().parents[1]
BATCH, TURNS, THREADS = 4096, 4, 2
#: Features, rows per table and dim of each workload.
SIZES = {
    "small": (26, 100_000, 16),
    "few": (4, 1_000_000, 64),
    "large": (26, 1_000_000, 64),
    "many": (200, 10_000, 16),
}
LOOKUP, SGD, ADAGRAD = "lookup", "step with SGD", "step with Adagrad"
#: What a process measures, by the optimizer of its tables.
OPERATIONS = {"SGD": (LOOKUP, SGD), "Adagrad": (ADAGRAD,)}
SPREAD = 7919  # keys are its multiples


def batches(features: int, rows: int, count: int = 8) -> list[np.ndarray]:
    """Returns ids [features, BATCH]: rows in an order of popularity that each feature shuffles."""
    random = np.random.default_rng(0)
    order = np.stack([random.permutation(rows) for _ in range(features)])
    drawn = [(random.zipf(1.2, [features, BATCH]) - 1) % rows for _ in range(count)]
    return [np.take_along_axis(order, each, 1) for each in drawn]


def in_one_table(ids: np.ndarray, rows: int) -> np.ndarray:
    """Returns the same ids for one feature [1, features * BATCH]."""
    return (ids + rows * np.arange(len(ids))[:, None]).reshape([1, -1])


def measure_de_core(
    features: int, rows: int, dim: int, optimizer: str, is_one: bool = False
) -> None:
    import keras
    import tensorflow as tf

    import de_core as de

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    drawn = batches(features, rows)
    if is_one:
        drawn = [in_one_table(each, rows) for each in drawn]
        features, rows = 1, features * rows

    def rows_of(layer, ids):
        names = (f"{number:03}" for number in range(features))
        return layer(dict(zip(names, tf.unstack(ids, num=features), strict=True)))

    tables = [de.TableConfig(f"t{number}", dim, init_size=rows) for number in range(features)]
    layer = de.layers.EmbeddingCollection(
        {
            f"{number:03}": de.FeatureConfig(f"{number:03}", table, "sum")
            for number, table in enumerate(tables)
        },
        concatenate=True,
    )
    for first in range(0, rows, 4 * BATCH):
        keys = np.arange(first, min(rows, first + 4 * BATCH), dtype=np.int64) * SPREAD
        for table in layer.tables.values():
            table.upsert(keys, tf.ones([len(keys), dim]))
    anchors = [table.trainable_variables[0] for table in layer.tables.values()]
    wrapped = de.DynamicEmbeddingOptimizer(getattr(keras.optimizers, optimizer)(1e-3))
    wrapped.build(anchors)

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(rows_of(layer, ids) ** 2)
        wrapped.apply(tape.gradient(loss, anchors), anchors)

    @tf.function(autograph=False)
    def look_up(ids):
        return rows_of(layer, ids)

    given = [tf.constant(each * SPREAD) for each in drawn]
    assert float(tf.reduce_max(tf.abs(look_up(given[0]) - 1))) == 0
    answer_warm(optimizer, look_up, step, given, ["de_core", tf.__version__])


def measure_fbgemm(features: int, rows: int, dim: int, optimizer: str) -> None:
    import fbgemm_gpu
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        PoolingMode,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.set_num_threads(THREADS)

    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * features,
        optimizer=EmbOptimType[f"EXACT_{optimizer.upper()}"],
        learning_rate=1e-3,
        pooling_mode=PoolingMode.SUM,
    )
    for each in tables.split_embedding_weights():
        each.fill_(1.0)
    offsets = torch.arange(features * BATCH + 1)

    def look_up(ids):
        with torch.no_grad():
            return tables(ids, offsets)

    def step(ids):
        (tables(ids, offsets) ** 2).sum().backward()

    given = [torch.from_numpy(each.ravel()) for each in batches(features, rows)]
    found = look_up(given[0])
    assert found.shape == (BATCH, features * dim)
    assert bool((found == 1).all())
    about = ["fbgemm", fbgemm_gpu.__version__, torch.__version__]
    answer_warm(optimizer, look_up, step, given, about)


def answer_warm(optimizer, look_up, step, given, about) -> None:
    """Runs each operation of an optimizer a few times, then measures on request."""
    measured = {name: look_up if name == LOOKUP else step for name in OPERATIONS[optimizer]}
    for run in measured.values():
        for each in given[:3]:
            run(each)
    answer({name: (run, given, 2) for name, run in measured.items()}, about)


def one_round(
    libraries: list[tuple[str, str]], size: str, optimizers=tuple(OPERATIONS), apart: bool = False
) -> dict[str, list[tuple[float, float]]]:
    """Returns the wall and CPU time per call in ms of each library, by operation.

    Args:
        libraries: Pairs of a library and its Python.
        size: The name of the workload.
        optimizers: Names of the optimizers.
        apart: Whether only one process may exist at a time.
    """
    paths = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
    environment = {"PYTHONPATH": paths, "OMP_WAIT_POLICY": "passive"}
    results: dict[str, list[tuple[float, float]]] = {}
    for optimizer in optimizers:
        for together in [[each] for each in libraries] if apart else [libraries]:
            children = [
                Child([python, "-P", __file__, "--measure", library, size, optimizer], environment)
                for library, python in together
            ]
            for operation in OPERATIONS[optimizer]:
                results.setdefault(operation, []).extend(interleaved(children, operation, TURNS))
            for child in children:
                child.end()
    return results


def print_table(size: str, rounds: list[dict[str, list[tuple[float, float]]]], peer: str) -> None:
    features, rows, dim = SIZES[size]
    print(f"\n| {features} tables of {rows} rows, dim {dim} | de_core: wall, CPU in ms ", end="")
    print(f"| {peer}: wall, CPU in ms | {peer} / de_core: wall, CPU |\n|---|---|---|---|")
    for operation in rounds[0]:
        times = np.array([each[operation] for each in rounds])  # [rounds, library, clock]
        ours, theirs = np.median(times, 0)
        ratios = [statistics.median(times[:, 1, clock] / times[:, 0, clock]) for clock in (0, 1)]
        print(
            f"| {operation} | {ours[0]:.2f}, {ours[1]:.2f} | {theirs[0]:.2f}, {theirs[1]:.2f} "
            f"| {ratios[0]:.2f}, {ratios[1]:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    peer = parser.add_mutually_exclusive_group(required=True)
    peer.add_argument("--fbgemm", metavar="PYTHON", help="has FBGEMM and torch")
    peer.add_argument("--one-table", action="store_true", help="compare with one table")
    parser.add_argument("--sizes", nargs="+", default=["small", "few"], choices=list(SIZES))
    parser.add_argument("--optimizers", nargs="+", default=list(OPERATIONS), choices=OPERATIONS)
    parser.add_argument("--apart", action="store_true", help="run one process at a time")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    arguments = parser.parse_args()
    name, python = ("fbgemm", arguments.fbgemm)
    if arguments.one_table:
        name, python = "one table", sys.executable
    for size in arguments.sizes:
        libraries = [("de_core", sys.executable), (name, python)]
        rounds = [
            one_round(libraries, size, arguments.optimizers, arguments.apart)
            for _ in range(arguments.rounds)
        ]
        print_table(size, rounds, name)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        library, size, optimizer = sys.argv[2:5]
        with contextlib.redirect_stdout(sys.stderr):
            if library == "fbgemm":
                measure_fbgemm(*SIZES[size], optimizer)
            else:
                measure_de_core(*SIZES[size], optimizer, library == "one table")
    else:
        main()
