"""A process that changes a table and saves it, step after step, until it is killed."""

import functools
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import numpy as np
import tensorflow as tf

import de_core as de
from de_core.checkpoint import manifest

ROWS = 4000
DIM = 8
# Forking takes only milliseconds in a process that has done nothing except import this module.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


class Model(tf.Module):
    """A table and a counter of steps."""

    def __init__(self, shards: int, tier: de.DiskTier | None = None) -> None:
        super().__init__()
        self.step = tf.Variable(0, dtype=tf.int64)
        self.table = de.Variable(dim=DIM, name="t", devices=["/CPU:0"] * shards, tier=tier)


@functools.lru_cache(maxsize=4096)
def contents(step: int) -> np.ndarray:
    """Returns the table's content after a step: one number per key, NaN for a missing row."""
    if step == 0:
        return np.full([ROWS], np.nan, np.float32)
    rows = contents(step - 1).copy()
    changed, removed = changes(step)
    rows[changed] = step
    rows[removed] = np.nan
    rows[0] = step
    return rows


def changes(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the keys that a step writes and removes. The row of key 0 is the step's number."""
    if step == 1:
        return np.arange(ROWS), np.array([1])
    keys = np.random.default_rng(step).permutation(np.arange(1, ROWS))
    # A compaction merges deltas without removed rows into a delta, and others into a base.
    return np.append(keys[:300], 0), keys[300:340] if step % 8 < 2 else keys[:0]


def saver(entry_point: str, model: Model, folder: str):
    """Restores the folder's newest checkpoint; returns the entry point's save function."""
    if entry_point == "tables":
        if de.checkpoint.latest(folder + "/..") is not None:
            de.checkpoint.restore(model.table, folder)
            model.step.assign(int(model.table.lookup([0])[0, 0]))
        return lambda: de.checkpoint.save(model.table, folder)
    if entry_point == "tensorflow":
        checkpoint = tf.train.Checkpoint(target=model)
        manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        # The manager's own record of the newest checkpoint may be one save behind.
        newest = de.checkpoint.latest(folder)
        if newest is not None:
            checkpoint.restore(newest).assert_existing_objects_matched()
        return manager.save
    options = {"consistent": True, "base_every": 5} if entry_point == "consistent" else {}
    manager = de.checkpoint.Manager(model, folder, max_to_keep=2, compact_after=3, **options)
    manager.restore()
    return manager.save


def save_and_die(folder: str, before_the_manifest: bool) -> None:
    """Saves a table; the process is killed just before or just after it writes the manifest."""
    model = Model(shards=1)
    model.table.upsert([7], np.ones([1, DIM], np.float32))
    write = manifest.write

    def killed(*arguments: object) -> None:
        if not before_the_manifest:
            write(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    manifest.write = killed
    de.checkpoint.save(model.table, folder)


def save_until_killed(entry_point: str, folder: str, shards: int, told: Connection) -> None:
    """Sends the number of its first step, then the number of each step whose save has returned."""
    # A killed process leaves the files of its tier, and the next one uses the same folder.
    tier = de.DiskTier(f"{folder}-tier", memory_bytes=40_000) if entry_point == "tier" else None
    model = Model(shards, tier)
    save = saver(entry_point, model, folder)
    step = int(model.step)
    told.send(step)
    while True:
        step += 1
        changed, removed = changes(step)
        values = np.full([len(changed), DIM], step, np.float32)
        model.table.upsert(changed, values)
        model.table.remove(removed)
        model.step.assign(step)
        save()
        told.send(step)
