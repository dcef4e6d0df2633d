"""The lookup op in a `tf.function`, compared with a dense gather and TensorFlow's hash tables.

The output includes the goals. A test fails only if it misses half of a goal, so that a busy machine
does not fail it but a real regression does.
"""

import numpy as np
import pytest
import tensorflow as tf

from bench import peers
from bench.rounds import Bar, Rounds

pytestmark = pytest.mark.benchmark

BATCHES = (256, 16384, 131072)
KEYS_A_ROUND = 131072
EAGER_CALLS_A_ROUND = 200
#: The lookup against each peer: the goal, and the stretch goal.
BARS = {"tf.gather": (0.6, 1.0), "MutableHashTable": (5, 8), "DenseHashTable": (1.5, 2)}


@pytest.fixture(scope="module", params=[16, 64])
def tables(request, rows):
    """All peers, with the same rows."""
    dim = request.param
    keys = peers.random_keys(rows)
    made = [peers.filled(table(dim), keys, dim) for table in peers.HASH_TABLES]
    return dim, keys, [*made, peers.Gather(peers.rows_of(keys, dim))]


@pytest.mark.parametrize("batch", BATCHES)
def test_lookup_op_reaches_its_goals(tables, batch, rounds, report):
    dim, keys, all_tables = tables
    times = KEYS_A_ROUND // batch
    rows = np.random.default_rng(1).integers(0, len(keys), [times, batch])
    ids, numbers = tf.constant(keys[rows]), tf.constant(rows)
    measures = Rounds()
    for table in all_tables:
        run = peers.repeated_lookup(table, batch, times)
        inputs = numbers if table.name == "tf.gather" else ids
        np.testing.assert_array_equal(run(inputs)[0], peers.rows_of(keys[rows[-1]], dim))
        measures.add(table.name, times * batch, lambda run=run, inputs=inputs: run(inputs))
    measures.run(rounds)
    cells = {"dim": dim, "rows": len(keys), "batch": batch}
    report.keep("lookup op", f"dim {dim}, batch {batch}, rows {len(keys)}", measures)
    cells |= {table.name: measures.measured[table.name].rate() for table in all_tables}
    for name, (bar, stretch) in BARS.items():
        ratio = measures.ratio("de_core", name)
        cells[f"/ {name}"] = ratio
        if name == "tf.gather" or dim >= 16:
            case = f"lookup op / {name}, dim {dim}, batch {batch}"
            report.bars.append(Bar(case, ratio, bar, stretch))
    cells["/ tf.gather (CPU)"] = measures.ratio("de_core", "tf.gather", "cpu")
    report.row("Lookup op in a tf.function (million/s of wall time)", cells)
    for name, (bar, _) in BARS.items():
        assert measures.ratio("de_core", name) >= bar / 2, name


def test_eager_lookups_of_few_keys_take_little_longer_than_a_gather(tables, rounds, report):
    dim, keys, all_tables = tables
    numbers = np.random.default_rng(1).integers(0, len(keys), 256)
    measures = Rounds()
    for table in all_tables:
        ids = tf.constant(numbers if table.name == "tf.gather" else keys[numbers])

        def run(table=table, ids=ids):
            for _ in range(EAGER_CALLS_A_ROUND):
                table.lookup(ids)

        measures.add(table.name, EAGER_CALLS_A_ROUND, run)
    measures.run(rounds)
    ratio = measures.ratio("de_core", "tf.gather")
    report.keep("eager lookup", f"dim {dim}, batch 256, rows {len(keys)}", measures)
    report.bars.append(Bar(f"eager lookup / tf.gather, dim {dim}, batch 256", ratio, 0.6, 0.8))
    cells = {"dim": dim, "batch": 256} | {
        name: 1e6 * measured.rate() for name, measured in measures.measured.items()
    }
    report.row("Eager lookup (calls per second)", cells | {"/ tf.gather": ratio})
    assert ratio >= 0.3
