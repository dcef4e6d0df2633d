"""Compacts the files of an incremental checkpoint in a thread, while training continues."""

from __future__ import annotations

import threading
from typing import TypeAlias

from de_core.base import paths
from de_core.base.ops import library
from de_core.checkpoint import reference
from de_core.snapshot.file import about
from de_core.tables.sharded import ShardedTable

#: One list per shard of a table: its base and the deltas that follow, each as file name and id.
Chains: TypeAlias = list[list[tuple[str, str]]]


class Compaction:
    """A thread that compacts chains of files.

    Args:
        folder: The folder of the files.
        prefix: Prefix of the checkpoint whose name the new files get.
        chains: The chains to compact, by table.
        most_kept: Number of files of a chain to keep at most.
    """

    def __init__(
        self, folder: str, prefix: str, chains: dict[ShardedTable, Chains], most_kept: int
    ) -> None:
        #: For each shard the merged files, and the file that replaces them.
        self.made: dict[ShardedTable, list[tuple[list[tuple[str, str]], tuple[str, str]]]] = {}
        self.error: BaseException | None = None
        self._work = []
        for table, each in chains.items():
            targets = reference.file_names(prefix, len(each))
            self._work.append((table, [list(chain) for chain in each], targets))
        #: The names of the new files.
        self.targets = {paths.base_name(path) for _, _, made in self._work for path in made}
        self._folder = folder
        self._most_kept = most_kept
        self.thread = threading.Thread(target=self._run, name="de_core compaction", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            for table, chains, targets in self._work:
                made = []
                files = [[paths.join(self._folder, name) for name, _ in each] for each in chains]
                first = _first_to_merge(files, self._most_kept)
                for chain, own, target in zip(chains, files, targets, strict=True):
                    library.de_snapshot_compact(own[first:], target)
                    made.append((chain[first:], (paths.base_name(target), chain[-1][1])))
                self.made[table] = made
        except Exception as error:  # The next save logs it and writes a base.
            self.error = error


def _first_to_merge(files: list[list[str]], most_kept: int) -> int:
    """Returns the number of the first file that a compaction merges with all later ones.

    At most `most_kept` files remain, each at least twice as large as all later ones together. So a
    row is written again a few times, not once per compaction. Deltas with tombstones end in a base,
    because only a new base lacks the bytes of removed rows.

    Args:
        files: The files of each shard. All chains of a table have the same length before and after.
        most_kept: Number of files of a chain to keep at most.
    """
    infos = [list(map(about, shards)) for shards in zip(*files, strict=True)]
    if any(info["tombstones"] for shards in infos for info in shards):
        return 0
    sizes = [sum(info["bytes"] for info in shards) for shards in infos]
    first = len(sizes) - 1
    while first > 0 and (sizes[first - 1] <= 2 * sum(sizes[first:]) or first > most_kept):
        first -= 1
    return first
