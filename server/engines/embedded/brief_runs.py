"""Decides which runs are so short that the event loop may wait for them.

Handing a run to a thread, and its result back, takes longer than a small model's run itself. So
once a signature's runs have proven to be short, the next ones run in the event loop. This holds
only for *steady* signatures, whose time depends only on the sizes of their inputs.
"""

import dataclasses
import math
import re
from collections.abc import Iterable
from typing import Any

from ...tensors import Kind, SignatureSpec

# Handing a run to a thread takes about this many seconds. Shorter runs are short.
_BRIEF_SECONDS = 0.00025
# This many short runs in a row prove that a signature is short. Each time that it then delays the
# event loop, twice as many are needed, up to _MOST_PROOF.
_PROOF = 16
_MOST_PROOF = 4096
# After this many short runs in a row, earlier delays no longer count.
_FORGIVEN = 16 * _MOST_PROOF
# A signature delays the event loop if its runs there take, on average, more than this many times
# the longest time of a short run, or if one run takes more than this many seconds. (On a thread
# such runs may have looked shorter, because a thread's CPU time omits the work of other threads.)
_HELD_UP = 2
_HELD_UP_SECONDS = 0.02
# The moving average of run times counts at most this many times the longest time of a short run, so
# that a run which the system interrupted does not dominate it. _WEIGHT is the weight of a new run.
_MOST = 8
_WEIGHT = 0.125
_UNSTEADY = re.compile(
    r"While|^For$|^Enter$|PyFunc|Queue|Barrier|Dataset|Iterator|MapDefun|File|Stage|Recv|Mutex"
)


@dataclasses.dataclass
class _Record:
    """A signature's past runs. The size of a run is the number of values in its inputs."""

    proofs: int = 0
    needed: int = _PROOF
    largest: int = -1
    smallest_long: float = math.inf
    usual_seconds: float = 0.0


class BriefRuns:
    """Records how long the runs of one model take, by signature and number of input values."""

    def __init__(self, steady: Iterable[str]) -> None:
        """Creates the record of a model that has not run yet.

        Args:
            steady: The signatures whose time depends only on the sizes of their inputs.
        """
        self._records = {name: _Record() for name in steady}

    def expects(self, signature: str, size: int) -> bool:
        """Returns whether a run of this size will be short."""
        record = self._records.get(signature)
        return record is not None and record.proofs >= record.needed and size <= record.largest

    def may_be_brief(self, signature: str, size: int) -> bool:
        """Returns whether a run of this size should be tried as a short run."""
        record = self._records.get(signature)
        # A run that is tried has no deadline, so few tried runs may turn out long. Among sizes that
        # were never short, try only those below half of the smallest size that was long.
        return record is not None and size < max(record.largest + 1, record.smallest_long / 2)

    def ran_on_thread(self, signature: str, size: int, seconds: float) -> None:
        """Records a run on a thread.

        `size` is the number of values in the inputs. `seconds` is the thread's CPU time, which
        excludes waiting for the interpreter lock. It is the elapsed time if other threads did the
        work.
        """
        record = self._records.get(signature)
        if record is None:
            return
        if seconds <= _BRIEF_SECONDS:
            record.proofs += 1
            record.largest = max(record.largest, size)
            if size >= record.smallest_long:
                record.smallest_long = math.inf
        else:
            record.smallest_long = min(record.smallest_long, size)
            record.largest = min(record.largest, size - 1)
            record.proofs = record.proofs if record.largest >= 0 else 0

    def ran_here(self, signature: str, size: int, seconds: float) -> None:
        """Records a run that the event loop waited for."""
        record = self._records[signature]
        counted = min(seconds, _MOST * _BRIEF_SECONDS)
        record.usual_seconds += _WEIGHT * (counted - record.usual_seconds)
        if record.usual_seconds <= _HELD_UP * _BRIEF_SECONDS and seconds <= _HELD_UP_SECONDS:
            record.proofs += 1
            if record.proofs > _FORGIVEN:
                record.needed = _PROOF
            return
        record.usual_seconds = 0.0
        record.proofs = 0
        record.needed = min(2 * record.needed, _MOST_PROOF)
        record.largest = size - 1


def steady_signatures(graph: Any, signatures: Iterable[SignatureSpec]) -> frozenset[str]:
    """Returns the names of the steady signatures.

    A steady signature has no string inputs, because the time of string ops depends on lengths. It
    runs no loop, whose time depends on values, and no Python op, queue or similar op, which may
    take any time.

    `graph` is the GraphDef message of the signatures. Their specs must have tensor names.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {each.signature.name: each.node_def for each in graph.library.function}
    return frozenset(
        signature.name
        for signature in signatures
        if all(spec.dtype.kind is not Kind.STRING for spec in signature.inputs.values())
        and not any(_UNSTEADY.search(op) for op in _ops(signature, nodes, functions))
    )


def _ops(signature: SignatureSpec, nodes: dict[str, Any], functions: dict[str, Any]) -> set[str]:
    """Returns the ops of a signature and of the functions that it calls."""
    wanted = [spec.tensor_name for spec in signature.outputs.values()]
    ran: dict[str, Any] = {}
    while wanted:
        name = wanted.pop().lstrip("^").split(":", 1)[0]
        if name not in ran:
            ran[name] = nodes[name]
            wanted += nodes[name].input
    ops: set[str] = set()
    called: set[str] = set()
    todo = list(ran.values())
    while todo:
        node = todo.pop()
        ops.add(node.op)
        for value in node.attr.values():
            names = [value.func.name] if value.HasField("func") else []
            for function in (*names, *(each.name for each in value.list.func)):
                if function not in called:
                    called.add(function)
                    todo += functions.get(function, ())
    return ops
