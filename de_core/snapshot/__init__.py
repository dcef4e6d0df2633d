"""Snapshot files: a shard of a table on disk, or the changes since its last snapshot.

`de-core inspect FILE` describes a file. `docs/reference/snapshot-format.md`
specifies the format.
"""

from __future__ import annotations
