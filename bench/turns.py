"""Lets processes measure in turns: while one measures, the others wait.

So all meet the same disturbances of the machine. A child calls `answer`; the parent starts its
children with `Child` and calls `interleaved`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

#: By operation: the function, its batches, and the passes over them per turn.
Runs = Mapping[str, tuple[Callable, Sequence, int]]


def answer(runs: Runs, about: object) -> None:
    """Measures the operation that a line of the standard input names, until the input ends.

    Prints `about` as a JSON line first. Then it prints one line per turn: the wall time of each
    call and the mean CPU time per call, in ms.
    """
    _say(about)
    for line in sys.stdin:
        run, batches, passes = runs[line.strip()]
        wall, cpu = [], time.process_time()
        for _ in range(passes):
            for batch in batches:
                begin = time.perf_counter()
                run(batch)
                wall.append(1e3 * (time.perf_counter() - begin))
        _say([wall, 1e3 * (time.process_time() - cpu) / len(wall)])


def _say(what: object) -> None:
    print(json.dumps(what), file=sys.__stdout__, flush=True)


class Child:
    """A process that measures when it is asked."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._command = command
        self.about = self._line()

    def turn(self, operation: str) -> tuple[list[float], float]:
        """Returns the wall time of each call and the mean CPU time per call, in ms."""
        print(operation, file=self._process.stdin, flush=True)
        wall, cpu = self._line()
        return wall, cpu

    def end(self) -> None:
        with self._process:  # closes the pipes and waits
            pass

    def _line(self):
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"A process must measure. Run it to see why it ended: {self._command}")
        return json.loads(line)


def interleaved(
    children: Sequence[Child],
    operation: str,
    turns: int,
    middle: Callable[[Iterable[float]], float] = statistics.median,
    prepare: Callable[[], None] = lambda: None,
) -> list[tuple[float, float]]:
    """Returns each child's wall and CPU time per call of an operation, in ms.

    Args:
        children: The processes.
        operation: What they measure.
        turns: Turns per process.
        middle: `statistics.median`, or `statistics.fmean` if rare slow calls are part of the work.
        prepare: Runs in this process before each turn.
    """
    results = [[] for _ in children]
    for turn in range(turns):
        for number in range(len(children))[:: 1 if turn % 2 == 0 else -1]:
            prepare()
            results[number].append(children[number].turn(operation))
    return [
        (middle(time for wall, _ in own for time in wall), middle(cpu for _, cpu in own))
        for own in results
    ]
