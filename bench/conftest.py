"""Measurements of the ops: `pytest bench -m benchmark`. `record.py` runs some of them.

DE_BENCH_ROWS sets the rows of a table (default 10^6), DE_BENCH_ROUNDS the rounds, DE_BENCH_REPORT
the file for the result tables, and DE_BENCH_ROUNDS_FILE the file for the times of all rounds.
"""

import json
import os
import platform
from pathlib import Path

import pytest
import tensorflow as tf

from bench.rounds import Report

REPORT = pytest.StashKey[Report]()


def pytest_configure(config):
    config.stash[REPORT] = Report()


@pytest.fixture(scope="session")
def report(pytestconfig) -> Report:
    return pytestconfig.stash[REPORT]


@pytest.fixture(scope="session")
def rows() -> int:
    return int(os.environ.get("DE_BENCH_ROWS", "1000000"))


@pytest.fixture(scope="session")
def rounds() -> int:
    return int(os.environ.get("DE_BENCH_ROUNDS", "11"))


def machine() -> str:
    model = next(
        (
            line.partition(": ")[2]
            for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = " ".join(f"{each:.2f}" for each in os.getloadavg())
    return f"{model}, {os.cpu_count()} cores, load {load}, TensorFlow {tf.__version__}"


def pytest_terminal_summary(terminalreporter, config):
    report = config.stash[REPORT]
    if path := os.environ.get("DE_BENCH_ROUNDS_FILE"):
        Path(path).write_text(json.dumps(report.rounds), "utf-8")
    if not report.tables:
        return
    report.notes.insert(0, machine())
    terminalreporter.section("benchmarks")
    terminalreporter.write_line(report.text())
    if path := os.environ.get("DE_BENCH_REPORT"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(report.text(), "utf-8")
