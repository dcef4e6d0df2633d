"""Tests which runs the event loop may wait for, and which go to threads."""

import dataclasses
import importlib
import threading

import numpy as np
import pytest

from server.engines.embedded import brief_runs
from server.engines.embedded.batching import Batcher
from server.engines.embedded.brief_runs import BriefRuns, steady_signatures
from server.engines.embedded.leased_version import LeasedVersion
from server.engines.embedded.worker_pool import WorkerPool
from server.protos.modules import load_protos
from tests.server.support.numpy_engine import signature, tensor

SPEC = signature("f", [tensor("x", "int64", None)], [tensor("y", "int64", None)])
LIMIT = 0.001


@pytest.fixture(autouse=True)
def _limit(monkeypatch):
    monkeypatch.setattr(brief_runs, "_BRIEF_SECONDS", LIMIT)


def rows(count):
    return {"x": np.zeros(count, np.int64)}


def proven(size):
    brief = BriefRuns({"f"})
    prove(brief, size)
    return brief


def prove(brief, size, runs=16):
    for _ in range(runs):
        assert not brief.expects("f", size)
        brief.ran_on_thread("f", size, LIMIT / 2)
    assert brief.expects("f", size)


def test_short_runs_in_a_row_prove_inputs_up_to_their_size():
    assert not proven(8).expects("f", 9)


def test_a_long_run_disqualifies_only_inputs_of_its_size():
    brief = proven(8)
    brief.ran_on_thread("f", 8, LIMIT * 2)
    assert not brief.expects("f", 8)
    assert brief.expects("f", 7)


@pytest.mark.parametrize(("seconds", "times"), [(0.021, 1), (0.003, 9), (0.019, 3)])
def test_slow_runs_send_later_runs_to_threads(seconds, times):
    brief = proven(8)
    # Each time that the runs are slow, twice as many short ones are needed.
    for needed in [32, 64, 128, 256, 512, 1024, 2048, 4096, 4096]:
        for _ in range(times):
            assert brief.expects("f", 8)
            brief.ran_here("f", 8, seconds)
        prove(brief, 8, needed)
    # After many short runs the delays are forgotten.
    for _ in range(16 * 4096):
        brief.ran_here("f", 8, LIMIT / 2)
    while brief.expects("f", 8):
        brief.ran_here("f", 8, seconds)
    prove(brief, 8, 32)


def test_short_scheduler_delays_do_not_count_as_long_runs():
    brief = proven(8)
    for _ in range(20):
        brief.ran_here("f", 8, 0.01)
        for _ in range(16):
            brief.ran_here("f", 8, LIMIT / 2)
    assert brief.expects("f", 8)


def test_unsteady_signatures_never_count_as_short():
    brief = BriefRuns(set())
    for _ in range(32):
        brief.ran_on_thread("f", 1, 0.0)
    assert not brief.expects("f", 1)


class Model:
    """A model that returns the thread it runs on."""

    def __init__(self) -> None:
        self.signatures = {"f": SPEC}
        self.described = [SPEC]
        self.steady = frozenset({"f"})

    def run(self, _signature, inputs, _seconds=None):
        name = threading.current_thread().name
        return {"y": np.array([name] * len(inputs["x"]), object)}


@pytest.mark.parametrize("batcher", [None, lambda run: Batcher(run, 16, 0.0)])
@pytest.mark.asyncio
async def test_runs_move_to_the_event_loop_once_they_are_known_to_be_short(batcher, monkeypatch):
    monkeypatch.setattr(brief_runs, "_BRIEF_SECONDS", 10.0)
    pool = WorkerPool("model", 1, 10)
    version = LeasedVersion(1, Model(), pool, batcher)
    names = [(await version.run("f", rows(4)))["y"][0] for _ in range(20)]
    larger = (await version.run("f", rows(5)))["y"][0]
    await pool.close()
    assert names == ["model_0"] * 16 + ["MainThread"] * 4
    assert larger == "model_0"


def graph(ops, functions=()):
    """Creates a graph with a chain of ops and output `y`; an op `call g` calls the function `g`."""
    load_protos()
    message = importlib.import_module("tensorflow.core.framework.graph_pb2").GraphDef()

    def fill(node, number, op):
        name, _, function = op.partition(" ")
        node.name, node.op = f"n{number}", name
        if number:
            node.input.append(f"n{number - 1}:0" if number % 2 else f"^n{number - 1}")
        if function:
            node.attr["f"].func.name = function

    for number, op in enumerate(ops):
        fill(message.node.add(), number, op)
    for name, inner in functions:
        function = message.library.function.add()
        function.signature.name = name
        for number, op in enumerate(inner):
            fill(function.node_def.add(), number, op)
    return message


def steady(ops, functions=(), dtype="int64", last=-1):
    outputs = [
        dataclasses.replace(tensor("y", "int64", None), tensor_name=f"n{range(len(ops))[last]}:0")
    ]
    each = signature("f", [tensor("x", dtype, None)], outputs)
    return steady_signatures(graph(ops, functions), [each]) == {"f"}


def test_a_graph_is_steady_if_neither_it_nor_what_it_calls_loops():
    assert steady(["Placeholder", "MatMul", "Relu"])
    assert not steady(["Placeholder", "StatelessWhile", "Relu"])
    assert not steady(["Placeholder", "EagerPyFunc"])
    calls = ["Placeholder", "StatefulPartitionedCall f"]
    assert steady(calls, [("f", ["Relu", "PartitionedCall g"]), ("g", ["MatMul"])])
    assert not steady(calls, [("f", ["Relu", "PartitionedCall g"]), ("g", ["While f"])])
    # A loop that the signature does not run does not matter. Strings take as long as they are.
    assert steady(["Placeholder", "Relu", "While"], last=1)
    assert not steady(["Placeholder", "Relu"], dtype="string")
