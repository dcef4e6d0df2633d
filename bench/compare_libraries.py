"""Compares the speed of de_core, tfra and FBGEMM, each in its own environment.

`one16` and `one64` are one table of a million rows of that dim, with uniform ids. The other
workloads are an `EmbeddingCollection` whose features have one id per example, with Zipf ids of
exponent 1.2. `large` needs 27 GB of memory.

Each round starts one process per library and optimizer. The processes measure in turns, on two
threads each. Threads of OpenMP do not spin while they wait, because that would count as CPU time.
tfra is tensorflow-recommenders-addons 0.8.1 with tensorflow-cpu 2.16.2 and tf_keras 2.16. FBGEMM is
fbgemm-gpu-cpu 1.9.0 with torch 2.14; its tables have a fixed number of rows.

Run: python bench/compare_libraries.py --tfra PYTHON --fbgemm PYTHON --rounds 5
     python bench/compare_libraries.py --fbgemm PYTHON --workloads small few many
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rounds import (
    OURS,
    Child,
    Measure,
    Measured,
    answer,
    arguments_of,
    back_free_memory,
    interleaved,
    measures_of,
    table,
)

ROOT = Path(__file__).resolve().parents[1]
TURNS, THREADS = 4, 2
LOOKUP, UPSERT, INSERT = "lookup", "upsert of present keys", "upsert of new keys"
SGD, ADAM, ADAGRAD = "step with SGD", "step with Adam", "step with Adagrad"
SPREAD = 7919  # keys are its multiples


class Workload(NamedTuple):
    features: int
    rows: int  # of each table
    dim: int
    examples: int = 4096  # of a batch

    def case(self) -> str:
        if self.features == 1:
            return f"dim {self.dim}, batch {self.examples}"
        return f"{self.features} tables of {self.rows} rows, dim {self.dim}"

    def batches(self, count: int = 16) -> list[np.ndarray]:
        """Returns row numbers [features, examples]."""
        random, shape = np.random.default_rng(0), [self.features, self.examples]
        if self.features == 1:
            return [random.integers(0, self.rows, shape) for _ in range(count)]
        order = np.stack([random.permutation(self.rows) for _ in range(self.features)])
        drawn = [(random.zipf(1.2, shape) - 1) % self.rows for _ in range(count)]
        return [np.take_along_axis(order, each, 1) for each in drawn]

    def operations(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Returns, by optimizer, the operations and the libraries that have them."""
        both = (OURS, "fbgemm")
        if self.features > 1:
            return {"SGD": {LOOKUP: both, SGD: both}, "Adagrad": {ADAGRAD: both}}
        tables = (OURS, "tfra")  # FBGEMM has no upsert, and no Adam on the CPU
        every = (*tables, "fbgemm")
        adam = {LOOKUP: every, UPSERT: tables, ADAM: tables, INSERT: tables}
        return {"Adam": adam, "Adagrad": {ADAGRAD: every}}


WORKLOADS = {
    "one16": Workload(1, 1_000_000, 16, 16_384),
    "one64": Workload(1, 1_000_000, 64, 16_384),
    "small": Workload(26, 100_000, 16),
    "few": Workload(4, 1_000_000, 64),
    "large": Workload(26, 1_000_000, 64),
    "many": Workload(200, 10_000, 16),
}


def fill(work: Workload, tables: list) -> None:
    import tensorflow as tf

    for first in range(0, work.rows, 65_536):
        keys = np.arange(first, min(work.rows, first + 65_536), dtype=np.int64) * SPREAD
        for each in tables:
            each.upsert(tf.constant(keys), tf.ones([len(keys), work.dim]))


