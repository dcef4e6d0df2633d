"""Runs Python in processes that are forked from one that has imported `de_core`.

Such a process has imported modules and nothing else: no table, no device, no thread. A new
interpreter would spend some five CPU seconds on the imports.

This module runs as the program that forks. Each line of its input is a JSON object, an order. The
answer is a line with the exit status and the CPU seconds of the process.
"""

import contextlib
import gc
import importlib
import json
import linecache
import os
import runpy
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]


class Forks:
    """Forks processes, and returns what they printed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: dict[tuple[str, str], subprocess.Popen[str]] = {}
        self._spent = 0.0

    def source(self, text: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess:
        """Runs Python source, as `python -c` does. It takes the options of `call`."""
        return self.call(run_source, text, *map(str, arguments), **options)

    def file(self, path: Path, *arguments: object, **options: Any) -> subprocess.CompletedProcess:
        """Runs a script. It takes the options of `call`."""
        return self.call(run_file, str(path), *map(str, arguments), **options)

    def module(self, name: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess:
        """Runs a module, as `python -m` does. It takes the options of `call`."""
        return self.call(run_module, name, *map(str, arguments), **options)

    def call(
        self,
        function: Any,
        *arguments: Any,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        timeout: int = 1200,
    ) -> subprocess.CompletedProcess:
        """Calls a module's function in a forked process."""
        environment = dict(os.environ if env is None else env)
        output, errors = self._folder / "stdout", self._folder / "stderr"
        order = {
            "module": function.__module__,
            "function": function.__name__,
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": environment,
            "timeout": timeout,
            "stdout": str(output),
            "stderr": str(errors),
        }
        server = self._server(environment)
        server.stdin.write(json.dumps(order) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        assert answer, "The process that forks has ended. Read its messages on standard error."
        status, seconds = json.loads(answer)
        self._spend(seconds)
        texts = [path.read_text("utf-8", "replace") for path in (output, errors)]
        return subprocess.CompletedProcess(order["function"], status, *texts)

    def stop(self) -> None:
        """Ends the processes that fork."""
        self._spend(-self._spent)  # from here on the system counts these seconds as this process's
        for server in self._servers.values():
            server.communicate(timeout=60)

    def _server(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Returns the server for the variables that have an effect during the imports."""
        key = environment.get("TF_USE_LEGACY_KERAS", "0"), environment.get("LD_PRELOAD", "")
        if key not in self._servers:
            variables = {"TF_USE_LEGACY_KERAS": key[0], "LD_PRELOAD": key[1]}
            self._servers[key] = subprocess.Popen(
                [sys.executable, "-m", "tests.support.forks"],
                cwd=ROOT,
                env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._servers[key]

    def _spend(self, seconds: float) -> None:
        # Not above: pytest must be the first to import its plugins, also in a forked process.
        from tests.support import costs

        self._spent += seconds
        costs.elsewhere += seconds


def run_source(text: str, *arguments: str) -> None:
    """Runs source as the module `__main__`."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = ["-c", *arguments]
    run_block(text, "<string>", module)


def run_block(text: str, name: str, module: types.ModuleType) -> None:
    """Runs source in a module; `name` stands for its file."""
    # AutoGraph and `inspect` read the source of a function from here.
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), module.__dict__)


def run_file(path: str, *arguments: str) -> None:
    """Runs a script as the module `__main__`."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def run_module(name: str, *arguments: str) -> None:
    """Runs a module as the module `__main__`."""
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _in_child(order: dict[str, Any]) -> NoReturn:
    os.setpgid(0, 0)  # the parent ends all processes of an order together
    signal.alarm(order["timeout"])
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    with open(os.devnull) as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [order["cwd"], *filter(None, folders)]
    function = getattr(importlib.import_module(order["module"]), order["function"])
    with _exit_status() as status:
        function(*order["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status[0])


@contextlib.contextmanager
def _exit_status() -> Iterator[list[int]]:
    """Yields a list of the status with which Python ends after the block."""
    status = [0]
    try:
        yield status
    except SystemExit as error:
        status[0] = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status[0] = 1


def main() -> None:
    """Runs orders until standard input ends."""
    import de_core  # noqa: F401

    # No garbage collection of a child visits, and so copies, the memory that it shares.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _in_child(json.loads(line))
        _, status, usage = os.wait4(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        seconds = usage.ru_utime + usage.ru_stime
        print(json.dumps([os.waitstatus_to_exitcode(status), seconds]), flush=True)


if __name__ == "__main__":
    main()
