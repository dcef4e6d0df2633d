"""Interleaved measurements, and the tables of their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Measured:
    """Seconds of one measurement, by round."""

    items: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def rate(self) -> float:
        """Million items per second of wall time, the median."""
        return self.items / statistics.median(self.wall) / 1e6


class Rounds:
    """Runs every measurement once per round. Each round begins with another measurement.

    So a temporary disturbance of the machine affects all measurements. Ratios are medians over
    rounds.
    """

    def __init__(self) -> None:
        self._bodies: dict[str, Callable[[], object]] = {}
        self._before: dict[str, Callable[[], object]] = {}
        self.measured: dict[str, Measured] = {}

    def add(
        self,
        name: str,
        items: int,
        body: Callable[[], object],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self._bodies[name] = body
        self._before[name] = before
        self.measured[name] = Measured(items)

    def run(self, rounds: int, warm_up: int = 1) -> None:
        names = list(self._bodies)
        for number in range(-warm_up, rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                self._before[name]()
                cpu, wall = time.process_time(), time.perf_counter()
                self._bodies[name]()
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
                if number >= 0:
                    self.measured[name].wall.append(wall)
                    self.measured[name].cpu.append(cpu)

    def ratio(self, over: str, under: str, clock: str = "wall") -> float:
        """Returns how many times faster `over` is than `under`, by "wall" time or "cpu" time."""
        a, b = self.measured[over], self.measured[under]
        return statistics.median(
            (a.items / s) / (b.items / t)
            for s, t in zip(getattr(a, clock), getattr(b, clock), strict=True)
        )


@dataclass(frozen=True)
class Bar:
    """The goal for a ratio."""

    name: str
    measured: float
    bar: float
    stretch: float

    def verdict(self) -> str:
        if self.measured < self.bar:
            return "**MISSED**"
        return "stretch" if self.measured >= self.stretch else "reached"


class Report:
    """Markdown tables in the order of the tests, with the goals at the end."""

    def __init__(self) -> None:
        self.tables: dict[str, list[list[str]]] = {}
        self.bars: list[Bar] = []
        self.notes: list[str] = []
        self.rounds: list[dict[str, Any]] = []

    def keep(self, operation: str, case: str, measures: Rounds) -> None:
        """Keeps the rounds of one case for `record.py`."""
        rounds = {name: asdict(each) for name, each in measures.measured.items()}
        self.rounds.append({"operation": operation, "case": case, "rounds": rounds})

    def row(self, title: str, cells: dict[str, object]) -> None:
        table = self.tables.setdefault(title, [list(cells)])
        table.append([f"{v:.2f}" if isinstance(v, float) else str(v) for v in cells.values()])

    def text(self) -> str:
        tables = dict(self.tables)
        tables["Bars"] = [["case", "measured", "bar", "stretch", ""]] + [
            [each.name, f"{each.measured:.2f}", str(each.bar), str(each.stretch), each.verdict()]
            for each in self.bars
        ]
        parts = []
        for title, rows in tables.items():
            lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
            parts.append(f"### {title}\n\n" + "\n".join(f"| {' | '.join(r)} |" for r in lines))
        return "\n\n".join([*self.notes, *parts]) + "\n"
