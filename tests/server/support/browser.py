"""Headless Chromium, driven through its DevTools protocol."""

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

from tests.server.support.eventually import PATIENCE_S, wait_until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PORT = re.compile(r"ws://127\.0\.0\.1:(\d+)/")
INSTALL = "The page is tested in Chromium. Run: apt-get install chromium"


class Browser:
    """One page in a browser."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.number = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

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

    def wait_for(self, script: str) -> Any:
        deadline = time.monotonic() + PATIENCE_S
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


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    """Starts a browser of its own, with one page."""
    assert CHROMIUM, INSTALL
    with contextlib.ExitStack() as stack:
        profile = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        log = Path(profile) / "log"
        process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-quic", "--disable-sync", "--disable-background-networking",
             "--disable-component-update",
             "--disable-dev-shm-usage", "--remote-debugging-port=0", "--hide-scrollbars",
             "--remote-allow-origins=*", f"--user-data-dir={profile}",
             "--window-size=1100,1500", "about:blank"],
            stderr=stack.enter_context(log.open("wb")), stdout=subprocess.DEVNULL,
        )  # fmt: skip
        stack.callback(process.wait, 30)
        stack.callback(process.kill)
        wait_until(lambda: PORT.search(log.read_text()) or process.poll() is not None)
        found = PORT.search(log.read_text())
        assert found, log.read_text()
        pages_url = f"http://127.0.0.1:{found[1]}/json/list"
        with urllib.request.urlopen(pages_url, timeout=PATIENCE_S) as reply:
            pages = [each for each in json.load(reply) if each["type"] == "page"]
        url = pages[0]["webSocketDebuggerUrl"]
        yield Browser(stack.enter_context(connect(url, max_size=64 << 20)))
