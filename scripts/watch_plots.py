"""Draws the picture of the page about watching a trainer, from a real training run.

Run `python scripts/watch_plots.py`. It needs matplotlib, from the extra `docs`, and half a minute.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np

import de_core as de

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "table-metrics.svg"
EPOCHS, BATCHES, BATCH = 30, 20, 512
PANELS = {
    "rows": ("rows",),
    "miss rate": ("miss_rate",),
    "evicted rows": ("evicted",),
    "row norms": ("row_norm_p50", "row_norm_p90", "row_norm_p99"),
}


def log_of(epoch: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Returns the ids and labels of an epoch. The frequent ids change slowly.

    Args:
        epoch: The number of the epoch.
    """
    random = np.random.default_rng(epoch)
    ids = random.zipf(1.3, BATCHES * BATCH) % 5000 + 150 * epoch
    return ids.astype(np.int64), ((ids % 7) < 3).astype(np.float32)


def numbers() -> dict[str, list[float]]:
    """Trains a table; returns its numbers after each epoch, by name."""
    layer = de.layers.Embedding(
        8, name="users", optimizer="adam", eviction=de.EvictionLRU(max_rows=4000)
    )
    head = keras.layers.Dense(1, activation="sigmoid")
    model = keras.Sequential([keras.Input([], dtype="int64"), layer, head])
    model.compile("adam", "binary_crossentropy")
    found: dict[str, list[float]] = {}
    for epoch in range(EPOCHS):
        ids, labels = log_of(epoch)
        callbacks = [de.callbacks.TableMetrics()]
        history = model.fit(ids, labels, BATCH, verbose=0, callbacks=callbacks).history
        for name, values in history.items():
            found.setdefault(name.removeprefix("users/"), []).append(float(values[0]))
    return found


def main() -> None:
    """Draws the picture."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "de_core"
    from matplotlib import pyplot

    found = numbers()
    figure, axes = pyplot.subplots(1, len(PANELS), figsize=(11, 2.4), layout="constrained")
    for panel, (title, parts) in zip(axes, PANELS.items(), strict=True):
        for part in parts:
            panel.plot(found[part], label=part.removeprefix("row_norm_"))
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("epoch")
        panel.set_ylim(bottom=0)
        if len(parts) > 1:
            panel.legend(fontsize=8)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
