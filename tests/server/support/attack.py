"""Attacks a gateway while other clients ask it."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.server.support.children import children_of
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import GatewayProcess

T = TypeVar("T")

CLIENTS = 4
#: What a request is told whose codec process ended before its work was done.
LOST = "The request needs too much memory to be read"


def check_others_are_answered(gateway: GatewayProcess, attack: Callable[[int], T]) -> list[T]:
    """Runs an attack from several clients; returns their results.

    Meanwhile and afterwards, another client must be answered.
    """
    statuses, done = set(), threading.Event()

    def ask() -> None:
        while not done.wait(0.02):
            statuses.add(gateway.ask("GET", "/livez").status)

    with concurrent.futures.ThreadPoolExecutor(CLIENTS + 1) as pool:
        other = pool.submit(ask)
        try:
            results = list(pool.map(attack, range(CLIENTS)))
        finally:
            done.set()
        other.result()
    assert gateway.ask("GET", "/livez").status == 200
    assert statuses <= {200}
    return results


def several(attack: Callable[[], T]) -> set[T]:
    """Repeats an attack; returns the distinct results."""
    return {attack() for _ in range(5)}


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
