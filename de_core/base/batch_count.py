"""The number of batches that a Keras callback has seen."""

from __future__ import annotations


class BatchCount:
    """Counts batches, and tells when a further `every` of them are complete.

    With `steps_per_execution` Keras calls a callback once for several batches.
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._last = -1  # Keras's number of the last batch; it begins again in each epoch
        self.batches = 0

    def is_due(self, batch: int) -> bool:
        """Counts the batches up to `batch`, the number in Keras's call."""
        before = self.batches
        self.batches += batch - self._last if batch > self._last else batch + 1
        self._last = batch
        return self._every is not None and self.batches // self._every > before // self._every
