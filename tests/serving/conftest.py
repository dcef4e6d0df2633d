"""Fixtures of the serving overlay's tests: exports, and tools that a machine may lack."""

import fcntl
import shutil
import sys
from pathlib import Path

import pytest
from versions import versions

from tests.serving.tools import ROOT, run

MODEL = """
import sys
import tensorflow as tf
import de_core as de

class Rows(tf.Module):
    def __init__(self):
        super().__init__()
        self.users = de.Variable(dim=4, name="users", initializer=0.5)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
    def score(self, ids):
        return {"score": tf.reduce_sum(de.embedding_lookup(self.users, ids), -1)}

model = Rows()
root, rows, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ids = tf.range(rows, dtype=tf.int64)
for version in map(int, sys.argv[4:]):
    if how == "export":
        model.users.upsert(ids, tf.fill([rows, 4], float(version)))
        de.export(model, root, signatures=model.score, version=version)
    else:
        changed = ids[:1] if version > 1 else ids
        model.users.upsert(changed, tf.fill([len(changed), 4], float(version)))
        sample = [{"ids": ids[:n]} for n in (1, 2, 3)]
        written = de.publish(model, root, signatures=model.score, sample=sample)
        assert written.report["kind"] == ("full" if version == 1 else "delta")
"""


BUILDER = """
import sys
import tensorflow as tf
import de_core as de

root, rows = sys.argv[1], int(sys.argv[2])
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    users = de.get_variable("users", dim=4, initializer=0.5)
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    outputs = {"embeddings": de.embedding_lookup(users, ids)}
    value = tf.compat.v1.placeholder(tf.float32, [])
    write = users.upsert(tf.range(rows, dtype=tf.int64), tf.fill([rows, 4], value))
    signature = tf.compat.v1.saved_model.predict_signature_def({"ids": ids}, outputs)
    session.run(tf.compat.v1.global_variables_initializer())
    for version in sys.argv[4:]:
        session.run(write, {value: float(version)})
        builder = tf.compat.v1.saved_model.Builder(f"{root}/{version}")
        builder.add_meta_graph_and_variables(session, ["serve"], {"de_lookup/users": signature})
        builder.save()
"""


@pytest.fixture(scope="session")
def export_versions():
    """Returns a function that exports a model whose every row contains the version's number.

    Published versions: the second is a delta of one row, and both have warm-up requests. Versions
    of TensorFlow 1's builder contain a session's graph.
    """

    def export(root, *versions, rows=1000, how="export"):
        model = BUILDER if how == "builder" else MODEL
        command = [sys.executable, "-c", model, str(root), str(rows), how, *map(str, versions)]
        run(command, env={"PYTHONPATH": str(ROOT)})
        return Path(root)

    return export


@pytest.fixture(scope="session")
def serving_python():
    """Returns the Python of an environment with the serving TensorFlow; kept in `build`."""
    version = versions()["TENSORFLOW"]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / "build" / f"tensorflow-{version}-python{python}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open(
        "w"
    ) as lock:  # for tests that run in parallel
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            run([sys.executable, "-m", "venv", folder])
            pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-cache-dir"]
            run([*pip, f"tensorflow-cpu=={version}"], timeout=1200)
            (folder / "complete").touch()
    return folder / "bin" / "python"
