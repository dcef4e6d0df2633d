"""Real Redis servers on loopback: one, three with Sentinels or as a Cluster, one with TLS."""

from __future__ import annotations

import contextlib
import itertools
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

import de_core as de

_numbers = itertools.count()
PROGRAM = shutil.which("redis-server")


class Server:
    """A Redis server, or with `--sentinel` a Sentinel.

    Args:
        folder: The folder for its files.
        options: Further command-line options.
        port: The port; None for a free one.
    """

    def __init__(self, folder: pathlib.Path, *options: str, port: int | None = None):
        self.port = free_port() if port is None else port
        self.folder = folder
        self.options = options
        self.process = None
        self.start()

    def start(self):
        port = [] if "--tls-port" in self.options else ["--port", str(self.port)]
        options = [option.format(port=self.port) for option in self.options]
        quiet = ["--save", "", "--appendonly", "no", "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [PROGRAM, *port, *quiet, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(lambda: connects(self.port), "redis-server does not listen")

    def stop(self):
        self.process.kill()
        self.process.wait()

    def command(self, *words: object) -> str:
        """Returns redis-cli's output for a command."""
        return cli("-p", self.port, *words)


def cli(*words: object) -> str:
    done = subprocess.run(
        ["redis-cli", *map(str, words)], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def cluster(folder: pathlib.Path, *options: str) -> list[Server]:
    """Starts and returns the three nodes of a Cluster.

    Args:
        folder: The folder for their files.
        options: Further command-line options of each node.
    """
    nodes = []
    for number in range(3):
        own = folder / str(number)
        own.mkdir()
        nodes.append(
            Server(
                own, "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", *options
            )
        )
    hosts = [f"127.0.0.1:{node.port}" for node in nodes]
    cli("--cluster", "create", *hosts, "--cluster-yes")
    wait_for(
        lambda: all("cluster_state:ok" in node.command("cluster", "info") for node in nodes),
        "the Cluster does not come up",
    )
    return nodes


def free_port() -> int:
    """Returns a free port P. P + 10000 is free too, because a Cluster needs it."""
    while True:
        with socket.socket() as probe, socket.socket() as bus:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                bus.bind(("127.0.0.1", port + 10000))
                return port


def connects(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, message: str, seconds: float = 30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.05)


def require_redis():
    """Skips a test if Redis is not installed."""
    if PROGRAM is None:
        pytest.skip("needs redis-server: apt-get install redis-server redis-tools")
    pytest.importorskip("redis", reason="needs pip install 'redis[hiredis]'")


def creator_for(nodes, **params):
    """Returns a `kv_creator` for one server, or for a Cluster of several servers."""
    found = {
        "redis_connection_mode": 2 if len(nodes) == 1 else 0,
        "redis_host_ip": ["127.0.0.1"] * len(nodes),
        "redis_host_port": [node.port for node in nodes],
        "redis_socket_timeout": 5000,
        "model_tag_runtime": f"test{next(_numbers)}",
        **params,
    }
    return de.RedisTableCreator(de.RedisTableConfig(params=found))
