"""A Prometheus counter that takes little time, because every request updates one.

prometheus_client's own counter takes a lock per count, and another lock to find the label values.
This counter needs none, because only one event loop counts.
"""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class LoopCounter(Collector):
    """A counter for a single event loop."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        """Creates the counter without values, and registers it.

        Args:
            name: The metric's name, without `_total`.
            documentation: The metric's description.
            labels: Names of its labels.
            registry: The registry that exposes the counter.
        """
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._counts: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def add(self, labels: tuple[str, ...], amount: float = 1.0) -> None:
        """Adds an amount; `labels` are the values of the labels in order."""
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
