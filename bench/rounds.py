"""Measures libraries in turns, so that all meet the same disturbances of the machine.

`Rounds` measures in this process. `Child`, `answer` and `interleaved` let several processes take
turns: a child calls `answer`, the parent starts its children with `Child` and calls `interleaved`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

OURS = "de_core"
Quartiles = tuple[float, float, float]
#: By operation: the function, its batches, and the passes over them per turn.
Runs = Mapping[str, tuple[Callable, Sequence, int]]


@dataclass
class Measured:
    """The items of one round, and the seconds of each round. `wall` is empty if not measured."""

    items: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Rounds:
    """Runs every measurement once per round. Each round begins with another measurement."""

    def __init__(self) -> None:
        self._bodies: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {}
        self.measured: dict[str, Measured] = {}

    def add(
        self,
        name: str,
        items: int,
        body: Callable[[], object],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """Adds a measurement; the time of `before` does not count."""
        self._bodies[name] = before, body
        self.measured[name] = Measured(items)

    def run(self, rounds: int, warm_up: int = 1) -> dict[str, Measured]:
        names = list(self._bodies)
        for number in range(-warm_up, rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                before, body = self._bodies[name]
                before()
                cpu, wall = time.process_time(), time.perf_counter()
                body()
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                if number >= 0:
                    self.measured[name].wall.append(wall)
                    self.measured[name].cpu.append(cpu)
        return self.measured


@dataclass
class Measure:
    """The speed of one library in one case, in million items per second.

    Attributes:
        wall: The quartiles by wall time; None if it was not measured.
        cpu: The quartiles by CPU time.
        ours: The quartiles of our speed divided by the library's, round by round, by wall time, or
            by CPU time if there is no wall time.
    """

    part: str  # "engine", "ops" or "libraries"
    operation: str
    case: str
    library: str
    wall: Quartiles | None
    cpu: Quartiles | None
    ours: Quartiles | None = None


def measures_of(
    part: str, operation: str, case: str, measured: Mapping[str, Measured]
) -> list[Measure]:
    """Returns the measures of one case. The first library is compared with the others."""

    def quartiles(values: np.ndarray) -> Quartiles | None:
        return tuple(np.percentile(values, [25, 50, 75]).tolist()) if values.size else None

    found: list[Measure] = []
    ours = next(iter(measured.values()))
    for library, own in measured.items():
        wall, cpu = (own.items / np.array(clock) / 1e6 for clock in (own.wall, own.cpu))
        clock = "wall" if own.wall else "cpu"
        ratios = np.array(getattr(own, clock)) / getattr(ours, clock) * (ours.items / own.items)
        ratio = quartiles(ratios) if found else None
        found.append(
            Measure(part, operation, case, library, quartiles(wall), quartiles(cpu), ratio)
        )
    return found


def cell(numbers: Quartiles | None) -> str:
    return "" if numbers is None else "{1:.3g} ({0:.3g} to {2:.3g})".format(*numbers)


def table(measures: Iterable[Measure]) -> str:
    """Returns a Markdown table of measures, and a paragraph that explains it."""
    lines = [
        "Million items per second: median (lower to upper quartile). The last column is our speed "
        "divided by the library's, round by round.",
        "",
        "| operation | case | library | wall | CPU | de_core / library |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.operation} | {each.case} | {each.library} | {cell(each.wall)} "
        f"| {cell(each.cpu)} | {cell(each.ours)} |"
        for each in measures
    ]
    return "\n".join(lines)


def arguments_of(text: str) -> argparse.ArgumentParser:
    """Returns a parser whose help begins with a program's docstring."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(description=text, formatter_class=form)


def back_free_memory(size: int = 1 << 30) -> None:
    """Makes a virtual machine's host provide memory, so that its time does not count."""
    np.empty(size, np.uint8)[::4096] = 1


def answer(runs: Runs, about: object) -> None:
    """Measures the operation that a line of the standard input names, until the input ends.

    Warms up, and prints `about` as a JSON line. Then it prints one line per turn: the wall time of
    each call and the mean CPU time per call, in ms.
    """
    for run, batches, _ in runs.values():  # traces the functions, and wakes the threads
        for batch in batches[:3]:
            run(batch)
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
        operation: The measured operation.
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
