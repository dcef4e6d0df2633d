"""Attacks a gateway while other clients ask `/livez`."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.server.support.children import children_of
from tests.server.support.gateway_process import GatewayProcess
from tests.server.support.livez_probe import LivezProbe

T = TypeVar("T")

CLIENTS = 4
# Under attack, /livez may take RATIO times as long as on a gateway that nobody attacks. Both are
# asked at the same time, because a busy machine delays both. The quiet delay counts as at least
# QUIET_SECONDS.
RATIO = 20
QUIET_SECONDS = 0.005
MEMORY_KB = 1_500_000


def check_others_are_answered(
    gateway: GatewayProcess,
    bystander: GatewayProcess,
    attack: Callable[[int], T],
    *,
    memory_kb: int | None = MEMORY_KB,
    connect: bool = False,
) -> list[T]:
    """Runs an attack from several clients; returns their results.

    Args:
        gateway: The attacked gateway.
        bystander: A gateway that nobody attacks.
        attack: Called once per client with the client's number.
        memory_kb: Largest memory of the gateway and its child processes; None for no limit.
        connect: True if each question to `/livez` uses a new connection.
    """
    for _ in range(3):  # other processes of this machine may disturb one attack, but not each
        pool = concurrent.futures.ThreadPoolExecutor(CLIENTS)
        with (
            LivezProbe(bystander.port, connect) as quiet,
            LivezProbe(gateway.port, connect) as probe,
            pool,
        ):
            results = list(pool.map(attack, range(CLIENTS)))
        print(f"/livez p99: {quiet.p99 * 1e3:.1f} ms quiet, {probe.p99 * 1e3:.1f} ms under attack")
        if probe.p99 <= RATIO * max(quiet.p99, QUIET_SECONDS):
            break
    assert probe.p99 <= RATIO * max(quiet.p99, QUIET_SECONDS), (quiet.p99, probe.p99)
    peak = peak_kb(gateway.process.pid)
    print(f"peak: {peak} kB")
    assert memory_kb is None or peak < memory_kb
    return results


def for_a_second(attack: Callable[[], T]) -> set[T]:
    """Repeats an attack for a second; returns the distinct results."""
    results, end = set(), time.monotonic() + 1
    while time.monotonic() < end:
        results.add(attack())
    return results


def peak_kb(pid: int) -> int:
    """Returns the largest memory that a process and each of its children had, summed up."""
    texts = (Path(f"/proc/{each}/status").read_text() for each in (pid, *children_of(pid)))
    return sum(int(text.split("VmHWM:")[1].split()[0]) for text in texts if "VmHWM:" in text)
