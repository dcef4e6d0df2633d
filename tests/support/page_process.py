"""Runs the code blocks of a documentation page, in a process of its own (`Forks`)."""

import contextlib
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.support.forks import run_block

BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: An error of the server must fail the page.
CURL = 'curl() { command curl --fail-with-body --silent --show-error "$@"; }\n'
SERVER = ("de-core serve", "python -m server")
#: The server's address on the page. The page's server listens on another port, a free one.
ADDRESS = "127.0.0.1:8501"


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


def run_page(page: str, name: str, left_out: list[str]) -> None:
    """Runs the blocks of a page from top to bottom: Python in one module, shell in bash.

    Blocks whose first line is in `left_out` do not run. `name` stands for the page in errors.
    """
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    os.environ["DE_GATEWAY_PORT"] = "0"
    address = ADDRESS
    with contextlib.ExitStack() as servers:
        for block in blocks_of(Path(page).read_text("utf-8")):
            if block.first_line in left_out:
                continue
            text = block.text.replace(ADDRESS, address)
            if block.language == "python":
                run_block(text, f"{name}:{block.line}", module)
            elif block.language == "sh" and text.startswith(SERVER):
                address = servers.enter_context(_serving(text))
            elif block.language == "sh":
                command = ["bash", "-euo", "pipefail", "-c", CURL + text]
                done = subprocess.run(command, check=False)
                assert done.returncode == 0, f"{name}:{block.line}: status {done.returncode}"


@contextlib.contextmanager
def _serving(command: str) -> Iterator[str]:
    """Runs a server until the page ends; waits until it is ready, and yields its address."""
    from tests.server.support.gateway_process import GatewayProcess  # few pages need it

    folder = Path.cwd()
    options = {"program": ["bash", "-c", f"exec {command}"], "cwd": folder, "env": os.environ}
    with GatewayProcess(None, folder.parent / "server.log", **options) as server:
        server.wait_ready()
        try:
            yield f"127.0.0.1:{server.port}"
        except BaseException:
            sys.stderr.write(server.log())
            raise
        server.process.terminate()
        server.process.wait(60)
