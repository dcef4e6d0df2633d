"""Models with many features, compared with dense tables and with one table of all ids.

The output includes the goals. A test fails only if it misses half of a goal, so that a busy machine
does not fail it but a real regression does. `compare_collections.py` compares with FBGEMM.
"""

import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.benchmarks.rounds import Bar, Rounds

pytestmark = pytest.mark.benchmark

HERE = Path(__file__).parent
#: Steps per measurement: a dense step takes as long as many of ours.
DIM, BATCH, STEPS, DENSE_STEPS = 16, 1024, 16, 1


def test_a_step_of_dlrm_costs_an_eighth_of_dense_tables(monkeypatch, rows, rounds, report):
    monkeypatch.syspath_prepend(HERE.parents[1] / "examples")
    import dlrm

    log = dlrm.synthetic_log(BATCH * STEPS)
    data = [(each.inputs(), each.clicks) for each in dlrm.batches(log, BATCH)]

    def steps_of(buckets, count):
        model = dlrm.model_of(DIM, buckets)

        def steps():
            for batch in data[:count]:
                model.train_on_batch(*batch)

        return steps

    measures = Rounds()
    measures.add("de_core", STEPS * BATCH, steps_of(0, STEPS))
    measures.add("keras.layers.Embedding", DENSE_STEPS * BATCH, steps_of(rows, DENSE_STEPS))
    measures.run(max(3, rounds // 2))
    ratio = measures.ratio("de_core", "keras.layers.Embedding", "cpu")
    cells = {
        name: BATCH * 1e3 * float(np.median(each.cpu)) / each.items
        for name, each in measures.measured.items()
    }
    report.row(
        f"A step of DLRM with Adam, {BATCH} impressions, 26 features of dim {DIM} (CPU time, ms)",
        {"buckets": rows, **cells, "ratio": ratio},
    )
    report.bars.append(Bar("dense DLRM step / ours, CPU", ratio, 8, 40))
    keras.backend.clear_session()
    assert ratio >= 8 / 2


def test_200_features_cost_little_more_than_one_table(monkeypatch, report):
    monkeypatch.syspath_prepend(HERE)
    import compare_collections

    libraries = [("de_core", sys.executable), ("one table", sys.executable)]
    found = compare_collections.one_round(libraries, "many")
    for operation, ((_, ours), (_, one)) in found.items():
        report.row(
            "200 features of 10,000 rows beside one table with all their ids (CPU time, ms)",
            {"operation": operation, "200 tables": ours, "one table": one, "ratio": ours / one},
        )
        report.bars.append(Bar(f"one table / 200 tables, {operation}, CPU", one / ours, 0.667, 1))
        assert ours <= 2 * 1.5 * one
