"""Real Redis servers on loopback: one, three with Sentinels or as a Cluster, one with TLS."""

import contextlib
import itertools
import pathlib
import random
import subprocess

import de_core as de
from tests.server.support.eventually import wait_until
from tests.support.applies import program

_numbers = itertools.count()


class Server:
    """A Redis server, or with `--sentinel` a Sentinel."""

    def __init__(self, folder: pathlib.Path, *options: str, config: pathlib.Path | None = None):
        self.folder = folder
        self.options = options
        self.config = config
        self.process = None
        # The system gives ports above 32768 to sockets that ask for any. So nobody takes this
        # server's port, or its bus's port 10000 above, while the server is down.
        for self.port in random.SystemRandom().sample(range(10_000, 20_000), 50):
            if self._starts():
                return
        raise AssertionError(f"redis-server must start. Received: {self._log.read_text()}")

    def start(self):
        """Starts the server again, on its port."""
        assert self._starts(), self._log.read_text()

    @property
    def _log(self):
        return self.folder / "redis.log"

    def _starts(self) -> bool:
        """Returns whether the server listens; otherwise it has ended, as if its port is taken."""
        port = [] if "--tls-port" in self.options else ["--port", str(self.port)]
        options = [option.format(port=self.port) for option in self.options]
        if self.config is None:
            options += ["--save", "", "--appendonly", "no"]
        first = [] if self.config is None else [str(self.config)]
        path = program("redis-server", "redis-server redis-tools")
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [path, *first, *port, "--dir", str(self.folder), *options], stdout=log, stderr=log
            )
        wait_until(lambda: self._listens() or self.process.poll() is not None)
        return self.process.poll() is None

    def _listens(self) -> bool:
        text = self._log.read_text("utf-8", "replace")
        return "Ready to accept connections" in text or "Sentinel ID is" in text

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


@contextlib.contextmanager
def started(folder: pathlib.Path):
    """Yields a function that starts a server. At the end, stops all servers that it started."""
    found: list[Server] = []

    def start(*options: str, config: pathlib.Path | None = None) -> Server:
        own = folder / f"server_{len(found)}"
        own.mkdir()
        found.append(Server(own, *options, config=config))
        return found[-1]

    try:
        yield start
    finally:
        for each in found:
            each.stop()


#: Options of a Cluster's node.
NODE = ("--cluster-enabled", "yes", "--cluster-require-full-coverage", "no")


def cluster(start, *options: str) -> list[Server]:
    """Starts and returns the three nodes of a Cluster. `start` is from `started`."""
    nodes = [start(*NODE, *options) for _ in range(3)]
    hosts = [f"127.0.0.1:{node.port}" for node in nodes]
    cli("--cluster", "create", *hosts, "--cluster-yes")
    wait_until(lambda: all("cluster_state:ok" in node.command("cluster", "info") for node in nodes))
    return nodes


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
