"""Fixtures that start clusters and stop them at the end of their test."""

import pytest

from tests.distributed.support.processes import Cluster


@pytest.fixture
def cluster(tmp_path):
    started = []

    def make(**jobs):
        started.append(Cluster(tmp_path, **jobs))
        return started[-1]

    yield make
    for each in started:
        each.stop()
