"""The smallest complete path: create a table, train, export, and load the export.

python examples/export.py build/tiny
"""

from __future__ import annotations

import argparse
from pathlib import Path

import keras
import tensorflow as tf

import de_core as de


def main() -> None:
    """Runs the example."""
    parser = argparse.ArgumentParser(description="Trains a tiny model, exports it, loads it.")
    parser.add_argument("path", type=Path, help="folder for the numbered SavedModel")
    path = parser.parse_args().path

    # Does a word please? The table learns five words. It was never told how many there would be.
    words = tf.constant(["good", "fine", "great", "bad", "awful"])
    pleases = tf.constant([1.0, 1.0, 1.0, 0.0, 0.0])
    model = keras.Sequential(
        [
            keras.Input(shape=(), dtype="string", name="word"),
            de.layers.Embedding(8, key_dtype=tf.string, name="words"),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )
    model.compile(de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.1)), "binary_crossentropy")
    model.fit(
        tf.data.Dataset.from_tensors((words, pleases[:, None])), epochs=20, shuffle=False, verbose=0
    )
    version = de.export(model, str(path))

    # Another process needs only TensorFlow and `import de_core`, and no code from above.
    loaded = tf.saved_model.load(version)
    scores = loaded.signatures["serving_default"](word=tf.constant(["good", "awful", "new"]))
    lookup = loaded.signatures["de_lookup/words"](ids=tf.constant(["good", "new"]))
    print(f"Exported {int(model.get_layer('words').table.size())} rows to {version}")
    print(f"Scores of good, awful and a new word: {next(iter(scores.values())).numpy().ravel()}")
    print(f"Learned, good and new: {lookup['found'].numpy()}")


if __name__ == "__main__":
    main()
