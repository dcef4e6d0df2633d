"""What the tests of the serving overlay share: exports, and the tools that a machine may lack."""

import os
import sys
from pathlib import Path

import pytest

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
root, rows = sys.argv[1], int(sys.argv[2])
ids = tf.range(rows, dtype=tf.int64)
for version in map(int, sys.argv[3:]):
    model.users.upsert(ids, tf.fill([rows, 4], float(version)))
    de.export(model, root, signatures=model.score, version=version)
"""


@pytest.fixture(scope="session")
def export_versions():
    """Returns a function that exports a model whose every row holds the version's number."""

    def export(root, *versions, rows=1000, python=sys.executable):
        command = [python, "-c", MODEL, str(root), str(rows), *map(str, versions)]
        run(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
        return Path(root)

    return export
