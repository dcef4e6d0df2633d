"""Tests the gateway with tables that the library exported, from training to REST."""

import os
import sys
from pathlib import Path

import pytest

from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import GatewayProcess, run

pytestmark = pytest.mark.slow

MODEL = "/v1/models/tower"


def export(folder: Path, value: float) -> None:
    run(sys.executable, "-m", "tests.server.make_tables", folder, str(value))


def mapped_versions(pid: int, folder: Path) -> set[str]:
    """Returns the versions whose files the process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[-1] for line in lines if str(folder) in line]
    return {Path(path).relative_to(folder).parts[0] for path in paths}


NO_KERAS = """
import sys
for name in ("keras", "tf_keras", "h5py", "rich", "pygments", "optree", "setuptools"):
    sys.modules[name] = None  # cannot be imported
"""


def test_exported_tables_are_looked_up_swapped_and_let_go_without_keras(tmp_path, monkeypatch):
    folder = tmp_path / "tower"
    export(folder, 2.0)
    (tmp_path / "sitecustomize.py").write_text(NO_KERAS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with GatewayProcess(folder, tmp_path / "log", "--poll-seconds", "0.1") as gateway:
        monkeypatch.delenv("PYTHONPATH")
        gateway.wait_ready()
        users = {"table": "user", "ids": [7, "-1", 5]}
        reply = gateway.ask("POST", f"{MODEL}:lookup", users)
        assert reply.json() == {
            "embeddings": [[2.0] * 4, [2.0] * 4, [0.5] * 4],
            "found": [True, True, False],
        }
        items = {"table": "item", "ids": [["lamp"], ["?"]], "combiner": "sum", "missing": "null"}
        assert gateway.ask("POST", f"{MODEL}:lookup", items).json() == {
            "embeddings": [[1.0] * 4, None],
            "found": [[True], [False]],
        }
        rows = {"instances": [{"user": 7, "item": "lamp"}, {"user": 7, "item": "?"}]}
        assert gateway.ask("POST", f"{MODEL}:predict", rows).json() == {"predictions": [8.0, 0.0]}
        tables = gateway.ask("GET", f"{MODEL}/tables").json()["tables"]
        assert {(t["table"], t["rows"], t["dim"], t["key_dtype"]) for t in tables} == {
            ("user", 2, 4, "int64"),
            ("item", 1, 4, "string"),
        }
        assert mapped_versions(gateway.process.pid, folder) == {"1"}

        export(folder, 3.0)
        gateway.wait_for(f"{MODEL}/versions/1", lambda reply: b'"END"' in reply.body)
        reply = gateway.ask("POST", f"{MODEL}:predict", rows)
        assert (reply.headers["x-model-version"], reply.json()["predictions"]) == ("2", [12.0, 0.0])
        wait_until(lambda: mapped_versions(gateway.process.pid, folder) == {"2"})


def test_a_damaged_version_never_takes_over(tmp_path):
    folder, aside = tmp_path / "tower", tmp_path / "aside"
    export(folder, 2.0)
    export(aside, 3.0)
    (file,) = [each for each in aside.rglob("*.de") if "user" in each.name]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with GatewayProcess(folder, tmp_path / "log", "--poll-seconds", "0.1") as gateway:
        gateway.wait_ready()
        (aside / "1").rename(folder / "2")
        gateway.wait_for(f"{MODEL}/versions/2", lambda reply: b'"END"' in reply.body)
        (status,) = gateway.ask("GET", f"{MODEL}/versions/2").json()["model_version_status"]
        assert file.name in status["status"]["error_message"]
        assert "checksum" in status["status"]["error_message"]
        reply = gateway.ask("POST", f"{MODEL}:lookup", {"table": "user", "ids": [7]})
        assert reply.headers["x-model-version"] == "1"
        assert reply.json()["embeddings"] == [[2.0] * 4]
        assert "version 2 serves" not in gateway.log()


def test_a_file_that_is_cut_short_takes_down_its_version_alone(tmp_path):
    root = tmp_path / "models"
    export(root / "tower", 2.0)
    export(root / "other", 4.0)
    export(root / "tower", 3.0)
    (file,) = [each for each in (root / "tower" / "2").rglob("*.de") if "user" in each.name]
    users = {"table": "user", "ids": [7]}
    with GatewayProcess(root, tmp_path / "log", "--poll-seconds", "0.1") as gateway:
        gateway.wait_ready()
        reply = gateway.ask("POST", f"{MODEL}:lookup", users)
        assert reply.headers["x-model-version"] == "2"
        os.truncate(file, file.stat().st_size // 2)
        gateway.wait_for(f"{MODEL}/versions/2", lambda reply: b'"END"' in reply.body)
        (status,) = gateway.ask("GET", f"{MODEL}/versions/2").json()["model_version_status"]
        assert status["status"]["error_code"] == "DATA_LOSS"
        assert file.name in status["status"]["error_message"]
        reply = gateway.ask("POST", f"{MODEL}:lookup", users)
        assert (reply.headers["x-model-version"], reply.json()["embeddings"]) == ("1", [[2.0] * 4])
        reply = gateway.ask("POST", "/v1/models/other:lookup", users)
        assert reply.json()["embeddings"] == [[4.0] * 4]
        assert f"model tower version 2 is damaged: {file.name}" in gateway.log()
        assert gateway.process.poll() is None
