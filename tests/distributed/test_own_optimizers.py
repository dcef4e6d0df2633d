"""A collection whose tables have optimizers of their own trains like dense variables."""

import pytest

from tests.distributed.support.processes import PROGRAMS, result_of

PROGRAM = PROGRAMS / "own_optimizers.py"
TABLES = 3
WAYS = ["wrapped", "plain"]
pytestmark = pytest.mark.slow


def check(found):
    assert found["rows"] < 1e-5
    assert found["moved"] > 1e-2
    assert found["dense"] < 1e-5
    assert found["steps"] == [4] * TABLES


@pytest.mark.parametrize("way", WAYS)
def test_a_coordinator_trains_tables_on_servers(cluster, way):
    processes = cluster(ps=2, worker=1, chief=1)
    processes.serve_all("ps", "worker")
    processes.start("chief", PROGRAM, "servers", way)
    check(result_of(processes.finish("chief")))


@pytest.mark.parametrize("way", WAYS)
def test_tables_on_servers_share_requests_under_a_wrapped_optimizer(cluster, way):
    processes = cluster(ps=2, worker=1)
    processes.serve_all("ps")
    processes.start("worker", PROGRAM, "alone", way)
    found = result_of(processes.finish("worker"))
    check(found)
    # The ids, and the gradients with the settings of all rules; then the rows, and a signal that
    # the update is done. Keras hands over one gradient after the other, so each makes a request.
    sent, received = found["tensors"]
    if way == "wrapped":
        assert (sent, received) == (2, 2)
    else:
        assert sent >= 2 * TABLES
        assert received == 1 + TABLES


@pytest.mark.parametrize("way", WAYS)
def test_of_workers_in_step(cluster, way):
    processes = cluster(worker=2)
    for name in processes.start_workers(PROGRAM, "worker", way):
        found = result_of(processes.finish(name))
        check(found)
        # Counts, keys, rows, and the gradients: once for all tables, or once for each.
        assert found["collectives"] == 3 + (1 if way == "wrapped" else TABLES)
