"""Decides which runs are so short that the event loop may wait for them.

Handing a run to a thread, and its result back, takes longer than a small model's run itself. So
once a signature's runs have proven to be short, the next ones run in the event loop.
"""

import dataclasses
import math
import time
from collections.abc import Callable

from ...tensors import SignatureSpec, Tensors

# This many short runs in a row prove that a signature is short.
_PROOF = 16
# A signature delays the event loop if its runs there take, on average, more than this many times
# the longest time of a short run, or if one run takes more than this many seconds. (On a thread
# such runs may have looked shorter, because a thread's CPU time omits the work of other threads.)
# The signature then runs on threads for a while, and twice as long if it delays the event loop
# again.
_HELD_UP = 2
_HELD_UP_SECONDS = 0.02
# The moving average of run times counts at most this many times the longest time of a short run, so
# that a run which the system interrupted does not dominate it. _WEIGHT is the weight of a new run.
_MOST = 8
_WEIGHT = 0.125
_FIRST_BAN_SECONDS = 0.1
_LONGEST_BAN_SECONDS = 60.0


@dataclasses.dataclass
class _Record:
    """A signature's past runs. The size of a run is the number of values in its inputs."""

    proofs: int = 0
    largest: int = -1
    smallest_long: float = math.inf
    banned_until: float = -math.inf
    ban_seconds: float = _FIRST_BAN_SECONDS
    usual_seconds: float = 0.0


class BriefRuns:
    """Records how long the runs of one model take."""

    def __init__(
        self,
        seconds: float,
        steady: frozenset[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the record of a model that has not run yet.

        Args:
            seconds: Longest time of a short run; 0 if no run is short.
            steady: The signatures whose time depends only on the sizes of their inputs.
            clock: Returns the time in seconds.
        """
        self._seconds = seconds
        self._steady = steady
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def expects(self, signature: SignatureSpec, inputs: Tensors) -> bool:
        """Returns whether a run with these inputs will be short."""
        record = self._records.get(signature.name)
        return (
            record is not None
            and record.proofs >= _PROOF
            and _size(inputs) <= record.largest
            and self._clock() >= record.banned_until
        )

    def may_be_brief(self, signature: SignatureSpec, inputs: Tensors) -> bool:
        """Returns whether a run with these inputs should be tried as a short run."""
        if not self._seconds or signature.name not in self._steady:
            return False
        record = self._records.get(signature.name)
        # A run that is tried has no deadline, so few tried runs may turn out long. Among sizes that
        # were never short, try only those below half of the smallest size that was long.
        return record is None or _size(inputs) < max(record.largest + 1, record.smallest_long / 2)

    def ran_on_thread(self, signature: SignatureSpec, inputs: Tensors, seconds: float) -> None:
        """Records a run on a thread.

        Args:
            signature: The signature that ran.
            inputs: Its inputs.
            seconds: The thread's CPU time, which excludes waiting for the interpreter lock. The
                elapsed time if other threads did the work.
        """
        if not self._seconds or signature.name not in self._steady:
            return
        record = self._records.setdefault(signature.name, _Record())
        size = _size(inputs)
        if seconds <= self._seconds:
            record.proofs += 1
            record.largest = max(record.largest, size)
            if size >= record.smallest_long:
                record.smallest_long = math.inf
        else:
            record.smallest_long = min(record.smallest_long, size)
            record.largest = min(record.largest, size - 1)
            record.proofs = record.proofs if record.largest >= 0 else 0

    def ran_here(self, signature: SignatureSpec, inputs: Tensors, seconds: float) -> None:
        """Records a run that the event loop waited for."""
        record = self._records[signature.name]
        counted = min(seconds, _MOST * self._seconds)
        record.usual_seconds += _WEIGHT * (counted - record.usual_seconds)
        if record.usual_seconds <= _HELD_UP * self._seconds and seconds <= _HELD_UP_SECONDS:
            return
        record.usual_seconds = 0.0
        record.proofs = 0
        record.largest = _size(inputs) - 1
        now = self._clock()
        recurs = now - record.banned_until < 10 * record.ban_seconds
        longer = min(2 * record.ban_seconds, _LONGEST_BAN_SECONDS)
        record.ban_seconds = longer if recurs else _FIRST_BAN_SECONDS
        record.banned_until = now + record.ban_seconds


def _size(inputs: Tensors) -> int:
    return sum(array.size for array in inputs.values())
