"""A model server process: the binary of DE_MODEL_SERVER, or the gateway."""

import os
import subprocess
import sys
import time

from tests.server.support.eventually import PATIENCE_S
from tests.server.support.gateway_process import ask_port
from tests.serving.tools import ROOT
from tests.support.ports import some_port

BINARY = os.environ.get("DE_MODEL_SERVER")
PRELOAD = os.environ.get("DE_MODEL_SERVER_PRELOAD")
MODEL = "rows"
# The image's flags. Without them a damaged version blocks every other version for minutes.
LOAD_FLAGS = (
    "--num_load_threads=2",
    "--load_retry_interval_micros=1000000",
    "--max_num_load_retries=5",
)
CONFIG = """model_config_list {{ config {{
  name: "{name}" base_path: "{path}" model_platform: "tensorflow"
  model_version_policy {{ all {{}} }}
}} }}
"""


def binary_command(root, folder, grpc_port, rest_port, every_version, batching):
    """Returns the command line of TensorFlow Serving's model server."""
    command = [BINARY, f"--port={grpc_port}", f"--rest_api_port={rest_port}"]
    command += ["--file_system_poll_wait_seconds=1", "--grpc_max_threads=64", *LOAD_FLAGS]
    if batching:
        parameters = folder / "batching.config"
        parameters.write_text(
            "max_batch_size { value: 64 }\nbatch_timeout_micros { value: 2000 }\n"
            "num_batch_threads { value: 2 }\nmax_enqueued_batches { value: 1000 }\n"
        )
        command += ["--enable_batching", f"--batching_parameters_file={parameters}"]
    if every_version:
        config = folder / "models.config"
        config.write_text(CONFIG.format(name=MODEL, path=root))
        return [*command, f"--model_config_file={config}"]
    return [*command, f"--model_name={MODEL}", f"--model_base_path={root}"]


def gateway_command(root, folder, grpc_port, rest_port, every_version, batching):
    """Returns the command line of the gateway, which replaces the model server."""
    del folder
    command = [sys.executable, "-m", "server", "--model-dir", root, "--model-name", MODEL]
    command += ["--port", rest_port, "--grpc-port", grpc_port, "--poll-seconds", 1]
    if batching:
        command += ["--batch-rows", 64]
    return [*command, "--version-policy", "all"] if every_version else command


class ModelServer:
    """Serves a folder of versions. A context manager that stops the process at the end."""

    def __init__(self, command_of, root, folder, every_version=False, batching=False, wait=True):
        self.wait = wait
        self.log = folder / "server.log"
        self._command_of = command_of
        self._arguments = (root, folder), (every_version, batching)
        self._start()

    def _start(self):
        self.grpc_port, self.rest_port = some_port(), some_port()
        (places, choices), ports = self._arguments, (self.grpc_port, self.rest_port)
        command = self._command_of(*places, *ports, *choices)
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"}
        if PRELOAD and self._command_of is binary_command:
            environment["LD_PRELOAD"] = PRELOAD
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                list(map(str, command)), cwd=ROOT, env=environment, stdout=log, stderr=log
            )

    def __enter__(self):
        while self.wait:
            try:
                self.wait_for("AVAILABLE")
                break
            except BaseException:
                self.__exit__()
                if "in use" not in self.log.read_text(errors="replace"):
                    raise
            self._start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def rest(self, path, body=None):
        """Returns status and decoded JSON."""
        reply = ask_port(self.rest_port, "GET" if body is None else "POST", path, body)
        return reply.status, reply.json()

    def states(self):
        """Returns the state of each version."""
        status, said = self.rest(f"/v1/models/{MODEL}")
        assert status == 200, said
        return {int(each["version"]): each["state"] for each in said["model_version_status"]}

    def wait_for(self, state, version=None, seconds=PATIENCE_S):
        """Waits until a version, or any version, is in a state."""
        deadline = time.monotonic() + seconds
        said = None
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-4000:]
            try:
                said = self.states()
                if state in (said.values() if version is None else [said.get(version)]):
                    return
            except (OSError, AssertionError) as error:
                said = error
            time.sleep(0.1)
        raise AssertionError(f"waited for {version} to be {state}; last: {said}")
