"""Reads the files of `tfra.dynamic_embedding`."""

from __future__ import annotations

from de_core.tfra_files.checkpoint_import import ImportedTable, import_checkpoint

__all__ = ["ImportedTable", "import_checkpoint"]
