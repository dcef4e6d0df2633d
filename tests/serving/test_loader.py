"""TensorFlow's own C++ loader serves the tables while versions change."""

import json
import shutil
import threading
import time

import numpy as np
import pytest

from tests.serving.tools import ROOT, needs, run
from tests.support import commands
from tests.tfra import exported

pytestmark = [pytest.mark.slow, needs("cmake", "g++")]
IDS = "0,1,7,4000000000"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    import sys

    built = {}
    for name, option in (("with_ops", "ON"), ("without_ops", "OFF")):
        folder = tmp_path_factory.mktemp(name)
        configure = ["cmake", "-S", ROOT / "serving_ops/loader", "-B", folder]
        run([*configure, f"-DTensorFlow_PYTHON={sys.executable}", f"-DDE_LINK_OPS={option}"])
        run(["cmake", "--build", folder, "-j2"], timeout=3600)
        built[name] = folder / "model_versions"
    return built


def answers(program, root, seconds=4, meanwhile=None, signature="de_lookup/users", ids=IDS):
    thread = None
    if meanwhile:
        thread = threading.Thread(target=meanwhile)
        thread.start()
    done = commands.run(program, root, signature, ids, "--seconds", seconds, timeout=120)
    if thread:
        thread.join()
    return done.returncode, json.loads(done.stdout.strip().splitlines()[-1])


def rows(version):
    return [float(version)] * 12 + [0.5] * 4


@pytest.mark.parametrize("how", ["export", "builder"])
def test_swapping_versions_under_load_fails_no_request(programs, export_versions, tmp_path, how):
    all_versions = export_versions(tmp_path / "all", 1, 2, 3, how=how)
    root = tmp_path / "served"
    root.mkdir()
    (all_versions / "1").rename(root / "1")

    def publish():
        for version in "23":
            time.sleep(2)
            (all_versions / version).rename(root / version)
            shutil.rmtree(root / str(int(version) - 1))  # while the server maps its files

    code, said = answers(programs["with_ops"], root, seconds=7, meanwhile=publish)
    assert code == 0
    assert (said["failed"], said["mixed"]) == (0, 0)
    for version in "123":
        assert said["versions"][version]["requests"] > 0
        assert said["versions"][version]["embeddings"] == rows(version)


def test_a_corrupt_version_does_not_unseat_the_good_one(programs, export_versions, tmp_path):
    export_versions(tmp_path, 1, 2)
    damaged = next((tmp_path / "2" / "assets").iterdir())
    damaged.write_bytes(damaged.read_bytes()[:100])
    (tmp_path / "2").rename(tmp_path / "later")

    def publish():
        time.sleep(1)
        (tmp_path / "later").rename(tmp_path / "2")

    code, said = answers(programs["with_ops"], tmp_path, seconds=4, meanwhile=publish)
    assert code == 0
    assert said["failed"] == 0
    assert damaged.name in said["versions"]["2"]["load_error"]
    assert said["versions"]["1"]["embeddings"] == rows(1)


@pytest.mark.parametrize("name", ["module", "module_of_strings", "simple_save"])
def test_models_of_tfra_are_served_as_they_are(programs, tmp_path, name):
    model = exported.saved_model(name)
    shutil.copytree(model, tmp_path / "1")
    asked = exported.answers(model)["signatures"]["serving_default"]
    ids = ",".join(map(str, asked["inputs"]["ids"]))
    code, said = answers(programs["with_ops"], tmp_path, 1, signature="serving_default", ids=ids)
    assert code == 0, said
    found = np.array(said["versions"]["1"]["embeddings"], np.float32)
    wanted = np.array(asked["outputs"]["embeddings"], np.float32)
    np.testing.assert_array_equal(found, wanted.ravel())


def test_a_program_without_the_ops_names_the_missing_op(programs, export_versions, tmp_path):
    export_versions(tmp_path, 1)
    code, said = answers(programs["without_ops"], tmp_path, seconds=1)
    assert code == 1
    assert "DeFrozenTable" in said["versions"]["1"]["load_error"]
