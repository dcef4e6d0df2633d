"""Exported and published tables: loading, memory, lookups, deltas.

If `DE_BENCH_MODELS` names a folder, the first run creates the models for the loading tests there,
and later runs reuse them. Then the tests need only a short quiet time.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from bench.peers import BATCH, MutableHashTable, random_keys
from bench.rounds import Bar, Rounds

pytestmark = pytest.mark.benchmark
ROOT = Path(__file__).resolve().parents[1]
ROUNDS = 3
LOOKUP_ROUNDS = 25  # rounds of 50 ms each, which are sensitive to disturbances
BATCHES = 64  # different ids, so that rows come from main memory


class Model(tf.Module):
    """A table, and a lookup of its rows."""

    def __init__(self, rows, dim, peer=False):
        super().__init__()
        keys = random_keys(max(rows, 1))[:rows]
        if peer:
            self.rows = MutableHashTable(dim).table
            insert = self.rows.insert
        else:
            self.rows = de.Variable(dim=dim, name="rows", init_size=rows)
            insert = self.rows.upsert
        values = tf.random.stateless_normal([BATCH, dim], [1, 2])
        for at in range(0, rows, BATCH):
            part = keys[at : at + BATCH]
            insert(tf.constant(part), values[: len(part)])
        self.keys = keys

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="ids")])
    def __call__(self, ids):
        return self.rows.lookup(ids)


@pytest.fixture
def models(tmp_path):
    return Path(os.environ.get("DE_BENCH_MODELS", tmp_path))


def exported(folder, rows, dim, peer=False):
    """Returns the path of a model with this many rows; creates the model if it is missing."""
    path = folder / "1"
    if path.exists():
        return str(path)
    model = Model(rows, dim, peer)
    del model.keys
    if not peer:
        return de.export(model, folder)
    being_made = folder / "being_made"
    tf.saved_model.save(model, str(being_made))
    return str(being_made.rename(path))


LOAD = """
    import gc, sys, time
    import tensorflow as tf
    import de_core
    path = sys.argv[1]
    tf.saved_model.load(sys.argv[2])  # what TensorFlow does once a process
    gc.collect()  # else Python's next look at all objects, 0.15 s, may fall into the load
    began = time.perf_counter()
    model = tf.saved_model.load(path)
    print(time.perf_counter() - began)
"""


def in_a_process(source, *arguments, verify="full"):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=200,
        env={**os.environ, "DE_VERIFY": verify},
    )  # fmt: skip
    return done.stdout.split()


def into_the_page_cache(path):
    for file in Path(path).rglob("*"):
        if file.is_file():
            file.read_bytes()


@pytest.mark.parametrize(("dim", "factor"), [(16, 13), (64, 4)])  # 1.03 and 1.06 GB
def test_load(report, rows, models, dim, factor):
    rows = rows * factor
    paths = {
        "verified table": exported(models / f"table_{rows}_{dim}", rows, dim),
        "table": exported(models / f"table_{rows}_{dim}", rows, dim),
        "empty table": exported(models / f"empty_{dim}", 0, dim),
        "MutableHashTable": exported(models / f"peer_{rows}_{dim}", rows, dim, peer=True),
    }
    warm = exported(models / f"warm_{dim}", 1, dim)
    times = {name: [] for name in paths}
    for number in range(ROUNDS):
        for name, path in paths.items():
            if name == "MutableHashTable" and number > 1:
                continue
            into_the_page_cache(path)
            verify = "full" if name == "verified table" else "background"
            times[name].append(float(in_a_process(LOAD, path, warm, verify=verify)[0]))
    middle = {name: statistics.median(each) for name, each in times.items()}
    title = "Loading a SavedModel in a fresh process (ms, page cache warm)"
    cells = {name: 1000 * each for name, each in middle.items()}
    report.row(title, {"rows": rows, "dim": dim, **cells})
    of_empty = 1.5 * middle["empty table"] / middle["table"]
    of_peer = middle["MutableHashTable"] / middle["table"]
    report.bars += [
        Bar(f"1.5 x empty / load, {rows} x {dim}", of_empty, 1, 1.4),
        Bar(f"MutableHashTable / load, {rows} x {dim}", of_peer, 20, 100),
    ]


MEMORY = """
    import json, re, sys
    import tensorflow as tf
    import de_core
    def private():
        text = open("/proc/self/smaps_rollup").read()
        return int(re.search(r"Private_Dirty: +(\\d+)", text)[1])
    ids = tf.constant(json.loads(sys.argv[3]), tf.int64)
    first = tf.saved_model.load(sys.argv[1])
    first.signatures["de_lookup/rows"](ids=ids)
    before = private()
    second = tf.saved_model.load(sys.argv[2])
    second.signatures["de_lookup/rows"](ids=ids)
    print((private() - before) * 1024)
