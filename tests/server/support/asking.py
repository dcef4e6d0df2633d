"""Clients that ask without end."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any


@contextlib.contextmanager
def asking(ask: Callable[[], Any], clients: int, pause: float = 0.0) -> Iterator[list[Any]]:
    """Clients ask again and again, and must not fail; yields the list of their answers."""
    told: list[Any] = []
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