def measure_table(work: Workload, optimizer: str, library: str) -> None:
    """Measures one table of `de_core` or tfra."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    if library == OURS:
        import keras

        import de_core as de

        tables = [de.Variable(dim=work.dim, name=name, initializer="zeros") for name in "tn"]
        trained, look_up, optimizers = tables[0], de.embedding_lookup, keras.optimizers
        weights = trained.trainable_variables
    else:
        from tensorflow_recommenders_addons import dynamic_embedding as de

        sizes = {"t": work.rows, "n": 8192}
        tables = [
            de.get_variable(name, dim=work.dim, initializer=0.0, init_size=size)
            for name, size in sizes.items()
        ]
        trained = de.shadow_ops.ShadowVariable(tables[0], name="shadow")
        look_up, optimizers = de.shadow_ops.embedding_lookup, tf.keras.optimizers.legacy
        weights = [trained]
    wrapped = de.DynamicEmbeddingOptimizer(getattr(optimizers, optimizer)(1e-3))
    if library == OURS:
        wrapped.build(weights)
    filled, empty = tables  # the table for new keys has no slots
    fill(work, [filled])
    rows = tf.ones([work.examples, work.dim])
    unused = np.arange(work.examples) + 2**40
    new = (tf.constant(unused + n * work.examples) for n in itertools.count())

    @tf.function
    def lookup(keys):
        return filled.lookup(keys)

    @tf.function
    def upsert(keys):
        filled.upsert(keys, rows)

    @tf.function
    def insert(keys):
        empty.upsert(keys, rows)

    @tf.function
    def step(keys):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(look_up(trained, keys) ** 2)
        wrapped.apply_gradients(list(zip(tape.gradient(loss, weights), weights)))  # noqa: B905

    given = [tf.constant(each[0] * SPREAD) for each in work.batches()]
    assert np.all(lookup(given[0]) == 1)
    runs = {LOOKUP: lookup, UPSERT: upsert, INSERT: lambda _: insert(next(new))}
    runs[f"step with {optimizer}"] = step
    answer({name: (run, given, 1) for name, run in runs.items()}, library)


def measure_collection(work: Workload, optimizer: str) -> None:
    import keras
    import tensorflow as tf

    import de_core as de

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    names = [f"{number:03}" for number in range(work.features)]
    layer = de.layers.EmbeddingCollection(
        {
            name: de.FeatureConfig(
                name, de.TableConfig(f"t{name}", work.dim, init_size=work.rows), "sum"
            )
            for name in names
        },
        concatenate=True,
    )
    fill(work, list(layer.tables.values()))
    anchors = [each.trainable_variables[0] for each in layer.tables.values()]
    wrapped = de.DynamicEmbeddingOptimizer(getattr(keras.optimizers, optimizer)(1e-3))
    wrapped.build(anchors)

    # One tensor of ids: `tf.function` needs 20 us of CPU time per argument, which `fit` does not.
    @tf.function(autograph=False)
    def lookup(ids):
        return layer(dict(zip(names, tf.unstack(ids, num=work.features), strict=True)))

    @tf.function(autograph=False)
    def step(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(lookup(ids) ** 2)
        wrapped.apply(tape.gradient(loss, anchors), anchors)

    given = [tf.constant(each * SPREAD) for each in work.batches()]
    assert np.all(lookup(given[0]) == 1)
    answer({LOOKUP: (lookup, given, 1), f"step with {optimizer}": (step, given, 1)}, OURS)


def measure_fbgemm(work: Workload, optimizer: str) -> None:
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        EmbeddingLocation,
        PoolingMode,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    torch.set_num_threads(THREADS)
    own = "SGD" if optimizer == "Adam" else optimizer  # only lookups are measured beside Adam
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(work.rows, work.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)] * work.features,
        optimizer=EmbOptimType[f"EXACT_{own.upper()}"],
        learning_rate=1e-3,
        pooling_mode=PoolingMode.SUM,
    )
    for each in tables.split_embedding_weights():
        each.fill_(1.0)
    offsets = torch.arange(work.features * work.examples + 1)

    def lookup(ids):
        with torch.no_grad():
            return tables(ids, offsets)

    def step(ids):
        (tables(ids, offsets) ** 2).sum().backward()

    given = [torch.from_numpy(each.ravel()) for each in work.batches()]
    assert bool((lookup(given[0]) == 1).all())
    answer({LOOKUP: (lookup, given, 1), f"step with {optimizer}": (step, given, 1)}, "fbgemm")


def one_round(pythons: dict[str, str], name: str) -> dict[tuple[str, str], tuple[float, float]]:
    """Returns the median wall and CPU time per call in ms, by operation and library."""
    results = {}
    for optimizer, operations in WORKLOADS[name].operations().items():
        children = {
            library: Child(
                [pythons[library], "-P", __file__, "--measure", library, name, optimizer],
                {
                    "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).resolve().parent}",
                    "OMP_WAIT_POLICY": "passive",
                    "TF_USE_LEGACY_KERAS": "01"[library == "tfra"],
                },
            )
            for library in dict.fromkeys(itertools.chain(*operations.values()))
            if library in pythons
        }
        for operation, libraries in operations.items():
            able = [library for library in libraries if library in children]
            # A table grows in some calls only: their time counts too.
            growth = (statistics.fmean, back_free_memory) if operation == INSERT else ()
            times = interleaved([children[each] for each in able], operation, TURNS, *growth)
            for library, time in zip(able, times, strict=True):
                results[operation, library] = time
        for child in children.values():
            child.end()
    return results


def compared(pythons: dict[str, str], name: str, rounds: int) -> list[Measure]:
    """Measures a workload. `pythons` are the interpreters by library, ours first."""
    work, by_operation = WORKLOADS[name], {}
    for number in range(rounds):
        for (operation, library), (wall, cpu) in one_round(pythons, name).items():
            measured = by_operation.setdefault(operation, {})
            own = measured.setdefault(library, Measured(work.features * work.examples))
            own.wall.append(wall / 1e3)
            own.cpu.append(cpu / 1e3)
        print(f"{name}, round {number + 1} of {rounds}", file=sys.stderr)
    return [
        each
        for operation, measured in by_operation.items()
        for each in measures_of("libraries", operation, work.case(), measured)
    ]


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("--tfra", metavar="PYTHON", help="the interpreter that has tfra")
    parser.add_argument("--fbgemm", metavar="PYTHON", help="the interpreter that has FBGEMM")
    names = list(WORKLOADS)
    parser.add_argument("--workloads", nargs="+", default=names[:2], choices=names)
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    given = parser.parse_args()
    peers = {name: getattr(given, name) for name in ("tfra", "fbgemm") if getattr(given, name)}
    measures = [
        each
        for name in given.workloads
        for each in compared({OURS: sys.executable, **peers}, name, given.rounds)
    ]
    print(table(measures))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        library, name, optimizer = sys.argv[2:5]
        work = WORKLOADS[name]
        with contextlib.redirect_stdout(sys.stderr):  # tfra prints when it is imported
            if library == "fbgemm":
                measure_fbgemm(work, optimizer)
            elif work.features == 1:
                measure_table(work, optimizer, library)
            else:
                measure_collection(work, optimizer)
    else:
        main()