"""


def test_publish(report, rows, tmp_path):
    """Changes 1 % of the rows; looks up with 0, 1 and 3 deltas; loads a second version."""
    dim, rows = 16, rows * 10
    model = Model(rows, dim)
    keys, model.keys = model.keys, None
    rng = np.random.default_rng(0)
    times, sizes = {"export": [], "full": [], "delta": []}, {}
    for _ in range(3):
        began = time.perf_counter()
        path = de.export(model, tmp_path / "export")
        times["export"].append(time.perf_counter() - began)
        sizes["export"] = path.report["tables"]["rows"]["bytes"]
        shutil.rmtree(path)
    versions = []
    for number in range(6):
        if number > 0:
            part = rng.choice(keys, rows // 100, replace=False)
            for at in range(0, len(part), BATCH):
                ids = part[at : at + BATCH]
                model.rows.upsert(ids, np.full([len(ids), dim], number, np.float32))
        began = time.perf_counter()
        path = de.publish(model, tmp_path / "root", keep_versions=None)
        kind = path.report["kind"]
        times[kind].append(time.perf_counter() - began)
        sizes[kind] = path.report["tables"]["rows"]["bytes"]
        versions.append(path)
    middle = {name: statistics.median(each) for name, each in times.items()}
    report.row(
        "Publishing 1 % changed rows",
        {"rows": rows, "dim": dim}
        | {f"{name} (s)": f"{each:.3f}" for name, each in middle.items()}
        | {f"{name} (bytes)": sizes[name] for name in ("export", "delta")},
    )
    payload = rows * (8 + 4 * dim)
    of_time = 0.03 * middle["export"] / middle["delta"]
    of_bytes = 0.03 * sizes["export"] / sizes["delta"]
    report.bars += [
        Bar("3 % of the time of an export / delta", of_time, 1, 2),
        Bar("3 % of the bytes of an export / delta", of_bytes, 1, 2),
        Bar(f"1.15 x payload / bytes, dim {dim}", 1.15 * payload / sizes["export"], 1, 1.1),
    ]
    ids = json.dumps(rng.choice(keys, 2000).tolist())
    dirty = int(in_a_process(MEMORY, versions[0], versions[1], ids)[0])
    report.bars.append(Bar("5 % of the table / private dirty bytes of a second version",
                           0.05 * sizes["export"] / max(dirty, 1), 1, 10))  # fmt: skip
    compared = Rounds()
    for number in (0, 1, 3):
        add_lookups(compared, f"{number} deltas", versions[number], keys, rng)
    compared.run(LOOKUP_ROUNDS)
    rates = {name: each.rate() for name, each in compared.measured.items()}
    report.row("Lookups through the signature (million/s)", {"rows": rows, "dim": dim, **rates})
    ratio = 1.5 * compared.ratio("3 deltas", "0 deltas")
    report.bars.append(Bar("1.5 x lookup with three deltas / none", ratio, 1, 1.3))


def add_lookups(compared, name, path, keys, rng, batch=16384):
    function = path
    if not callable(path):
        loaded = tf.saved_model.load(path)
        function = loaded.signatures["de_lookup/rows"]
        function.kept = loaded
    asked = [tf.constant(rng.choice(keys, batch)) for _ in range(BATCHES)]

    def run():
        for ids in asked:
            function(ids=ids)

    compared.add(name, batch * BATCHES, run)


@pytest.mark.parametrize(("dim", "factor"), [(16, 10), (32, 2), (64, 1)])
def test_lookup(report, rows, tmp_path, dim, factor):
    rows = rows * factor
    model = Model(rows, dim)
    keys, model.keys = model.keys, None
    rng = np.random.default_rng(0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)])
    def live(ids):
        values, found = model.rows.lookup(ids, return_exists=True)
        return {"embeddings": values, "found": found}

    compared = Rounds()
    add_lookups(compared, "live", live.get_concrete_function(), keys, rng)
    for dtype in ("float32", "float16", "bfloat16", "int8"):
        path = de.export(model, tmp_path, dtype=dtype)
        into_the_page_cache(path)
        add_lookups(compared, dtype, path, keys, rng)
    compared.run(LOOKUP_ROUNDS)
    rates = {name: each.rate() for name, each in compared.measured.items()}
    report.row("Lookups, live and exported (million/s)", {"rows": rows, "dim": dim, **rates})
    report.bars.append(
        Bar(f"exported / live lookup, {rows} x {dim}", compared.ratio("float32", "live"), 0.8, 1)
    )
    for dtype in ("float16", "bfloat16", "int8"):
        if dim >= 32:
            ratio = compared.ratio(dtype, "float32")
            report.bars.append(Bar(f"{dtype} / float32, {rows} x {dim}", ratio, 1, 1.2))


def test_lookups_while_a_version_loads(report, rows, models, tmp_path):
    """Runs in C++, like TensorFlow Serving: DE_MODEL_VERSIONS is the built `serving_ops/loader`."""
    program = os.environ.get("DE_MODEL_VERSIONS")
    if not program:
        pytest.skip("needs DE_MODEL_VERSIONS, the program that serving_ops/loader builds")
    dim, rows = 16, rows * 13
    source = Path(exported(models / f"table_{rows}_{dim}", rows, dim))
    keys = random_keys(rows)
    root = tmp_path / "root"
    root.mkdir()
    shutil.copytree(source, root / "1", copy_function=os.link)
    ids = ",".join(map(str, np.random.default_rng(0).choice(keys, 256)))
    seconds = 20
    process = subprocess.Popen(
        [program, str(root), "de_lookup/rows", ids, "--threads", "1", "--seconds", str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )
    for number in range(2, 2 + 8):
        time.sleep(2)
        shutil.copytree(source, tmp_path / "next", copy_function=os.link)
        (tmp_path / "next").rename(root / str(number))
    said = json.loads(process.communicate()[0].splitlines()[-1])
    assert said["failed"] == 0
    served = [each for each in said["versions"].values() if each["requests_while_loading"]]
    before = statistics.median(each["p99"] for each in served)
    loading = statistics.median(each["p99_while_loading"] for each in served)
    loads = statistics.median(each["load_seconds"] for each in said["versions"].values())
    report.row(
        "A client's lookups of 256 ids while versions load (ms)",
        {"rows": rows, "dim": dim, "p99": 1000 * before, "p99 while loading": 1000 * loading,
         "load": 1000 * loads, "requests while loading": sum(
             each["requests_while_loading"] for each in served)},
    )  # fmt: skip
    report.bars.append(
        Bar("1.5 x p99 before / while a version loads", 1.5 * before / loading, 1, 1.3)
    )
