"""The record of the benchmarks: its numbers, its files, and a run with small sizes."""

import json

import pytest
import record
from rounds import Measure, Measured, measures_of

TABLES = """
a machine

### W3, uniform hits

| dim | batch | lookup | libcuckoo | absl |
| --- | --- | --- | --- | --- |
| 16 | 4096 | 60.0 | 6.0 | - |

### Bars

| case | measured |
| --- | --- |
| lookup | 10 |
"""


def test_ratios_are_taken_round_by_round():
    measured = {
        "de_core": Measured(10_000_000, [1.0, 2.0, 4.0], [1.0, 1.0, 1.0]),
        "other": Measured(10_000_000, [2.0, 4.0, 8.0], [4.0, 2.0, 1.0]),
    }
    ours, other = measures_of("ops", "lookup", "dim 4", measured)
    assert ours.wall == (3.75, 5.0, 7.5)
    assert ours.ours is None
    assert other.cpu == (3.75, 5.0, 7.5)
    assert other.ours == (2.0, 2.0, 2.0)


def test_numbers_of_the_engine_come_from_several_runs_of_its_benchmark(tmp_path):
    program = tmp_path / "table_bench"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{TABLES}\nEND\n", "utf-8")
    program.chmod(0o755)
    ours, cuckoo = record.engine(program, [], runs=3)
    assert ours.operation == "lookup: W3, uniform hits"
    assert (ours.case, ours.library, ours.wall) == ("dim 16, batch 4096", "de_core", None)
    assert ours.cpu == pytest.approx((60.0,) * 3)
    assert cuckoo.ours == pytest.approx((10.0,) * 3)


@pytest.mark.slow
def test_a_small_run_writes_the_record(tmp_path):
    record.main(["--quick", "--docs", str(tmp_path), "--table-bench", str(tmp_path / "none")])
    written = json.loads((tmp_path / "reference/benchmark-record.json").read_text("utf-8"))
    assert written["machine"]["cores"] >= 1
    measures = {(each["operation"], each["library"]): each for each in written["measures"]}
    assert {library for _, library in measures} == {
        "de_core", "tf.gather", "MutableHashTable", "dense",
    }  # fmt: skip
    low, middle, high = measures["lookup op", "tf.gather"]["ours"]
    assert 0 < low <= middle <= high
    page = (tmp_path / "reference/benchmark-record.md").read_text("utf-8")
    assert "| lookup op | dim 16, batch 16384, rows 2000 | tf.gather |" in page


def test_the_readme_shows_the_record():
    docs = record.ROOT / "docs/reference"
    written = json.loads((docs / "benchmark-record.json").read_text("utf-8"))
    measures = [Measure(**each) for each in written["measures"]]
    table = record.comparison(written["machine"], measures)
    assert len(table.splitlines()) == 4 + len(record.COMPARED)
    readme = (record.ROOT / "README.md").read_text("utf-8")
    assert readme == record.with_comparison(readme, table), "run make bench"
