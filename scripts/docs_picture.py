"""Draws the documentation's picture of the data's way, from training to clients.

It needs matplotlib, from the extra `docs`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"

BOXES = {
    "ids, labels": (0, 1),
    "lookup": (1, 1),
    "model and loss": (2, 1),
    "optimizer": (3, 1),
    "table": (2, 0),
    "checkpoint": (1, 0),
    "SavedModel\nwith table files": (3, 0),
    "gateway": (4, 0),
    "clients": (4, 1),
}
ARROWS = (
    ("ids, labels", "lookup", ""),
    ("lookup", "model and loss", "rows"),
    ("model and loss", "optimizer", "gradients"),
    ("optimizer", "table", "updates rows and slots"),
    ("table", "lookup", "reads"),
    ("table", "checkpoint", "save,\nrestore"),
    ("table", "SavedModel\nwith table files", "export,\npublish"),
    ("SavedModel\nwith table files", "gateway", "maps"),
    ("gateway", "clients", "REST, gRPC"),
)


def draw_data_way(pyplot: Any) -> None:
    """Writes the picture of the data's way from training to clients."""
    figure, axes = pyplot.subplots(figsize=(9.5, 2.9))
    places = {name: (2.6 * x, 1.7 * y) for name, (x, y) in BOXES.items()}
    boxes = {}
    for name, place in places.items():
        own = name in ("lookup", "optimizer", "table")
        style = {
            "boxstyle": "round,pad=0.5",
            "facecolor": "#bee3f8" if own else "#edf2f7",
            "edgecolor": "#2b6cb0" if own else "#718096",
        }
        boxes[name] = axes.text(*place, name, ha="center", va="center", zorder=3, bbox=style)
    for start, end, label in ARROWS:
        (x, y), (to_x, to_y) = places[start], places[end]
        style = {
            "arrowstyle": "<|-|>" if "restore" in label else "-|>",
            "color": "#4a5568",
            "patchA": boxes[start].get_bbox_patch(),
            "patchB": boxes[end].get_bbox_patch(),
        }
        axes.annotate("", (to_x, to_y), (x, y), arrowprops=style)
        middle = ((x + to_x) / 2, (y + to_y) / 2)
        white = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(*middle, label, ha="center", va="center", fontsize=8, bbox=white)
    axes.set_xlim(-0.8, 11.2)
    axes.set_ylim(-0.6, 2.3)
    axes.axis("off")
    figure.tight_layout()
    figure.patch.set_facecolor("white")
    figure.savefig(IMAGES / "data-way.svg", metadata={"Date": None})


def main() -> None:
    """Writes the picture as a small file whose text stays text."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "de-core"})
    from matplotlib import pyplot

    draw_data_way(pyplot)


if __name__ == "__main__":
    main()
