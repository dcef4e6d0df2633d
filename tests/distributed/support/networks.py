"""Two networks for a test, joined by a link that can be cut, slow or lossy."""

import os
import subprocess


def _run(*command: str):
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


def _ip(*arguments: str):
    _run("ip", *arguments)


class Networks:
    """Two network namespaces, each with one end of a link.

    Attributes:
        addresses: The address of each end, known only in these two networks.

    Raises:
        OSError: The command `ip` is missing.
        subprocess.CalledProcessError: This process may not create namespaces.
    """

    addresses = ("10.99.0.1", "10.99.0.2")

    def __init__(self):
        self._names = [f"de-test-{os.getpid()}-{side}" for side in "ab"]
        try:
            for name in self._names:
                _ip("netns", "add", name)
            first, second = self._names
            ends = ("netns", first, "type", "veth", "peer", "name", "wire", "netns", second)
            _ip("link", "add", "wire", *ends)
            for name, address in zip(self._names, self.addresses, strict=True):
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire")
                for device in ("lo", "wire"):
                    _ip("-n", name, "link", "set", device, "up")
        except BaseException:
            self.remove()
            raise

    def inside(self, number: int) -> list[str]:
        """Returns the command prefix that runs a command in one of the two networks."""
        return ["ip", "netns", "exec", self._names[number]]

    def cut(self):
        """Drops all packets from now on; connections stay open."""
        self._set("down")

    def join(self):
        """Stops dropping packets."""
        self._set("up")

    def lose(self, share: float):
        """Drops a random fraction of the packets in both directions."""
        rule = ("-m", "statistic", "--mode", "random", "--probability", str(share), "-j", "DROP")
        for number in range(2):
            _run(*self.inside(number), "iptables", "-A", "INPUT", "-i", "wire", *rule)

    def slow_down(self, rate: str):
        """Limits the bandwidth in each direction, for example to "1mbit" per second."""
        bucket = ("rate", rate, "burst", "2kb", "latency", "400ms")
        for number in range(2):
            _run(*self.inside(number), "tc", "qdisc", "add", "dev", "wire", "root", "tbf", *bucket)

    def remove(self):
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _set(self, state: str):
        _ip("-n", self._names[1], "link", "set", "wire", state)
