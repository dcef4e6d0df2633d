"""Snapshot files: a whole table on disk.

`python -m de_core.checkpoint --help` shows how to inspect a file. `docs/snapshot-format.md`
specifies the format.
"""

from __future__ import annotations
