"""A model that learns while it is served: a trainer publishes versions and a client asks.

python examples/online_update.py --seconds 30 --every 3
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from client import Client, GatewayError
from demo import ROOT, exit_code, running_gateway
from interactions import synthetic_log
from train_ranking import batches, build_model

# Training steps between two versions.
STREAM_STEPS = 10
STREAM_BATCH = 64


class Asker(threading.Thread):
    """A client that requests one score repeatedly, and records how old the answers are.

    Args:
        instance: A user and an item.
        every: Seconds between two requests.
    """

    def __init__(self, client: Client, instance: dict[str, str], every: float) -> None:
        super().__init__(daemon=True)
        self._client, self._instance, self._every = client, instance, every
        self._ended = threading.Event()
        self.ages: list[float] = []
        self.generations: set[tuple[str, int]] = set()
        self.error: GatewayError | None = None

    def run(self) -> None:
        """Requests until `stop` is called or a request fails."""
        try:
            while not self._ended.wait(self._every):
                self._ask()
        except GatewayError as error:
            self.error = error

    def stop(self) -> None:
        """Ends the requests, and raises their error, if there was one."""
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error

    def _ask(self) -> None:
        (score,) = self._client.predict([self._instance])
        table = self._client.tables()[0]
        age = time.time() - table["created_micros"] / 1e6
        self.ages.append(age)
        self.generations.add((table["base"], table["generation"]))
        print(
            f"  client   score {score:.3f}, from base {table['base'][:6]} and {table['deltas']} "
            f"deltas, {age:.1f} s old",
            flush=True,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Trains, publishes the changes every few seconds, and serves them at the same "
        "time. Measures how old the answers are."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/online/ranking", metavar="DIR")
    parser.add_argument("--seconds", type=float, default=30, help="seconds to run (%(default)s)")
    parser.add_argument(
        "--every", type=float, default=3, help="seconds between two versions (%(default)s)"
    )
    parser.add_argument("--events", type=int, default=150_000, help="length of the synthetic log")
    return exit_code(_run, parser.parse_args(arguments))


def _run(options: argparse.Namespace) -> None:
    import de_core as de

    log = synthetic_log(0, num_events=options.events)
    model = build_model(dim=16)
    yesterday = batches(log, batch_size=2048, seed=0)
    steps = sum(1 for batch in yesterday if model.train_on_batch(*batch) is not None)
    today = iter(batches(log, batch_size=STREAM_BATCH, seed=1).repeat())

    def publish(steps: int) -> None:
        began = time.perf_counter()
        path = de.publish(model, options.out)
        seconds = time.perf_counter() - began
        rows = sum(table["rows"] for table in path.report["tables"].values())
        size = sum(table["bytes"] for table in path.report["tables"].values())
        print(
            f"trainer    {steps} steps, then version {Path(path).name}: {path.report['kind']}, "
            f"{rows:,} rows, {size / 1e6:.2f} MB, {seconds:.2f} s",
            flush=True,
        )

    publish(steps)
    instance = {"user_id": str(log.user_ids[0]), "item_id": str(log.item_ids[0])}
    with running_gateway(options.out, "--poll-seconds", "0.5") as url:
        asker = Asker(Client(url, options.out.name), instance, every=min(1, options.every))
        asker.start()
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            for _ in range(STREAM_STEPS):
                model.train_on_batch(*next(today))
                time.sleep(options.every / STREAM_STEPS)
            publish(STREAM_STEPS)
        time.sleep(options.every)  # clients also see the last version
        asker.stop()
    print(
        f"The client asked {len(asker.ages)} times and saw {len(asker.generations)} versions; "
        f"the oldest that answered was {max(asker.ages):.1f} s old."
    )


if __name__ == "__main__":
    sys.exit(main())
