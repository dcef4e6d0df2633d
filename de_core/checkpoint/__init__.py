"""Checkpoints of tables, alone or with the rest of a model."""

from __future__ import annotations

from de_core.checkpoint.callback import IncrementalCheckpoint
from de_core.checkpoint.manager import Manager
from de_core.checkpoint.save_restore import restore, save
from de_core.checkpoint.sources import latest
from de_core.checkpoint.table_state import TableState

__all__ = ["IncrementalCheckpoint", "Manager", "TableState", "latest", "restore", "save"]
