"""Tests the example of a click model on a log in Criteo's format."""

import gzip
import re

import numpy as np
import pytest

from tests.examples.test_scripts import succeeded


@pytest.fixture(scope="module")
def dlrm():
    import dlrm

    return dlrm


def line(click, numbers, ids):
    return "\t".join([str(click), *map(str, numbers), *ids]) + "\n"


def test_a_log_in_criteos_format_is_read(dlrm, tmp_path):
    path = tmp_path / "day_0.tsv"
    ids = [f"{number:08x}" for number in range(26)]
    numbers = ["", "-3", *range(11)]
    path.write_text(line(1, numbers, ids) + line(0, range(13), ["", *ids[1:]]))
    log = dlrm.read_log(path, most=10)
    assert log.clicks.tolist() == [1, 0]
    assert log.numbers[0].tolist() == [0, -3, *range(11)]
    assert log.ids[0].tolist() == list(range(26))
    assert log.ids[1, 0] == dlrm.MISSING
    assert len(dlrm.read_log(path, most=1).clicks) == 1
    packed = tmp_path / "day_0.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(dlrm.read_log(packed, most=10).ids, log.ids)
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(ValueError, match="Received"):
        dlrm.read_log(packed, most=10)


def test_other_lines_and_files_are_refused(dlrm, tmp_path):
    path = tmp_path / "log.tsv"
    for text in ("", "1\t2\n", line(1, range(13), ["xyz"] * 26), line("a", range(13), ["0"] * 26)):
        path.write_text(text)
        with pytest.raises(ValueError, match="Received"):
            dlrm.read_log(path, most=10)
    with pytest.raises(ValueError, match="readable text file"):
        dlrm.read_log(tmp_path / "none", most=10)


def test_a_made_up_log_has_frequent_and_rare_ids(dlrm):
    log = dlrm.synthetic_log(5000)
    assert 0.2 < log.clicks.mean() < 0.8
    heights = [len(np.unique(log.ids[:, place])) for place in range(26)]
    assert heights[0] <= 10
    assert heights[-1] > 200
    parts = log.part(0, 0.8), log.part(0.8, 1)
    assert [len(each.clicks) for each in parts] == [4000, 1000]


@pytest.mark.slow
def test_the_example_trains_publishes_and_serves(run, dlrm, tmp_path):
    made_up, log = dlrm.synthetic_log(3000), tmp_path / "day_0.tsv"
    with log.open("w") as file:
        for click, numbers, ids in zip(*made_up, strict=True):
            file.write(line(int(click), numbers, [f"{each:08x}" for each in ids]))
    small = ["--log", log, "--dim", "4", "--buckets", "50"]
    output = succeeded(run("dlrm.py", *small, "--out", tmp_path / "clicks"))
    assert "3,000 impressions" in output
    for model in ("a row per id", "50 buckets"):
        [auc] = re.findall(rf"AUC (0\.\d+) with {model}", output)
        assert float(auc) > 0.5
    assert "in 26 tables" in output
    answers = [
        np.array(part.split("[")[1].split("]")[0].split(), float)
        for part in output[output.index("The gateway answers") :].split(";")
    ]
    np.testing.assert_allclose(*answers, atol=0.02)  # the published rows are int8
    assert (tmp_path / "clicks/2").is_dir()
