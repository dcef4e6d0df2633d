"""A counter for the path that every request takes.

prometheus_client's own takes a lock for each count, and another one to find the label values; this
one is for a single event loop.
"""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class LoopCounter(Collector):
    """A counter that is counted up from one event loop only."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        """Makes the counter, without values, and registers it.

        Args:
            name: The metric's name, without `_total`.
            documentation: What it tells.
            labels: Names of its labels.
            registry: Where it is registered.
        """
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._counts: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def add(self, labels: tuple[str, ...], amount: float = 1.0) -> None:
        """Counts up; `labels` are the values of the labels in order."""
        self._counts[labels] = self._counts.get(labels, 0.0) + amount

    def describe(self) -> Iterable[Metric]:
        """Returns the metric without values."""
        return [CounterMetricFamily(self._name, self._documentation, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """Returns the metric."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family
