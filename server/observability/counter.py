"""A Prometheus counter that takes little time, because every request updates one.

prometheus_client's own counter takes a lock per count, and another lock to find the label values.
This counter needs none, because only one event loop counts.
"""

from collections import defaultdict
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
        #: The counts by the values of the labels, which may be numbers.
        self.counts: defaultdict[tuple[str | int, ...], float] = defaultdict(float)
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Returns the metric without values."""
        return [CounterMetricFamily(self._name, self._documentation, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """Returns the metric."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for labels, count in self.counts.items():
            family.add_metric([str(label) for label in labels], count)
        yield family
