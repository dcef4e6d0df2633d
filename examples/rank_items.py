"""One user, many items: asks a ranking model both ways, and prints what each costs.

python examples/rank_items.py --items 500
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from client import GatewayError
from demo import ROOT, running_gateway

CATALOG, HISTORY = 10_000, 50
REQUESTS = 200


def make_model() -> Any:
    """Returns a trained model: a user's id and history, and a ranking network on top of both."""
    import keras
    import tensorflow as tf

    import de_core as de

    class TwoTowers(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.users = de.layers.Embedding(32, name="users", optimizer="adam")
            self.items = de.layers.Embedding(32, name="items", optimizer="adam")
            self.tower = keras.Sequential(
                [keras.layers.Dense(units, "relu") for units in (512, 256, 32)]
            )
            self.ranking = keras.Sequential(
                [keras.layers.Dense(32, "relu"), keras.layers.Dense(1, "sigmoid")]
            )

        def of_user(self, user: tf.Tensor, history: tf.Tensor) -> tf.Tensor:
            seen = tf.reshape(self.items(history), [-1, HISTORY * 32])
            return self.tower(tf.concat([self.users(user), seen], -1))

        def of_pair(self, user: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
            return self.ranking(tf.concat([user, self.items(item)], -1))

        def call(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
            return self.of_pair(self.of_user(inputs["user"], inputs["history"]), inputs["item"])

    model, random = TwoTowers(), np.random.default_rng(0)
    log = {
        "user": random.integers(0, 1000, 4096),
        "history": random.integers(0, CATALOG, [4096, HISTORY]),
        "item": random.integers(0, CATALOG, 4096),
    }
    model.compile("adam", "binary_crossentropy")
    model.fit(log, random.integers(0, 2, 4096).astype("float32"), batch_size=512, verbose=0)
    return model


def export_model(model: Any, path: Path) -> None:
    """Exports the model with the signature `rank`, which takes the user once."""
    import tensorflow as tf

    import de_core as de

    ids, history = tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, HISTORY], tf.int64)

    @tf.function(input_signature=[ids, history, ids])
    def pairs(user: tf.Tensor, history: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
        return {"score": model({"user": user, "history": history, "item": item}, training=False)}

    rank = de.shared_signature(
        model.of_user,
        lambda user, item: {"score": model.of_pair(user, item)},
        shared_inputs={"user": ids, "history": history},
        inputs={"item": ids},
    )
    de.export(model, path, signatures={"serving_default": pairs, "rank": rank})


def cpu_seconds(url: str) -> float:
    """Returns the processor time of a gateway."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    return float(re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)[1])


def cost(url: str, model: str, body: dict[str, Any]) -> tuple[np.ndarray, int, float]:
    """Returns the scores, the bytes of the body, and the gateway's CPU seconds per request."""
    data = json.dumps(body).encode()

    def ask() -> list[list[float]]:
        with urllib.request.urlopen(f"{url}/v1/models/{quote(model)}:predict", data) as answer:
            return json.load(answer)["predictions"]

    scores, before = ask(), cpu_seconds(url)
    for _ in range(REQUESTS):
        ask()
    return np.array(scores), len(data), (cpu_seconds(url) - before) / REQUESTS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "build/rank/two_towers", metavar="DIR")
    parser.add_argument("--items", type=int, default=500, help="candidates (%(default)s)")
    options = parser.parse_args(arguments)
    export_model(make_model(), options.out)
    random = np.random.default_rng(1)
    user = {"user": 7, "history": random.integers(0, CATALOG, HISTORY).tolist()}
    items = random.integers(0, CATALOG, options.items).tolist()
    plain = {"instances": [{**user, "item": item} for item in items]}
    shared = {"signature_name": "rank", "shared": user, "instances": items}
    try:
        with running_gateway(options.out) as url:
            name = options.out.name
            (expected, *costs), (scores, *less) = (cost(url, name, it) for it in (plain, shared))
    except GatewayError as error:
        print(f"rank_items.py: {error}", file=sys.stderr)
        return 2
    print(f"one user and {options.items} items      bytes of the body   CPU ms per request")
    for name, (size, seconds) in (("a pair per item", costs), ("the user once", less)):
        print(f"{name:32}{size:14,}{1000 * seconds:21.1f}")
    print(f"of it                           {less[0] / costs[0]:14.2f}{less[1] / costs[1]:21.2f}")
    print(f"largest difference of a score: {np.abs(expected - scores).max():.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
