"""Ports for servers whose numbers others must know before the servers start."""

import random
import socket

_held: list[socket.socket] = []


def held_ports(count: int) -> list[int]:
    """Returns free ports of 127.0.0.1 that the system gives to nobody until this process ends.

    This process's sockets are bound to them, but do not listen. So a server that sets SO_REUSEADDR,
    as gRPC's do, can still listen on them. Without a server a connection is refused.
    """
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
    _held.extend(probes)
    return [probe.getsockname()[1] for probe in probes]


def some_port() -> int:
    """Returns a port that the system gives to no connection: servers have it, or nobody.

    Prefer port 0. Start again with another port if the server says that this one is taken.
    """
    return random.randrange(20_000, 32_000)
