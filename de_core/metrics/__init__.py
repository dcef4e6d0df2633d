"""Numbers of tables while they train: as a dict, in TensorBoard, and for Prometheus."""

from __future__ import annotations

from de_core.metrics.monitor import Monitor
from de_core.metrics.prometheus import serve

__all__ = ["Monitor", "serve"]
