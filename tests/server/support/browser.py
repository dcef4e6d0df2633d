"""Headless Chromium, driven through its DevTools protocol."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.server.support.eventually import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
INSTALL = "The page is tested in Chromium. Run: apt-get install chromium"


class Browser:
    """One page in its own browser; a context manager."""

    def __init__(self, width: int = 1100, height: int = 1500) -> None:
        assert CHROMIUM, INSTALL
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.log = Path(self.profile.name) / "log"
        self.log_file = self.log.open("wb")
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-quic", "--disable-sync", "--disable-background-networking",
             "--disable-component-update",
             "--disable-dev-shm-usage", "--remote-debugging-port=0", "--hide-scrollbars",
             "--remote-allow-origins=*", f"--user-data-dir={self.profile.name}",
             f"--window-size={width},{height}", "about:blank"],
            stderr=self.log_file, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.socket: Any = None
        self.stack = contextlib.ExitStack()
        self.number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        try:
            return self._connect()
        except BaseException:
            self.__exit__()
            raise

    def _connect(self) -> Browser:
        deadline = time.monotonic() + PATIENCE_S
        while not (match := re.search(r"ws://127\.0\.0\.1:(\d+)/", self.log.read_text())):
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)
        pages_url = f"http://127.0.0.1:{match[1]}/json/list"
        with urllib.request.urlopen(pages_url, timeout=PATIENCE_S) as reply:
            pages = [each for each in json.load(reply) if each["type"] == "page"]
        url = pages[0]["webSocketDebuggerUrl"]
        self.socket = self.stack.enter_context(connect(url, max_size=64 << 20))
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        self.process.kill()
        self.process.wait(30)
        self.log_file.close()
        self.profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE_S))
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def run(self, script: str) -> Any:
        """Runs an expression in the page; waits for a promise."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script: str, seconds: float = PATIENCE_S) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"{script} stays {value}"
            time.sleep(0.1)
        return value

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip

    def fill(self, **values: str) -> None:
        for name, value in values.items():
            element = json.dumps(name.replace("_", "-"))
            self.run(
                f"(e => {{ e.value = {json.dumps(value)}; "
                f"e.dispatchEvent(new Event('change')); }})(document.getElementById({element}))"
            )

    def submit(self, form: str) -> None:
        self.run(f"document.getElementById('{form}').requestSubmit()")

    def text(self, element: str) -> str:
        return self.run(f"document.getElementById('{element}').innerText")
