"""Snapshot files: a shard of a table on disk, or the changes since its last snapshot.

`python -m de_core.checkpoint --help` shows how to inspect a file. `docs/snapshot-format.md`
specifies the format.
"""

from __future__ import annotations
