"""Draws the pictures of the documentation: the way of the data, and plots of the benchmarks.

Run `python scripts/docs_plots.py` after a change of `docs/reference/benchmarks.md`. It needs
matplotlib, from the extra `docs`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "docs" / "reference" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
COLORS = ("#2b6cb0", "#c05621", "#718096", "#a0aec0")
Bars = dict[str, dict[str, float]]  # by group, then by series


def rows_below(heading: str) -> list[dict[str, str]]:
    """Returns the first table below a heading of the benchmarks, one dict per row."""
    text = BENCHMARKS.read_text("utf-8")
    lines = text[text.index(heading) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return [dict(zip(table[0], row, strict=False)) for row in table[2:]]


def lookups() -> Bars:
    """Returns lookups in million ids per second, in batches of 16,384, by dim and library."""
    names = ("de_core", "tf.gather", "DenseHashTable", "MutableHashTable")
    return {
        f"dim {row['dim']}": {name: float(row[name]) for name in names}
        for row in rows_below("### Lookup op")
        if row["batch"] == "16384"
    }


def steps() -> Bars:
    """Returns milliseconds per step with Adam: the median of the runs, by dim and way of work."""

    def median(numbers: str) -> float:
        ordered = sorted(float(number) for number in numbers.split(","))
        half = len(ordered) // 2
        return round((ordered[half - 1] + ordered[half]) / 2, 2)

    names = ("de_core", "read-modify-write", "dense")
    return {
        f"dim {row['dim'].split(',')[0]}": {name: median(row[name]) for name in names}
        for row in rows_below("## Training: one step")
    }


def loads() -> Bars:
    """Returns milliseconds until an export is loaded, by its size and table."""
    return {
        re.sub(r"(\d),000,000 x", r"\1 million x", row["rows x dim"]): {
            "de_core": float(row["load"]),
            "MutableHashTable": float(row["`MutableHashTable`"].replace(",", "")),
        }
        for row in rows_below("Loading in a fresh process")
    }


def dlrm() -> Bars:
    """Returns 1 - AUC of the example, by the rows of a feature."""
    return {
        row["rows of a feature"]: {"1 - AUC": float(row["1 - AUC"])}
        for row in rows_below("### Quality of DLRM")
    }


PLOTS: dict[str, tuple[str, Any, bool]] = {
    "lookups.svg": ("Lookups, million ids per second (more is better)", lookups, False),
    "steps.svg": ("One step with Adam, milliseconds (less is better)", steps, False),
    "dlrm.svg": ("Ranking errors of DLRM, 1 - AUC (less is better)", dlrm, False),
    "loads.svg": ("Loading an export of 1 GB, milliseconds (less is better)", loads, True),
}


def plot(pyplot: Any, name: str) -> None:
    """Writes one plot of bars."""
    title, measure, logarithmic = PLOTS[name]
    bars: Bars = measure()
    series = list(next(iter(bars.values())))
    width = 0.8 / len(series)
    figure, axes = pyplot.subplots(figsize=(6.4, 3.0))
    for place, one in enumerate(series):
        heights = [group[one] for group in bars.values()]
        at = [group + width * (place - (len(series) - 1) / 2) for group in range(len(bars))]
        drawn = axes.bar(at, heights, width * 0.92, label=one, color=COLORS[place], log=logarithmic)
        axes.bar_label(drawn, [f"{height:g}" for height in heights], fontsize=8)
    axes.set_xticks(range(len(bars)), list(bars))
    axes.set_ylabel(title.partition(", ")[2].partition(" (")[0])
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.2)
    axes.legend(fontsize=8, frameon=False)
    write(figure, name)


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
    write(figure, "data-way.svg")


def write(figure: Any, name: str) -> None:
    """Writes a figure as a small file whose text stays text."""
    figure.tight_layout()
    figure.patch.set_facecolor("white")
    figure.savefig(IMAGES / name, metadata={"Date": None})


def main() -> None:
    """Writes all pictures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "de-core"})
    from matplotlib import pyplot

    for name in PLOTS:
        plot(pyplot, name)
    draw_data_way(pyplot)


if __name__ == "__main__":
    main()
