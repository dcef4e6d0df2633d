"""Writes the checkpoint `old_adam` with tfra 0.6.0 or 0.7.2, and adds it to `expected.json`.

Needs an environment that `tests/tfra/wheel.py` describes. The committed files are of 0.6.0.

Run: python tests/tfra_files/data/make_old_artefact.py FOLDER
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from made_up_log import batches
from tensorflow_recommenders_addons import dynamic_embedding as de

STEPS_BEFORE, STEPS_AFTER = 12, 20


def model() -> tf.keras.Model:
    """Returns the model of `make_artefacts.py`."""
    initial = tf.keras.initializers.Constant
    inputs = {
        name: tf.keras.Input([], dtype=tf.int64, name=f"{name}_id") for name in ("user", "item")
    }
    rows = [
        de.keras.layers.Embedding(dim, name=name, initializer=initial(value))(inputs[name])
        for name, dim, value in (("user", 3, 0.5), ("item", 2, -0.25))
    ]
    head = tf.keras.layers.Dense(1, kernel_initializer=initial(0.2), name="head")
    return tf.keras.Model(list(inputs.values()), head(tf.concat(rows, 1)))


def rows(table: Any) -> dict[str, Any]:
    """Returns what a table holds."""
    keys, values = (each.numpy() for each in table.export())
    order = np.argsort(keys)
    return {
        "key_dtype": "int64",
        "value_dtype": "float32",
        "dim": int(table.dim),
        "shards": int(table.shard_num),
        "keys": keys[order].tolist(),
        "values": [[float(str(each)) for each in row] for row in values[order]],
    }


def main(folder: Path) -> None:
    """Trains, writes the checkpoint, and trains on."""
    made = model()
    optimizer = de.DynamicEmbeddingOptimizer(tf.keras.optimizers.Adam(0.01))
    made.compile(optimizer, "mse", run_eagerly=True)
    for batch in batches(0, STEPS_BEFORE):
        made.train_on_batch(*batch)
    (folder / "old_adam").mkdir(parents=True, exist_ok=True)
    tf.train.Checkpoint(model=made, optimizer=optimizer).write(str(folder / "old_adam" / "ckpt"))
    noted = {
        "tables": {
            layer.params.name: {
                **rows(layer.params),
                "slots": {
                    each.name.rpartition("/")[2]: rows(each) for each in layer.optimizer_vars
                },
            }
            for layer in made.layers
            if isinstance(layer, de.keras.layers.Embedding)
        },
        "iterations": int(optimizer.iterations),
        "weights": [each.tolist() for each in made.get_layer("head").get_weights()],
        "losses": [
            float(made.train_on_batch(*batch, reset_metrics=True))
            for batch in batches(STEPS_BEFORE, STEPS_AFTER)
        ],
    }
    known = folder / "expected.json"
    expected = {**json.loads(known.read_text()), "old_adam": noted}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(expected.items())]
    known.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
