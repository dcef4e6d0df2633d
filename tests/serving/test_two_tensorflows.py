"""The serving TensorFlow loads the exports of another TensorFlow, even if its minor is older."""

import json

import pytest
from versions import versions

from tests.serving.tools import ROOT, run

LOAD = """
import json, sys
import tensorflow as tf
import de_core.base.ops
loaded = tf.saved_model.load(sys.argv[1])
rows = loaded.signatures["de_lookup/users"](ids=tf.constant([1, 7000000000], tf.int64))
print(json.dumps([tf.__version__, rows["embeddings"].numpy().tolist()]))
"""


@pytest.mark.slow
def test_the_serving_tensorflow_loads_what_this_one_exported(
    export_versions, serving_python, tmp_path
):
    import tensorflow as tf

    serving = versions()["TENSORFLOW"]
    if tf.__version__ == serving:
        pytest.skip(f"needs another TensorFlow than {serving} as the one that exports")
    exported = export_versions(tmp_path / "model", 1)
    pip = [serving_python, "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    run([*pip, "--force-reinstall", "--no-deps", ROOT], timeout=1800)
    outside = {"PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    said = run([serving_python, "-c", LOAD, exported / "1"], cwd=tmp_path, env=outside)
    assert json.loads(said.splitlines()[-1]) == [serving, [[1.0] * 4, [0.5] * 4]]
