"""Writes the record of the benchmarks: one JSON file, one page of tables.

The parts: the engine beside libcuckoo, absl and boost (`table_bench`); the ops beside TensorFlow's;
a training step beside tfra and FBGEMM, if their interpreters are given. Every part measures its
libraries in turns. The page shows medians and quartiles, of wall and CPU time.

Run `make bench`, or: python bench/record.py --tfra PYTHON --fbgemm PYTHON
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import compare_libraries
from rounds import OURS, Measure, Measured, arguments_of, cell, measures_of, table

ROOT = Path(__file__).resolve().parents[1]
TABLE_BENCH = ROOT / "build/editable/cc/testing/table_bench"
ENGINE = ["--only", "w3", "--rows", "3000000", "--dims", "16,64", "--batches", "4096,131072"]
#: The names of libraries in the columns of `table_bench`.
PEERS = {"lookup": OURS, "libcuckoo": "libcuckoo", "absl": "absl", "boost": "boost"}
FEW, MANY = "batch 256, rows 1000000", "batch 16384, rows 1000000"
NEW = "batch 16384, rows 999424"
#: The README's comparisons: their words, and part, operation, case and library of the record.
COMPARED = (
    ("lookup of 16,384 ids, FBGEMM (1)", "libraries", "lookup", "batch 16384", "fbgemm"),
    ("lookup of 256 ids, `tf.gather` (2)", "ops", "lookup op", FEW, "tf.gather"),
    ("lookup of 16,384 ids, `tf.gather`", "ops", "lookup op", MANY, "tf.gather"),
    ("the same, `MutableHashTable`", "ops", "lookup op", MANY, "MutableHashTable"),
    ("the same, tfra", "libraries", "lookup", "batch 16384", "tfra"),
    ("step with Adam, lazy Adam on a `tf.Variable`", "ops", "step with Adam", MANY, "dense"),
    ("the same, tfra", "libraries", "step with Adam", "batch 16384", "tfra"),
    ("step with Adagrad, tfra", "libraries", "step with Adagrad", "batch 16384", "tfra"),
    ("the same, FBGEMM", "libraries", "step with Adagrad", "batch 16384", "fbgemm"),
    ("new keys, `MutableHashTable`", "ops", "insert op, new keys", NEW, "MutableHashTable"),
    ("the same, tfra", "libraries", "upsert of new keys", "batch 16384", "tfra"),
)
README_BEGIN = "<!-- make bench writes this table -->\n\n"
README_END = "\n<!-- end of the table -->\n"


def engine(table_bench: Path, arguments: Sequence[str], runs: int) -> list[Measure]:
    """Runs `table_bench` several times. It prints tables: medians of CPU time, in turns."""
    cases: dict[tuple[str, str], dict[str, Measured]] = {}
    for _ in range(runs):
        command = [table_bench, *arguments]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        title, columns = "", []
        for line in text.splitlines():
            if line.startswith("### "):
                title, columns = line[4:], []
            elif not line.startswith("|"):
                continue
            elif not columns:
                columns = [each.strip() for each in line.strip("|").split("|")]
            elif {"lookup", "dim"} <= set(columns) and "---" not in line:
                row = dict(zip(columns, map(str.strip, line.strip("|").split("|")), strict=True))
                names = [name for name in ("queries", "rows", "dim", "batch") if row.get(name)]
                case = ", ".join(f"{name} {row[name]}" for name in names)
                measured = cases.setdefault((title, case), {})
                for column, library in PEERS.items():
                    with contextlib.suppress(KeyError, ValueError):  # it was not measured
                        seconds = 1e-6 / float(row[column])
                        measured.setdefault(library, Measured(1)).cpu.append(seconds)
    return [
        each
        for (title, case), measured in cases.items()
        if OURS in measured
        for each in measures_of("engine", f"lookup: {title}", case, measured)
    ]


def machine() -> dict[str, Any]:
    """Describes the machine and the versions."""
    import tensorflow as tf

    text = Path("/proc/cpuinfo").read_text("utf-8")
    facts = dict(re.findall(r"^(model name|cache size)\s*: (.*)$", text, re.MULTILINE))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "processor": facts.get("model name", platform.machine()),
        "last-level cache": facts.get("cache size", "unknown"),
        "cores": os.cpu_count(),
        "memory (GB)": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "load before": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "TensorFlow": tf.__version__,
    }


def page(about: dict[str, Any], measures: Sequence[Measure]) -> str:
    """Returns the Markdown page of the record."""
    lines = ["# Record of the benchmarks", "", __doc__.split("\n\n")[1].replace("\n", " "), ""]
    lines += ["`make bench` writes this page. The numbers are in `benchmark-record.json` too.", ""]
    lines += [
        "| machine | |",
        "|---|---|",
        *(f"| {key} | {value} |" for key, value in about.items()),
    ]
    for part in dict.fromkeys(each.part for each in measures):
        own = [each for each in measures if each.part == part]
        lines += ["", f"## {part.capitalize()}", "", table(own)]
    return "\n".join(lines) + "\n"


def comparison(about: dict[str, Any], measures: Sequence[Measure]) -> str:
    """Returns the README's table: our speed divided by each peer's, for two dims."""
    found = {(each.part, each.operation, each.case, each.library): each.ours for each in measures}
    lines = [
        f"Measured on {about['date']}: {about['processor']}, {about['cores']} cores, Python "
        f"{about['Python']}, TensorFlow {about['TensorFlow']}.",
        "",
        "| operation, peer | dim 16 | dim 64 |",
        "|---|---|---|",
    ]
    for words, part, operation, case, library in COMPARED:
        cells = [
            cell(found.get((part, operation, f"dim {dim}, {case}", library))) for dim in (16, 64)
        ]
        if any(cells):
            lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_comparison(readme: str, table: str) -> str:
    """Returns the README's text with another table."""
    before, _, rest = readme.partition(README_BEGIN)
    _, _, after = rest.partition(README_END)
    return f"{before}{README_BEGIN}{table}{README_END}{after}"


