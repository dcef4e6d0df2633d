"""Snapshot files: a table on disk, read and written whole.

`python -m de_core.checkpoint --help` shows what such a file holds. `docs/snapshot-format.md`
specifies it.
"""

from __future__ import annotations
