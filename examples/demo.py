"""The complete path in about a minute: train, export, serve, ask over HTTP, stop.

make demo                  # in an environment of its own
python examples/demo.py    # in this one
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import train_ranking
from client import Client, GatewayError, ask
from interactions import synthetic_log

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS = 60
STOP_SECONDS = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Trains a ranking model on a synthetic log, exports it, serves it and asks it."
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build/demo/ranking", metavar="DIR")
    parser.add_argument("--events", type=int, default=150_000, help="length of the synthetic log")
    parser.add_argument("--epochs", type=int, default=5)
    return exit_code(_run, parser.parse_args(arguments))


def exit_code(run: Callable[[argparse.Namespace], None], options: argparse.Namespace) -> int:
    """Runs an example and returns its exit code. An error that the user can mend is one line."""
    try:
        run(options)
    except (GatewayError, OSError, ValueError) as error:
        print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    print("== Train", flush=True)
    log = synthetic_log(0, num_events=options.events)
    print(f"A synthetic log of {len(log):,} interactions.")
    training = ["--epochs", str(options.epochs), "--out", str(options.out)]
    user, item = train_ranking.run(log, train_ranking.parser().parse_args(training))

    print("\n== Serve", flush=True)
    with running_gateway(options.out) as url:
        client = Client(url, options.out.name)
        print(f"A user and an item that the model knows, and an item it never saw ({url}):")
        ask(client, user, [item, "never-seen"])
        print("A user it never saw:")
        ask(client, "somebody-new", [item])
    print("The gateway has stopped.")

    body = json.dumps({"instances": [{"user_id": user, "item_id": item}]})
    serve = [_shown(Path(sys.executable)), "-m", "server", "--model-dir", _shown(options.out)]
    print("\nTry next: start the gateway again and, in another terminal, ask it:")
    print(f"  {shlex.join(serve)}")
    url = f"http://127.0.0.1:8501/v1/models/{quote(options.out.name)}:predict"
    print(f"  curl -d {shlex.quote(body)} {url}")


@contextlib.contextmanager
def running_gateway(model_dir: Path, *arguments: str) -> Iterator[str]:
    """Starts a gateway on a free port, waits until it is ready, and stops it at the end.

    `arguments` are further arguments of the gateway's command line.

    Yields:
        The gateway's URL.

    Raises:
        GatewayError: It did not start, did not become ready, or did not stop properly.
    """
    log_file = model_dir.parent / "gateway.log"
    folder = str(model_dir.absolute())  # the gateway runs in another folder
    command = [sys.executable, "-m", "server", "--model-dir", folder, "--port", "0", *arguments]
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        yield _wait_until_ready(process, log_file)
        process.send_signal(signal.SIGINT)
        if process.wait(STOP_SECONDS) != 0:
            raise GatewayError(f"The gateway ended with {process.returncode}; see {log_file}.")
    except subprocess.TimeoutExpired as error:
        raise GatewayError(f"The gateway did not stop; see {log_file}.") from error
    finally:
        process.kill()  # has no effect if it has ended
        process.communicate()


def _wait_until_ready(process: subprocess.Popen[str], log_file: Path) -> str:
    assert process.stdout is not None
    says = next((line for line in process.stdout if " listens on " in line), "")
    url = says.strip().rpartition(" ")[2]
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and url and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, TimeoutError):
            urllib.request.urlopen(f"{url}/readyz", timeout=5).close()
            return url
        time.sleep(0.1)
    reason = log_file.read_text(errors="replace").strip().splitlines()[-3:]
    raise GatewayError(f"The gateway did not start; {log_file} ends with: {' | '.join(reason)}")


def _shown(path: Path) -> str:
    """Returns the shortest path from the current folder."""
    with contextlib.suppress(ValueError):
        return str(path.absolute().relative_to(Path.cwd()))
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