def write(about: dict[str, Any], measures: Sequence[Measure], docs: Path) -> None:
    """Writes the JSON file, the page and the README's table; `docs` is their folder."""
    (docs / "reference").mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(asdict(each)) for each in measures)
    text = f'{{"machine": {json.dumps(about)},\n"measures": [\n{lines}\n]}}\n'
    (docs / "reference/benchmark-record.json").write_text(text, "utf-8")
    text = page(about, measures)
    (docs / "reference/benchmark-record.md").write_text(text, "utf-8")
    if docs == ROOT / "docs":
        readme = ROOT / "README.md"
        table = comparison(about, measures)
        readme.write_text(with_comparison(readme.read_text("utf-8"), table), "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the record."""
    parser = arguments_of(__doc__)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for the record")
    parser.add_argument("--table-bench", type=Path, default=TABLE_BENCH, metavar="PROGRAM")
    parser.add_argument("--runs", type=int, default=5, help="runs of table_bench, default 5")
    parser.add_argument("--tfra", metavar="PYTHON", help="the interpreter that has tfra")
    parser.add_argument("--fbgemm", metavar="PYTHON", help="the interpreter that has FBGEMM")
    parser.add_argument("--quick", action="store_true", help="small sizes: checks that it runs")
    given = parser.parse_args(arguments)
    import ops  # loads TensorFlow

    about, measures = machine(), []
    if given.table_bench.exists():
        sizes = ["--quick", "--only", "w3", "--dims", "16", "--batches", "4096"]
        runs = 1 if given.quick else given.runs
        measures += engine(given.table_bench, sizes if given.quick else ENGINE, runs)
    measures += ops.measure(2000, 2, [16]) if given.quick else ops.measure(1_000_000, 11, [16, 64])
    peers = {name: getattr(given, name) for name in ("tfra", "fbgemm") if getattr(given, name)}
    for workload in ("one16", "one64") if peers else ():
        pythons = {OURS: sys.executable, **peers}
        measures += compare_libraries.compared(pythons, workload, given.runs)
    write(about, measures, given.docs)


if __name__ == "__main__":
    main()
