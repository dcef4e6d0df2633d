"""Runs the code blocks of documentation pages, each page in a process of its own.

This module runs as a program. It imports TensorFlow once. Then it forks a process for each page, so
a page costs no import. A line of standard input is a JSON object: `page` is the file, `name` its
name in error messages, `folder` an empty folder to run in, `output` a file for everything that the
page prints, and `left_out` the first lines of blocks that do not run. The answer is a line with
the page's exit status.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: An error of the server must fail the page.
CURL = 'curl() { command curl --fail-with-body --silent --show-error "$@"; }\n'
SERVER = ("de-core serve", "python -m server")


class Block(NamedTuple):
    """A fenced block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]


def blocks_of(page: str) -> list[Block]:
    """Returns all fenced blocks of a page, without their indentation."""
    return [
        Block(
            found[2],
            re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE),
            page.count("\n", 0, found.start()) + 2,
        )
        for found in BLOCK.finditer(page)
    ]


def run_page(page: Path, name: str, left_out: list[str]) -> None:
    """Runs the blocks of a page from top to bottom: Python in one module, shell in bash."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ["DE_GATEWAY_PORT"] = str(port)
    with contextlib.ExitStack() as servers:
        for block in blocks_of(page.read_text("utf-8")):
            if block.first_line in left_out:
                continue
            text = block.text.replace("127.0.0.1:8501", f"127.0.0.1:{port}")
            if block.language == "python":
                _run_python(text, f"{name}:{block.line}", module)
            elif block.language == "sh" and text.startswith(SERVER):
                servers.enter_context(_serving(text, port))
            elif block.language == "sh":
                command = ["bash", "-euo", "pipefail", "-c", CURL + text]
                done = subprocess.run(command, check=False)
                assert done.returncode == 0, f"{name}:{block.line}: status {done.returncode}"


def _run_python(text: str, name: str, module: types.ModuleType) -> None:
    # AutoGraph and `inspect` read the source of a function from here.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), module.__dict__)


@contextlib.contextmanager
def _serving(command: str, port: int) -> Any:
    """Runs a server in the background until the page ends; waits until it is ready."""
    server = subprocess.Popen(["bash", "-c", f"exec {command}"])
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10).close()
                break
            except (urllib.error.URLError, OSError):
                assert server.poll() is None, f"The server ended: {command}"
                assert time.monotonic() < deadline, f"The server is not ready: {command}"
                time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(60)


def _in_child(order: dict[str, Any]) -> None:
    os.setpgid(0, 0)  # the parent ends all processes of a page together
    output = os.open(order["output"], os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(order["folder"])
    try:
        run_page(Path(order["page"]), order["name"], order["left_out"])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Runs pages until standard input ends."""
    import de_core  # noqa: F401

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _in_child(json.loads(line))
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
