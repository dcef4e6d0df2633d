"""Two networks of a test's own, joined by a link that it can cut."""

from __future__ import annotations

import os
import subprocess


def _ip(*arguments: str):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=60)


class Networks:
    """Two network namespaces, each with one end of a link.

    Attributes:
        addresses: Of each, known in these two alone.

    Raises:
        OSError: There is no `ip` here.
        subprocess.CalledProcessError: This process may not make namespaces.
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
        """Returns what makes a command run in one of the two."""
        return ["ip", "netns", "exec", self._names[number]]

    def cut(self):
        """Loses all packets between the two from now on; connections stay open."""
        self._set("down")

    def join(self):
        """Lets packets pass again."""
        self._set("up")

    def remove(self):
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _set(self, state: str):
        _ip("-n", self._names[1], "link", "set", "wire", state)
