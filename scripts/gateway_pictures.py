"""Takes the documentation's pictures of the gateway's page: five minutes of training and traffic.

Run `python -m scripts.gateway_pictures` in the checkout. It needs Chromium and the extras `server`
and `test`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import keras
import numpy as np

import de_core as de
from tests.server.support.browser import Browser
from tests.server.support.gateway_process import GatewayProcess

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SECOND_ROWS = 40


def ranker() -> keras.Model:
    """Returns a compiled model with one table of users and one of items."""
    user = keras.Input([], dtype="int64", name="user")
    item = keras.Input([], dtype="string", name="item")
    rows = [
        de.layers.Embedding(8, name="users", initializer="normal")(user),
        de.layers.Embedding(8, name="items", initializer="normal", key_dtype="string")(item),
    ]
    model = keras.Model([user, item], keras.layers.Dot(1, name="score")(rows))
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01)), "mse")
    return model


def train(model: keras.Model, newest: int) -> None:
    """Trains one step on users up to `newest`."""
    users = np.random.default_rng(newest).integers(0, newest, size=512)
    items = np.array([f"item {user % (newest // 4 + 1)}" for user in users])
    model.train_on_batch([users, items], (users % 2).astype("float32"))


def main() -> None:
    """Runs the gateway under traffic, and writes both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300, help="seconds of traffic")
    seconds = parser.parse_args().seconds
    random = np.random.default_rng(0)
    model, newest = ranker(), 200
    with tempfile.TemporaryDirectory() as folder:
        served = Path(folder) / "ranker"
        train(model, newest)
        de.publish(model, served)
        with (
            GatewayProcess(served, Path(folder) / "log", "--ui", "--poll-seconds", "1") as gateway,
            Browser() as browser,
        ):
            gateway.wait_ready()
            browser.open(f"http://127.0.0.1:{gateway.port}/ui")
            end, second = time.monotonic() + seconds, 0
            while time.monotonic() < end:
                second += 1
                newest += SECOND_ROWS
                train(model, newest)
                if second % 80 == 0:
                    de.publish(model, served)
                for _ in range(int(random.integers(4, 12))):
                    ids = random.integers(0, newest * 11 // 10, size=20).tolist()
                    gateway.ask("POST", "/v1/models/ranker:lookup", {"table": "users", "ids": ids})
                if second % 29 == 0:
                    gateway.ask("POST", "/v1/models/ranker:lookup", {"table": "none", "ids": [1]})
                browser.run("1")  # reads the browser's events, so that it stays connected
                time.sleep(0.6)
            body = {"instances": [{"user": 7, "item": "item 7"}, {"user": 8, "item": "item 8"}]}
            browser.fill(send_verb="predict")
            browser.fill(send_body=json.dumps(body))
            browser.submit("send-form")
            browser.fill(lookup_table="ranker / users", lookup_id="7", lookup_others="8 9")
            browser.submit("lookup-form")
            browser.wait_for("document.getElementById('send-answer').innerText.startsWith('200')")
            browser.wait_for("document.getElementById('neighbours').rows.length")
            for name, width, height in (
                ("gateway-page.png", 1100, 1330),
                ("gateway-page-phone.png", 390, 844),
            ):
                browser.resize(width, height)
                browser.screenshot(IMAGES / name)


if __name__ == "__main__":
    main()
