"""A click model on a log in Criteo's format: 13 numbers and 26 categorical features.

python examples/dlrm.py                            # on a log that it makes up
python examples/dlrm.py --log day_0.gz             # on yours: label, 13 numbers, 26 hex ids, tabs
python examples/dlrm.py --buckets 1000 10000

The script trains DLRM (https://arxiv.org/abs/1906.00091), measures the AUC on the last part of the
log, exports the model, publishes what it learns from the rest, and asks a gateway. With `--buckets`
it also trains the same model over hashed buckets: dense tables in which ids collide.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from demo import exit_code, running_gateway

NUMBERS, FEATURES = 13, 26
NAMES = [f"c{number:02}" for number in range(1, FEATURES + 1)]
#: The id of a categorical feature that a line leaves empty.
MISSING = -1


class Log(NamedTuple):
    """Impressions in the order of time: whether each was clicked, its numbers and its ids."""

    clicks: np.ndarray  # float32 [n]
    numbers: np.ndarray  # float32 [n, 13]
    ids: np.ndarray  # int64 [n, 26]

    def part(self, begin: float, end: float) -> Log:
        """Returns the impressions between two fractions of the log."""
        first, last = int(begin * len(self.clicks)), int(end * len(self.clicks))
        return Log(*(column[first:last] for column in self))

    def inputs(self) -> dict[str, np.ndarray]:
        """Returns the inputs of the model by name."""
        columns = {name: self.ids[:, place] for place, name in enumerate(NAMES)}
        return {"numbers": self.numbers, **columns}


def read_log(path: Path, most: int) -> Log:
    """Reads at most `most` lines of a file in Criteo's format.

    Raises:
        ValueError: The file cannot be read, or a line is not in this format.
    """
    rows = []
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="ascii") as lines:
            for number, line in zip(range(most), lines, strict=False):
                rows.append(_fields(line, f"{path}:{number + 1}"))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(
            f"The log must be a readable text file, or such a file as .gz. Received: {error}"
        ) from error
    if not rows:
        raise ValueError(f"The log must have a line. Received: {path}, which is empty.")
    clicks, numbers, ids = zip(*rows, strict=True)
    return Log(np.float32(clicks), np.float32(numbers), np.int64(ids))


def _fields(line: str, place: str) -> tuple[int, list[float], list[int]]:
    fields = line.rstrip("\n").split("\t")
    try:
        if len(fields) != 1 + NUMBERS + FEATURES:
            raise ValueError(f"{len(fields)} fields")
        numbers = [float(each or 0) for each in fields[1 : 1 + NUMBERS]]
        ids = [int(each, 16) if each else MISSING for each in fields[1 + NUMBERS :]]
        return int(fields[0]), numbers, ids
    except ValueError as error:
        raise ValueError(
            f"{place}: a line must be a label, {NUMBERS} numbers and {FEATURES} hexadecimal ids, "
            f"separated by tabs. Received: {error}."
        ) from error


def synthetic_log(count: int, seed: int = 0) -> Log:
    """Makes up a log. Each id changes the probability of a click, and few ids are frequent."""
    random = np.random.default_rng(seed)
    numbers = random.lognormal(size=[count, NUMBERS]).astype(np.float32)
    score = 0.5 * np.log(numbers[:, :3]).sum(1) - 1
    ids = np.empty([count, FEATURES], np.int64)
    for place in range(FEATURES):
        height = int(10 ** (1 + 4 * place / (FEATURES - 1)))  # from 10 to 100,000 ids
        ranks = np.minimum(random.pareto(0.6, count), height - 1).astype(np.int64)
        words = random.choice(2**32, height, replace=False)
        score += 0.5 * random.normal(size=height)[ranks]
        ids[:, place] = words[ranks]
    clicks = random.random(count) < 1 / (1 + np.exp(-score))
    return Log(clicks.astype(np.float32), numbers, ids)


def model_of(dim: int, buckets: int = 0):  # noqa: ANN201  Keras is imported later
    """Builds DLRM.

    `buckets` is 0 for tables that give every id its own row. Otherwise it is the number of rows of
    each dense table, and an id reads row `id % buckets`.
    """
    import keras

    import de_core as de

    inputs = {name: keras.Input([], dtype="int64", name=name) for name in NAMES}
    inputs["numbers"] = keras.Input([NUMBERS], name="numbers")
    if buckets:
        rows = [
            keras.layers.Embedding(buckets, dim)(keras.ops.mod(inputs[name], buckets))
            for name in NAMES
        ]
    else:
        features = {
            name: de.FeatureConfig(
                name, de.TableConfig(f"table_{name}", dim, optimizer=keras.optimizers.Adam(0.002))
            )
            for name in NAMES
        }
        rows = list(
            de.layers.EmbeddingCollection(features, name="features")(
                {name: inputs[name] for name in NAMES}
            ).values()
        )
    numbers = keras.ops.log1p(keras.ops.relu(inputs["numbers"]))
    for width in (64, dim):
        numbers = keras.layers.Dense(width, activation="relu")(numbers)
    vectors = keras.ops.stack([numbers, *rows], 1)  # [batch, 27, dim]
    products = keras.ops.matmul(vectors, keras.ops.transpose(vectors, [0, 2, 1]))
    above = [i * (FEATURES + 1) + j for i in range(FEATURES + 1) for j in range(i)]
    pairs = keras.ops.take(keras.layers.Flatten()(products), above, axis=1)
    hidden = keras.layers.Concatenate()([numbers, keras.layers.Flatten()(vectors), pairs])
    for width in (128, 64):
        hidden = keras.layers.Dense(width, activation="relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, activation="sigmoid", name="click")(hidden))
    model.compile(
        keras.optimizers.Adam(0.002), "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")]
    )
    return model


def auc_of(model, log: Log, batch: int) -> float:  # noqa: ANN001
    """Returns the area under the ROC curve."""
    found = model.evaluate(log.inputs(), log.clicks, batch, verbose=0, return_dict=True)
    return float(found["auc"])


def run(options: argparse.Namespace) -> dict[str, float]:
    """Trains, measures, exports, publishes and serves. Returns the AUCs by model."""
    log = read_log(options.log, options.lines) if options.log else synthetic_log(options.lines)
    # TensorFlow takes seconds to load, and a wrong log should fail at once.
    import keras

    import de_core as de

    train, later, test = log.part(0, 0.8), log.part(0.8, 0.9), log.part(0.9, 1)
    print(f"{len(log.clicks):,} impressions, {float(log.clicks.mean()):.1%} clicked.", flush=True)
    aucs = {}
    for buckets in [0, *options.buckets]:
        keras.utils.set_random_seed(0)
        model = model_of(options.dim, buckets)
        model.fit(train.inputs(), train.clicks, options.batch, options.epochs, verbose=0)
        name = f"{buckets:,} buckets" if buckets else "a row per id"
        aucs[name] = auc_of(model, test, options.batch)
        print(f"AUC {aucs[name]:.4f} with {name}", flush=True)
        if not buckets:
            best = model
    tables = best.get_layer("features").tables
    print(f"{sum(int(table.size()) for table in tables.values()):,} rows in {len(tables)} tables")

    publication = de.publish(best, options.out, dtype="int8")
    best.fit(later.inputs(), later.clicks, options.batch, verbose=0)
    newer = de.publish(best, options.out, dtype="int8")
    print(f"Published {publication} and, after more training, {newer}.", flush=True)
    with running_gateway(options.out) as url:
        few = Log(*(column[:4] for column in test))
        request = {name: column.tolist() for name, column in few.inputs().items()}
        body = json.dumps({"inputs": request}).encode()
        address = f"{url}/v1/models/{options.out.name}:predict"
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=30) as reply:
            answers = np.array(json.load(reply)["outputs"]).ravel()
    own = best.predict(few.inputs(), verbose=0).ravel()
    print(f"The gateway answers {np.round(answers, 3)}; the model says {np.round(own, 3)}.")
    return aucs


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", type=Path, help="a file in Criteo's format; default: made up")
    parser.add_argument("--lines", type=int, default=200_000, help="most lines (default 200000)")
    parser.add_argument("--out", type=Path, default=Path("models/dlrm"), metavar="DIR")
    parser.add_argument("--buckets", type=int, nargs="*", default=[], help="rows of dense tables")
    parser.add_argument("--dim", type=int, default=16, help="values per row (default 16)")
    parser.add_argument("--batch", type=int, default=1024, help="impressions per step")
    parser.add_argument("--epochs", type=int, default=1)
    return exit_code(run, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
