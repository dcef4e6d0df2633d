"""Saves and restores tables; compares with the disk, plain insertion and MutableHashTable."""

import itertools
import os
import re
import shutil
import statistics
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from bench.peers import BATCH, random_keys
from bench.rounds import Bar

pytestmark = pytest.mark.benchmark
ROUNDS = 3
MIB = 1 << 20


def seconds(body):
    began = time.perf_counter()
    body()
    return time.perf_counter() - began


def write_like_dd(path, size):
    """Writes this many bytes sequentially and waits until they are on the disk."""
    block = np.random.default_rng(0).bytes(4 * MIB)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for at in range(0, size, len(block)):
        os.write(descriptor, block[: min(len(block), size - at)])
    os.fsync(descriptor)
    os.close(descriptor)


class PeakMemory:
    """Measures peak resident memory without pages of mapped files, in MiB.

    Attributes: `mib` is the peak minus the memory at the start; `mib_passing` is the peak minus the
    memory at the end.
    """

    def __enter__(self):
        Path("/proc/self/clear_refs").write_text("5")
        self._before = self._anonymous()
        self._most = self._before
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        self.mib = (self._most - self._before) / 1024
        self.mib_passing = (self._most - self._anonymous()) / 1024

    def _watch(self):
        while not self._stop.wait(0.002):
            self._most = max(self._most, self._anonymous())

    def _anonymous(self):
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+)", status)[1])


def fill(insert, keys, dim):
    for at in range(0, len(keys), BATCH):
        part = keys[at : at + BATCH]
        insert(tf.constant(part), tf.zeros([len(part), dim]))


@pytest.mark.parametrize(("dim", "factor"), [(64, 1), (16, 10)])
def test_save_and_restore(report, rows, tmp_path, dim, factor):
    rows = rows * factor
    keys = random_keys(rows)
    table = de.Variable(dim=dim, name=f"bench_save_{dim}", init_size=rows)
    fill(table.upsert, keys, dim)
    payload = rows * (8 + 4 * dim)
    saves, raw, restores, inserts, memory, passing = [], [], [], [], [], []
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        with PeakMemory() as peak:
            saves.append(seconds(lambda folder=folder: de.checkpoint.save(table, folder)))
        memory.append(peak.mib)
        [file] = folder.glob("*.de")
        size = file.stat().st_size
        raw.append(seconds(lambda size=size: write_like_dd(tmp_path / "raw", size)))
        fresh = de.Variable(dim=dim, name="fresh", init_size=rows)
        inserts.append(seconds(lambda fresh=fresh: fill(fresh.upsert, keys, dim)))
        del fresh
        fresh = de.Variable(dim=dim, name=table.name, init_size=rows)
        with PeakMemory() as peak:
            restores.append(
                seconds(lambda f=fresh, folder=folder: de.checkpoint.restore(f, folder))
            )
        passing.append(peak.mib_passing)
        assert int(fresh.size()) == rows
        del fresh
        shutil.rmtree(folder)
    save, restore = statistics.median(saves), statistics.median(restores)
    save_ratio = statistics.median(a / b for a, b in zip(raw, saves, strict=True))
    restore_ratio = statistics.median(a / b for a, b in zip(inserts, restores, strict=True))
    report.row(
        "Save and restore of one table",
        {
            "rows": rows,
            "dim": dim,
            "save (MiB/s)": size / MIB / save,
            "sequential write + fsync": size / MIB / statistics.median(raw),
            "restore (M rows/s)": rows / restore / 1e6,
            "insertion": rows / statistics.median(inserts) / 1e6,
            "bytes / payload": size / payload,
            "peak above the table (MiB)": max(memory),
            "of the restore": max(passing),
        },
    )
    report.bars += [
        Bar(f"save / sequential write, {rows} x {dim}", save_ratio, 0.7, 0.9),
        Bar(f"restore / insertion, {rows} x {dim}", restore_ratio, 0.5, 0.8),
        Bar(f"payload / bytes on disk, {rows} x {dim}", payload / size, 1 / 1.1, 0.95),
        Bar(f"256 MiB / peak of a save, {rows} x {dim}", 256 / max(*memory, 1), 1, 4),
        Bar(f"256 MiB / peak of a restore, {rows} x {dim}", 256 / max(*passing, 1), 1, 4),
    ]


