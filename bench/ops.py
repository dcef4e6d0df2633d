"""Measures the ops beside TensorFlow's: lookups, inserts of new keys, training steps with Adam.

All tables have the same random keys and rows. `tf.gather` and the dense variable get row numbers
in place of keys. Every result is compared with the right rows first.

Run: python bench/ops.py --operations lookup insert step --rows 1000000 --rounds 11
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import keras
import numpy as np
import tensorflow as tf
from rounds import OURS, Measured, Rounds, arguments_of, back_free_memory, measures_of, table

import de_core as de

PEER = "MutableHashTable"
BATCH = 16384
BATCHES = (256, BATCH, 131072)
FILL = 65536  # rows per insert while a table is filled
STEPS = 32  # per round, each with other ids
RATE, BETA_1, BETA_2, EPSILON = 0.001, 0.9, 0.999, 1e-7
Case = tuple[str, str, dict[str, Measured]]


def random_keys(count: int) -> np.ndarray:
    """Returns distinct nonnegative int64 keys."""
    keys = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = ((keys ^ (keys >> np.uint64(32))) >> np.uint64(1)).astype(np.int64)
    assert len(np.unique(keys)) == count
    return keys


def rows_of(keys: np.ndarray, dim: int) -> np.ndarray:
    """Returns rows that reveal a wrong lookup."""
    return (keys[:, None] % 1000 + np.arange(dim)).astype(np.float32) / 1000


def new_table(library: str, dim: int) -> tuple[object, Callable]:
    """Returns an empty table, and its method that inserts rows."""
    if library == OURS:
        made = de.Variable(dim=dim, name=f"bench_{dim}", initializer=0.0)
        return made, made.upsert
    made = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, tf.zeros([dim]))
    return made, made.insert


def fill(insert: Callable, keys: np.ndarray, dim: int) -> None:
    for at in range(0, len(keys), FILL):
        part = keys[at : at + FILL]
        insert(tf.constant(part), tf.constant(rows_of(part, dim)))


def repeated(lookup: Callable, ids: tf.Tensor) -> Callable:
    """Compiles a lookup of each row of `ids`: the cost of one call would dominate small batches."""

    @tf.function
    def run(ids):
        used = tf.zeros([])
        for number in range(len(ids)):
            with tf.control_dependencies([used]):
                rows = lookup(ids[number])
            used += rows[0, 0]  # or TensorFlow would drop the lookup
        return rows, used

    return partial(run.get_concrete_function(ids), ids)


def lookups(rows: int, dim: int, rounds: int) -> Iterator[Case]:
    keys = random_keys(rows)
    methods = {}
    for library in (OURS, PEER):
        made, insert = new_table(library, dim)
        fill(insert, keys, dim)
        methods[library] = made.lookup
    methods["tf.gather"] = partial(tf.gather, tf.Variable(rows_of(keys, dim)))
    for batch in BATCHES:
        times = max(BATCHES) // batch
        numbers = np.random.default_rng(1).integers(0, rows, [times, batch])
        measures = Rounds()
        for library, lookup in methods.items():
            ids = tf.constant(numbers if library == "tf.gather" else keys[numbers])
            run = repeated(lookup, ids)
            np.testing.assert_array_equal(run()[0], rows_of(keys[numbers[-1]], dim))
            measures.add(library, times * batch, run)
        yield "lookup op", f"dim {dim}, batch {batch}, rows {rows}", measures.run(rounds)


class FromEmpty:
    """Fills a new table, batch by batch."""

    def __init__(self, library: str, dim: int, batches: list[tf.Tensor]) -> None:
        self.library, self.dim, self.batches = library, dim, batches
        self.values = tf.ones([BATCH, dim])
        self.table = self.insert = None

    def prepare(self) -> None:
        """Creates the table and compiles the function."""
        self.table = self.insert = None
        back_free_memory(len(self.batches) * BATCH * (self.dim * 4 + 16) * 2)
        self.table, insert = new_table(self.library, self.dim)

        @tf.function
        def without_result(keys, values):
            insert(keys, values)

        self.insert = without_result.get_concrete_function(self.batches[0], self.values)

    def run(self) -> None:
        for keys in self.batches:
            self.insert(keys, self.values)


def inserts(rows: int, dim: int, rounds: int) -> Iterator[Case]:
    count = max(rows // BATCH, 1)
    batches = [tf.constant(part) for part in random_keys(count * BATCH).reshape(-1, BATCH)]
    measures = Rounds()
    for library in (OURS, PEER):
        filled = FromEmpty(library, dim, batches)
        filled.prepare()
        filled.run()
        np.testing.assert_array_equal(filled.table.lookup(batches[-1]), filled.values)
        measures.add(library, count * BATCH, filled.run, before=filled.prepare)
    case = f"dim {dim}, batch {BATCH}, rows {count * BATCH}"
    yield "insert op, new keys", case, measures.run(max(rounds // 3, 1), warm_up=0)


def ours(keys: np.ndarray, dim: int) -> tuple[Callable, Callable]:
    """Returns a step and a lookup of a table, trained by Keras's Adam."""
    trained = de.Variable(dim=dim, name=f"step_{dim}", init_size=len(keys))
    fill(trained.upsert, keys, dim)
    variables = trained.trainable_variables
    adam = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(RATE, BETA_1, BETA_2, EPSILON))
    adam.build(variables)

    def step(ids: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = de.embedding_lookup(trained, ids)
        adam.apply(tape.gradient(rows, variables, above), variables)
        return rows[0]

    return step, trained.lookup


def dense(keys: np.ndarray, dim: int) -> tuple[Callable, Callable]:
    """Returns a step and a lookup of a variable with all rows, trained by a lazy Adam.

    Keras's own Adam moves all rows in each step. This one sums equal ids, then reads and writes
    only the touched rows and slots.
    """
    weights = tf.Variable(rows_of(keys, dim))
    slots = [tf.Variable(tf.zeros([len(keys), dim])) for _ in range(2)]
    counter = tf.Variable(0.0)

    def step(ids: tf.Tensor, above: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            looked_up = tf.gather(weights, ids)
        slices = tape.gradient(looked_up, weights, above)
        unique, positions = tf.unique(slices.indices)
        gradient = tf.math.unsorted_segment_sum(slices.values, positions, tf.size(unique))
        count = counter.assign_add(1.0)
        rows, m, v = (tf.gather(each, unique) for each in (weights, *slots))
        m += (gradient - m) * (1 - BETA_1)
        v += (tf.square(gradient) - v) * (1 - BETA_2)
        alpha = RATE * tf.sqrt(1 - tf.pow(BETA_2, count)) / (1 - tf.pow(BETA_1, count))
        rows -= m * alpha / (tf.sqrt(v) + EPSILON)
        for variable, new in zip((weights, *slots), (rows, m, v), strict=True):
            variable.scatter_nd_update(unique[:, None], new)
        return looked_up[0]

    return step, partial(tf.gather, weights)


def steps(rows: int, dim: int, rounds: int) -> Iterator[Case]:
    """Measures lookup, gradient and Adam. The gradient of the rows comes from outside."""
    keys = random_keys(rows)
    weights = np.arange(1, rows + 1, dtype=np.float64) ** -1.05
    random = np.random.default_rng(0)
    ranks = random.choice(rows, [STEPS, BATCH], p=weights / weights.sum())
    above = tf.constant(random.normal(size=[BATCH, dim]), tf.float32)
    measures, results = Rounds(), {}
    for library, trainer in ((OURS, ours), ("dense", dense)):
        step, lookup = trainer(keys, dim)
        ids = tf.constant(keys[ranks] if library == OURS else ranks)

        @tf.function(input_signature=[tf.TensorSpec(ids.shape, tf.int64)])
        def run(ids, step=step):
            rows = above[0]
            for i in tf.range(STEPS):
                rows = step(ids[i], above)
            return rows

        run(ids)
        results[library] = lookup(ids[0, :256]).numpy()
        measures.add(library, STEPS * BATCH, partial(run, ids))
    np.testing.assert_allclose(*results.values(), rtol=1e-4, atol=1e-6)
    yield "step with Adam", f"dim {dim}, batch {BATCH}, rows {rows}", measures.run(rounds)


OPERATIONS = {"lookup": lookups, "insert": inserts, "step": steps}


def measure(
    rows: int, rounds: int, dims: Sequence[int], operations: Sequence[str] = tuple(OPERATIONS)
) -> list:
    """Returns the measures of the operations for each dim."""
    cases = (
        case for name in operations for dim in dims for case in OPERATIONS[name](rows, dim, rounds)
    )
    return [each for case in cases for each in measures_of("ops", *case)]


def main() -> None:
    parser = arguments_of(__doc__)
    names = list(OPERATIONS)
    parser.add_argument("--operations", nargs="+", default=names, choices=names)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a table, default 10^6")
    parser.add_argument("--rounds", type=int, default=11, help="default 11")
    parser.add_argument("--dims", type=int, nargs="+", default=[16, 64], help="default 16 64")
    given = parser.parse_args()
    print(table(measure(given.rows, given.rounds, given.dims, given.operations)))


if __name__ == "__main__":
    main()
