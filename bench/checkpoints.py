"""Measures saves and restores of a table beside the disk, upserts and MutableHashTable.

The last case is training steps while a save runs.

Run: python bench/checkpoints.py FOLDER --rows 1000000 --dim 64 --rounds 3
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import tensorflow as tf
from ops import FILL, PEER, Case, fill, new_table, random_keys
from rounds import OURS, Rounds, arguments_of, measures_of, table

import de_core as de

STEPS = 500  # a save beside training takes longer than these steps


def beside_the_disk(folder: Path, rows: int, dim: int, rounds: int) -> Iterator[Case]:
    keys = random_keys(rows)
    parts = [tf.constant(keys[at : at + FILL]) for at in range(0, rows, FILL)]
    zeros = tf.zeros([FILL, dim])
    saved = de.Variable(dim=dim, name="saved", init_size=rows)
    fill(saved.upsert, keys, dim)
    de.checkpoint.save(saved, folder / "kept")
    size = sum(file.stat().st_size for file in (folder / "kept").glob("*.de"))
    block = np.random.default_rng(0).bytes(1 << 22)
    fresh = []

    def write() -> None:
        with (folder / "plain").open("wb", buffering=0) as file:
            for at in range(0, size, len(block)):
                file.write(block[: size - at])
            os.fsync(file.fileno())

    def make() -> None:
        fresh[:] = [de.Variable(dim=dim, name="saved", init_size=rows)]

    def upsert() -> None:
        for part in parts:
            fresh[0].upsert(part, zeros[: len(part)])

    case = f"{rows} rows, dim {dim}"
    saves, restores = Rounds(), Rounds()
    saves.add(
        OURS,
        rows,
        lambda: de.checkpoint.save(saved, folder / "again"),
        before=partial(shutil.rmtree, folder / "again", ignore_errors=True),
    )
    saves.add("sequential write, fsync", rows, write)
    yield "save", f"{case}, file {size / rows / (8 + 4 * dim):.2f} x its bytes", saves.run(rounds)
    restores.add(OURS, rows, lambda: de.checkpoint.restore(fresh[0], folder / "kept"), make)
    restores.add("upsert", rows, upsert, make)
    yield "restore", case, restores.run(rounds)
    assert int(fresh[0].size()) == rows


def beside_the_peer(folder: Path, rows: int, dim: int, rounds: int) -> Iterator[Case]:
    """Both tables are in a `tf.train.Checkpoint`."""
    keys, saves, restores = random_keys(rows), Rounds(), Rounds()
    for library in (OURS, PEER):
        owners = [tf.Module(), tf.Module()]
        for owner in owners:
            owner.table, owner.insert = new_table(library, dim)
        fill(owners[0].insert, keys, dim)
        path = str(folder / library)
        saves.add(library, rows, partial(tf.train.Checkpoint(t=owners[0].table).write, path))
        restores.add(library, rows, partial(tf.train.Checkpoint(t=owners[1].table).read, path))
    case = f"{rows} rows, dim {dim}"
    yield "tf.train.Checkpoint: save", case, saves.run(rounds)
    yield "tf.train.Checkpoint: restore", case, restores.run(rounds)
    assert int(owners[1].table.size()) == rows


def beside_training(folder: Path, rows: int, dim: int, rounds: int) -> Iterator[Case]:
    """Measures training steps while a save runs."""
    keys, random = random_keys(rows), np.random.default_rng(0)
    trained = de.Variable(dim=dim, name="trained", init_size=rows)
    fill(trained.upsert, keys, dim)
    save = partial(de.checkpoint.save, trained, folder / "full")
    batches = [tf.constant(random.choice(keys, 4096)) for _ in range(64)]
    saving = []

    @tf.function
    def step(ids):
        trained.upsert(ids, trained.lookup(ids) + 1.0)
        # The rest of a model's step, which does not use the table.
        work = tf.random.stateless_normal([256, 256], [1, 2])
        for _ in range(8):
            work = tf.linalg.matmul(work, work) / 256.0
        return work

    def train() -> None:
        for number in range(STEPS):
            step(batches[number % len(batches)])

    def wait() -> None:
        while saving:
            saving.pop().join()

    def start(consistent: bool) -> None:
        wait()
        saving.append(threading.Thread(target=partial(save, consistent=consistent)))
        saving[0].start()

    steps = Rounds()
    steps.add("step alone", STEPS, train, before=wait)
    steps.add("beside a save", STEPS, train, before=partial(start, False))
    steps.add("beside a consistent save", STEPS, train, before=partial(start, True))
    yield "training steps", f"{rows} rows, dim {dim}", steps.run(rounds)
    wait()


def main() -> None:
    parser = arguments_of(__doc__)
    parser.add_argument("folder", type=Path, help="on the disk to measure; its files are replaced")
    parser.add_argument("--rows", type=int, default=1_000_000, help="default 10^6")
    parser.add_argument("--dim", type=int, default=64, help="default 64")
    parser.add_argument("--rounds", type=int, default=3, help="default 3")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    measures = [
        each
        for cases in (beside_the_disk, beside_the_peer, beside_training)
        for case in cases(given.folder, given.rows, given.dim, given.rounds)
        for each in measures_of("checkpoints", *case)
    ]
    print(table(measures))


if __name__ == "__main__":
    main()