@pytest.mark.parametrize("dim", [64])
def test_beside_mutable_hash_table(report, rows, tmp_path, dim):
    keys = random_keys(rows)
    times = {}
    for name in ("de_core", "MutableHashTable"):
        owners = []
        for _ in range(2):
            owner = tf.Module()
            if name == "de_core":
                owner.table = de.Variable(dim=dim, name="bench_peer")
                insert = owner.table.upsert
            else:
                owner.table = tf.lookup.experimental.MutableHashTable(
                    tf.int64, tf.float32, tf.zeros([dim])
                )
                insert = owner.table.insert
            owners.append(owner)
            if len(owners) == 1:
                fill(insert, keys, dim)
        prefix = str(tmp_path / name)
        with PeakMemory() as saving:
            save = seconds(lambda o=owners[0], p=prefix: tf.train.Checkpoint(m=o).write(p))
        with PeakMemory() as restoring:
            restore = seconds(lambda o=owners[1], p=prefix: tf.train.Checkpoint(m=o).read(p))
        assert int(owners[1].table.size()) == rows
        times[name] = save, restore
        report.row(
            "tf.train.Checkpoint of one table",
            {
                "table": name,
                "rows": rows,
                "dim": dim,
                "save (s)": save,
                "restore (s)": restore,
                "peak of the save (MiB)": saving.mib,
                "peak of the restore, table included (MiB)": restoring.mib,
            },
        )
    for index, verb in enumerate(("save", "restore")):
        ratio = times["MutableHashTable"][index] / times["de_core"][index]
        report.bars.append(Bar(f"{verb} / MutableHashTable, {rows} x {dim}", ratio, 1, 4))


def test_delta(report, rows, tmp_path):
    dim, rows = 16, rows * 10
    keys = random_keys(rows)
    table = de.Variable(dim=dim, name="bench_delta", init_size=rows)
    fill(table.upsert, keys, dim)
    manager = de.checkpoint.Manager(table, tmp_path, compact_after=100)
    rng = np.random.default_rng(0)
    full = seconds(manager.save)
    base = manager.reports["bench_delta"][0]
    times, sizes = [], []
    for _ in range(ROUNDS):
        some = rng.choice(keys, rows // 100, replace=False)
        fill(table.upsert, some, dim)
        times.append(seconds(manager.save))
        [delta] = manager.reports["bench_delta"]
        assert delta["rows"] == rows // 100
        sizes.append(delta["bytes"])
    time_part, byte_part = statistics.median(times) / full, max(sizes) / base["bytes"]
    report.row(
        "A delta of 1 % changed rows",
        {
            "rows": rows,
            "dim": dim,
            "full (s)": full,
            "delta (s)": statistics.median(times),
            "time / full": f"{time_part:.4f}",
            "bytes / full": f"{byte_part:.4f}",
        },
    )
    report.bars += [
        Bar(f"3 % / time of a delta, {rows} x {dim}", 0.03 / time_part, 1, 1.5),
        Bar(f"3 % / bytes of a delta, {rows} x {dim}", 0.03 / byte_part, 1, 2),
    ]


@pytest.mark.parametrize("consistent", [False, True])
def test_training_goes_on(report, rows, tmp_path, consistent):
    dim = 64
    keys = random_keys(rows)
    table = de.Variable(dim=dim, name="bench_train", init_size=rows)
    fill(table.upsert, keys, dim)
    rng = np.random.default_rng(0)
    batches = [tf.constant(rng.choice(keys, 4096)) for _ in range(64)]

    @tf.function
    def step(ids):
        table.upsert(ids, table.lookup(ids) + 1.0)
        # The rest of a model's step, which does not use the table.
        work = tf.random.stateless_normal([256, 256], [1, 2])
        for _ in range(8):
            work = tf.linalg.matmul(work, work) / 256.0
        return work

    def steps_while(busy):
        times = []
        while busy() or len(times) < 20:
            began = time.perf_counter()
            step(batches[len(times) % len(batches)])
            times.append(time.perf_counter() - began)
        return times

    def save(reports):
        reports.extend(de.checkpoint.save(table, tmp_path, consistent=consistent)[table.name])

    def alone_for(count):
        left = itertools.count()
        return steps_while(lambda: next(left) < count)

    # Compare each save's steps with the steps before and after it, because machines drift.
    alone, during, slower, seconds_a_save, reports = [alone_for(2000)], [], [], [], []
    for _ in range(ROUNDS):
        thread = threading.Thread(target=save, args=[reports])
        began = time.perf_counter()
        thread.start()
        during.append(steps_while(thread.is_alive))
        thread.join()
        seconds_a_save.append(time.perf_counter() - began)
        alone.append(alone_for(len(during[-1])))
        beside = statistics.mean(map(statistics.mean, alone[-2:]))
        slower.append(statistics.mean(during[-1]) / beside)
    slow = statistics.median(slower)
    report.row(
        "A training step while a save runs",
        {
            "rows": rows,
            "consistent": consistent,
            "save (s)": statistics.median(seconds_a_save),
            "step alone (ms)": 1e3 * statistics.median(map(statistics.mean, alone)),
            "step during a save (ms)": 1e3 * statistics.median(map(statistics.mean, during)),
            "longest step alone (ms)": 1e3 * statistics.median(map(max, alone)),
            "longest step during (ms)": 1e3 * statistics.median(map(max, during)),
            "longest hold (ms)": 1e3 * max(each["longest_hold_seconds"] for each in reports),
            "copied (MiB)": max(each["copied_bytes"] for each in reports) / MIB,
        },
    )
    kind = "consistent" if consistent else "plain"
    report.bars.append(Bar(f"step alone / during a {kind} save", 1 / slow, 1 / 1.05, 1))
