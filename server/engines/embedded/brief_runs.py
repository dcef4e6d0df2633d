"""Which runs are so short that the event loop may wait for them.

A thread takes longer to be handed a run, and to hand its result back, than a small model takes
for the run itself. So runs that have proven to be short are done where they are asked for.
"""

import dataclasses
import math
import time
from collections.abc import Callable

from server.tensors import SignatureSpec, Tensors

# Short runs in a row that are proof enough.
_PROOF = 16
# The event loop is held up by runs that usually take so many times longer than a short one (a
# thread's CPU time leaves out what others do for it), or by one that takes so long. Threads do the
# runs again for a while, which doubles if that recurs.
_HELD_UP = 2
_HELD_UP_SECONDS = 0.02
# How much of a run counts, and for how much, in what they usually take: the system interrupts some.
_MOST = 8
_WEIGHT = 0.125
_FIRST_BAN_SECONDS = 0.1
_LONGEST_BAN_SECONDS = 60.0


@dataclasses.dataclass
class _Record:
    """What is known of a signature's runs; sizes are numbers of values."""

    proofs: int = 0
    largest: int = -1
    smallest_long: float = math.inf
    banned_until: float = -math.inf
    ban_seconds: float = _FIRST_BAN_SECONDS
    usual_seconds: float = 0.0


class BriefRuns:
    """Learns how long the runs of one model take."""

    def __init__(
        self,
        seconds: float,
        steady: frozenset[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes the record of a model that never ran.

        Args:
            seconds: How long a short run may take; 0 if none is.
            steady: The signatures whose time depends on the sizes of their inputs only.
            clock: Tells the time in seconds.
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
        """Returns whether a run with these inputs is worth being tried as a short one."""
        if not self._seconds or signature.name not in self._steady:
            return False
        record = self._records.get(signature.name)
        # Half of it: so few runs without a deadline find where the short ones end.
        return record is None or _size(inputs) < max(record.largest + 1, record.smallest_long / 2)

    def ran_on_thread(self, signature: SignatureSpec, inputs: Tensors, seconds: float) -> None:
        """Learns from a run on a thread.

        Args:
            signature: What ran.
            inputs: On what.
            seconds: CPU time of the thread, for a run also waits for others that use Python;
                the whole time if other threads did the work.
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
        """Learns from a run that the event loop waited for."""
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
