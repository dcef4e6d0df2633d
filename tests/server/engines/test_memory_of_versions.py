"""The system gets a version's memory back after its release."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.server.support.gateway_process import GatewayProcess, run

MEGABYTES = 100
MODEL = f"""
import sys
import tensorflow as tf

class Large(tf.Module):
    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(tf.random.normal([{MEGABYTES} * 250, 1000]))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, "row")])
    def read(self, row):
        return {{"sum": tf.reduce_sum(tf.gather(self.weights, row), axis=-1)}}

model = Large()
tf.saved_model.save(model, sys.argv[1], signatures=model.read)
"""


def resident_megabytes(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


@pytest.mark.quiet  # A busy machine does not free memory when it is told to.
def test_memory_stays_flat_while_versions_come_and_go(tmp_path):
    run(sys.executable, "-c", MODEL, tmp_path / "model")
    folder = tmp_path / "large"
    folder.mkdir()
    flags = ("--model-name", "large", "--poll-seconds", "0.1")
    with GatewayProcess(folder, tmp_path / "log", *flags) as gateway:
        sizes = []
        for version in range(1, 9):
            shutil.copytree(tmp_path / "model", tmp_path / "next")
            (tmp_path / "next").rename(folder / str(version))
            path = "/v1/models/large/versions"
            gateway.wait_for(f"{path}/{version}", lambda reply: b'"AVAILABLE"' in reply.body)
            if version > 1:
                gateway.wait_for(f"{path}/{version - 1}", lambda reply: b'"END"' in reply.body)
                shutil.rmtree(folder / str(version - 1))
            body = {"instances": [0, 1]}
            assert gateway.ask("POST", "/v1/models/large:predict", body).status == 200
            sizes.append(resident_megabytes(gateway.process.pid))
    # While a version loads, two versions are in memory. Afterwards the old one's memory must be
    # free.
    assert max(sizes[3:]) < sizes[1] + MEGABYTES / 2, sizes
