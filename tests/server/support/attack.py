"""Clients that ask without end, and attacks whose work is done apart."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tests.server.support.children import children_of
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import GatewayProcess

T = TypeVar("T")

CLIENTS = 4
#: What a request is told whose codec process ended before its work was done.
LOST = "The request needs too much memory to be read"


@contextlib.contextmanager
def asking(ask: Callable[[], T], clients: int, pause: float = 0.0) -> Iterator[list[T]]:
    """Clients ask again and again, and must not fail; yields the list of their answers."""
    told: list[T] = []
    failures: list[Exception] = []
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(pause):
            try:
                told.append(ask())
            except Exception as error:
                failures.append(error)

    with ThreadPoolExecutor(clients) as pool:
        for _ in range(clients):
            pool.submit(go_on)
        try:
            yield told
        finally:
            stop.set()
    assert failures == []


def check_work_is_done_apart(gateway: GatewayProcess, attack: Callable[[], T]) -> tuple[T, T]:
    """Checks that another process does an attack's work, so that it delays nobody.

    Returns the attack's result, and its result after that process was killed: the request must be
    refused with `LOST`, because nothing else does the work.
    """
    result = attack()
    children = children_of(gateway.process.pid)
    assert children, "the gateway itself did the work"
    for child in children:
        os.kill(child, signal.SIGKILL)
    wait_until(lambda: all(map(has_ended, children)))
    return result, attack()


def has_ended(pid: int) -> bool:
    """Returns whether a process has ended; its parent may not have noticed yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
