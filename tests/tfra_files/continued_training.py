"""Imports models that the real tfra trained, and trains on. Prints the differences of the losses.

Run: TF_USE_LEGACY_KERAS=1 python tests/tfra_files/continued_training.py FOLDER FORM ...
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from made_up_log import OPTIMIZERS, batches

import de_core as de
from de_core.tfra_files import import_checkpoint

NEW, LEGACY = tf_keras.optimizers, tf_keras.optimizers.legacy
# Under a new optimizer, tfra begins the slots of rows at zero instead of the initial value.
FROM_ZERO = {
    "new_adagrad": lambda kind: kind.Adagrad(0.1, initial_accumulator_value=0.0),
    "new_ftrl": lambda kind: kind.Ftrl(0.1, initial_accumulator_value=0.0),
}


POLICIES = {"user": de.FrequencyRestrictPolicy, "item": de.TimestampRestrictPolicy}


def model(optimizer: Any, has_policies: bool) -> tf_keras.Model:
    """Returns the model of `data/make_artefacts.py`, over the tables here."""
    inputs = {
        name: tf_keras.Input([], dtype=tf.int64, name=f"{name}_id") for name in ("user", "item")
    }
    rows = [
        de.layers.Embedding(
            dim,
            name=name,
            initializer=initial,
            restrict_policy=POLICIES[name] if has_policies else None,
        )(inputs[name])
        for name, dim, initial in (("user", 3, 0.5), ("item", 2, -0.25))
    ]
    head = tf_keras.layers.Dense(1, name="head")
    made = tf_keras.Model(list(inputs.values()), head(tf.concat(rows, 1)))
    made.compile(optimizer, "mse", run_eagerly=True)
    return made


def difference(data: Path, form: str, expected: dict[str, Any]) -> float:
    """Returns the greatest relative difference of a loss from the loss with tfra."""
    tf_keras.backend.clear_session()
    kind, _, name = form.partition("_")
    make = FROM_ZERO.get(form) or OPTIMIZERS.get(name, OPTIMIZERS["adam"])
    is_legacy = kind in ("legacy", "old")
    optimizer = de.DynamicEmbeddingOptimizer(make(LEGACY if is_legacy else NEW))
    made = model(optimizer, form == "policies")
    if not is_legacy:
        optimizer.build(made.trainable_variables)
    if form in ("weights", "saved_model"):
        import_checkpoint(data / form / ("model" if form == "weights" else ""), made)
    else:
        target = tf.train.Checkpoint(model=made, optimizer=optimizer)
        import_checkpoint(data / form / "ckpt", target)
    for got, wanted in zip(made.get_layer("head").get_weights(), expected["weights"], strict=True):
        np.testing.assert_array_equal(got, np.array(wanted, np.float32))
    first, worst = expected["iterations"], 0.0
    assert int(optimizer.iterations) == first
    steps = zip(batches(first, len(expected["losses"])), expected["losses"], strict=True)
    for (ids, labels), wanted in steps:
        got = float(made.train_on_batch(ids, labels, reset_metrics=True))
        worst = max(worst, abs(got - wanted) / wanted)
    return worst


def main() -> None:
    """Prints the difference of each form as JSON."""
    data = Path(sys.argv[1])
    expected = json.loads((data / "expected.json").read_text())
    print(json.dumps({form: difference(data, form, expected[form]) for form in sys.argv[2:]}))


if __name__ == "__main__":
    main()
