"""Writes the record of the benchmarks: one JSON file, one page of tables.

The parts: the engine beside libcuckoo, absl and boost (`table_bench`); the ops beside TensorFlow's;
a training step beside tfra and FBGEMM, if their interpreters are given. Every part measures its
libraries in turns. The page shows medians and quartiles, of wall and CPU time.

Run `make bench`, or: python -m bench.record --tfra PYTHON --fbgemm PYTHON
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE_BENCH = ROOT / "build/editable/cc/testing/table_bench"
OURS = "de_core"
ENGINE = ["--only", "w3", "--rows", "3000000", "--dims", "16,64", "--batches", "4096,131072"]
#: The names of libraries in the columns of `table_bench`.
PEERS = {"lookup": OURS, "libcuckoo": "libcuckoo", "absl": "absl", "boost": "boost"}
OPS = ("test_lookup_speed.py", "test_insert_speed.py", "test_training_speed.py")
Quartiles = tuple[float, float, float]
#: What the README compares: its words, and part, operation, case and library of the record.
COMPARED = (
    ("lookup of 16,384 ids, FBGEMM (1)", "libraries", "lookup", "batch 16384", "fbgemm"),
    (
        "lookup of 256 ids, `tf.gather` (2)",
        "ops",
        "lookup op",
        "batch 256, rows 1000000",
        "tf.gather",
    ),
    (
        "lookup of 16,384 ids, `tf.gather`",
        "ops",
        "lookup op",
        "batch 16384, rows 1000000",
        "tf.gather",
    ),
    (
        "the same, `MutableHashTable`",
        "ops",
        "lookup op",
        "batch 16384, rows 1000000",
        "MutableHashTable",
    ),
    ("the same, tfra", "libraries", "lookup", "batch 16384", "tfra"),
    (
        "step with Adam, lazy Adam on a `tf.Variable`",
        "ops",
        "step with Adam",
        "batch 16384, rows 1000000",
        "dense",
    ),
    ("the same, tfra", "libraries", "step with Adam", "batch 16384", "tfra"),
    ("step with Adagrad, tfra", "libraries", "step with Adagrad", "batch 16384", "tfra"),
    ("the same, FBGEMM", "libraries", "step with Adagrad", "batch 16384", "fbgemm"),
    (
        "new keys, `MutableHashTable`",
        "ops",
        "insert op, new keys",
        "batch 16384, rows 999424",
        "MutableHashTable",
    ),
    ("the same, tfra", "libraries", "upsert of new keys", "batch 16384", "tfra"),
)
README_BEGIN = "<!-- make bench writes this table -->\n\n"
README_END = "\n<!-- end of the table -->\n"


@dataclass
class Measure:
    """The speed of one library in one case, in million items per second.

    Attributes:
        part: "engine", "ops" or "libraries".
        operation: Such as "lookup".
        case: Such as "dim 16, batch 4096".
        library: The library's name.
        wall: The quartiles by wall time; None if it was not measured.
        cpu: The quartiles by CPU time.
        ours: The quartiles of our speed divided by the library's, round by round, by wall time, or
            by CPU time if there is no wall time.
    """

    part: str
    operation: str
    case: str
    library: str
    wall: Quartiles | None
    cpu: Quartiles | None
    ours: Quartiles | None = field(default=None)


def quartiles(values: Iterable[float]) -> Quartiles:
    """Returns the lower quartile, the median and the upper quartile."""
    ordered = sorted(values)
    if len(ordered) == 1:
        return (ordered[0],) * 3
    low, _, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return low, statistics.median(ordered), high


def measures_of(
    part: str, operation: str, case: str, rounds: dict[str, dict[str, Any]]
) -> list[Measure]:
    """Returns the measures of one case.

    Args:
        part: See `Measure`, also for the next two arguments.
        operation: The operation.
        case: The case.
        rounds: By library: `items` per round, and the seconds of each round, `wall` and `cpu`.
    """
    found = []
    ours = rounds[OURS]
    for library, own in rounds.items():
        clocks = {
            clock: quartiles(own["items"] / each / 1e6 for each in own[clock])
            if own.get(clock)
            else None
            for clock in ("wall", "cpu")
        }
        clock = "wall" if own.get("wall") else "cpu"
        ratios = [
            (ours["items"] / mine) / (own["items"] / theirs)
            for mine, theirs in zip(ours[clock], own[clock], strict=True)
        ]
        ratio = None if library == OURS else quartiles(ratios)
        found.append(Measure(part, operation, case, library, **clocks, ours=ratio))
    return found


def tables_in(text: str) -> list[tuple[str, list[dict[str, str]]]]:
    """Returns the headings of a Markdown text with the rows of the table below each."""
    found: list[tuple[str, list[dict[str, str]]]] = []
    columns: list[str] = []
    for line in text.splitlines():
        if line.startswith("### "):
            found.append((line[4:], []))
            columns = []
        elif line.startswith("|") and found:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not columns:
                columns = cells
            elif not set("".join(cells)) <= {"-"}:
                found[-1][1].append(dict(zip(columns, cells, strict=True)))
    return found


def engine(table_bench: Path, arguments: Sequence[str], runs: int) -> list[Measure]:
    """Runs `table_bench` several times. Its numbers are medians of CPU time, in turns."""
    cases: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for _ in range(runs):
        command = [table_bench, *arguments]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        for title, rows in tables_in(text):
            for row in rows:
                if "lookup" not in row or "dim" not in row:
                    continue
                names = [name for name in ("queries", "rows", "dim", "batch") if row.get(name)]
                case = ", ".join(f"{name} {row[name]}" for name in names)
                rounds = cases.setdefault((title, case), {})
                for column, library in PEERS.items():
                    rate = _number(row.get(column, ""))
                    if rate:
                        own = rounds.setdefault(library, {"items": 1, "wall": [], "cpu": []})
                        own["cpu"].append(1e-6 / rate)
    found = []
    for (title, case), rounds in cases.items():
        if OURS in rounds:
            found += measures_of("engine", f"lookup: {title}", case, rounds)
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def ops(tests: Sequence[str], options: Sequence[str], environment: dict[str, str]) -> list[Measure]:
    """Runs benchmarks of the ops with pytest. Bars that they miss do not stop the record."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rounds.json")
        command = [sys.executable, "-m", "pytest", "-q", "-m", "benchmark", *options]
        command += [f"bench/{each}" for each in tests]
        own = {**os.environ, **environment, "DE_BENCH_ROUNDS_FILE": str(path)}
        done = subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True)
        if not path.exists():
            sys.exit(f"The benchmarks of the ops must measure something.\n{done.stdout}")
        recorded = json.loads(path.read_text("utf-8"))
    found = []
    for each in recorded:
        found += measures_of("ops", each["operation"], each["case"], each["rounds"])
    return found


def libraries(pythons: dict[str, str], dims: Sequence[int], rounds: int) -> list[Measure]:
    """Measures tfra and FBGEMM, each in its own environment, beside this library."""
    sys.path.insert(0, str(Path(__file__).parent))
    from compare_libraries import BATCH, one_round

    found = []
    for dim in dims:
        done = [one_round(pythons, dim) for _ in range(rounds)]
        by_operation: dict[str, dict[str, dict[str, Any]]] = {}
        for operation, library in done[0]:
            own = by_operation.setdefault(operation, {})
            times = [each[operation, library] for each in done]
            own[library] = {
                "items": BATCH,
                "wall": [wall / 1e3 for wall, _ in times],
                "cpu": [cpu / 1e3 for _, cpu in times],
            }
        for operation, own in by_operation.items():
            found += measures_of("libraries", operation, f"dim {dim}, batch {BATCH}", own)
    return found


def machine() -> dict[str, Any]:
    """Describes the machine and the versions."""
    import tensorflow as tf

    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    caches = [line.partition(": ")[2] for line in lines if line.startswith("cache size")]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "processor": models[0] if models else platform.machine(),
        "last-level cache": caches[0] if caches else "unknown",
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
        lines += ["", f"## {part.capitalize()}", ""]
        lines += [
            "Million items per second: median (lower to upper quartile). The last column is our "
            "speed divided by the library's, round by round.",
            "",
            "| operation | case | library | wall | CPU | de_core / library |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {each.operation} | {each.case} | {each.library} | {_cell(each.wall)} "
            f"| {_cell(each.cpu)} | {_cell(each.ours)} |"
            for each in measures
            if each.part == part
        ]
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
            _cell(found.get((part, operation, f"dim {dim}, {case}", library))) for dim in (16, 64)
        ]
        if any(cells):
            lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_comparison(readme: str, table: str) -> str:
    """Returns the README's text with another table."""
    before, _, rest = readme.partition(README_BEGIN)
    _, _, after = rest.partition(README_END)
    return f"{before}{README_BEGIN}{table}{README_END}{after}"


def _cell(numbers: Quartiles | None) -> str:
    return "" if numbers is None else "{1:.3g} ({0:.3g} to {2:.3g})".format(*numbers)


def write(about: dict[str, Any], measures: Sequence[Measure], docs: Path) -> None:
    """Writes the JSON file, the page and the README's table; `docs` is their folder."""
    (docs / "reference").mkdir(parents=True, exist_ok=True)
    record = {"machine": about, "measures": [asdict(each) for each in measures]}
    text = json.dumps(record, indent=1) + "\n"
    (docs / "reference/benchmark-record.json").write_text(text, "utf-8")
    text = page(about, measures)
    (docs / "reference/benchmark-record.md").write_text(text, "utf-8")
    if docs == ROOT / "docs":
        readme = ROOT / "README.md"
        table = comparison(about, measures)
        readme.write_text(with_comparison(readme.read_text("utf-8"), table), "utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and writes the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for the record")
    parser.add_argument("--table-bench", type=Path, default=TABLE_BENCH, metavar="PROGRAM")
    parser.add_argument("--runs", type=int, default=5, help="runs of table_bench, default 5")
    parser.add_argument("--tfra", metavar="PYTHON", help="the interpreter that has tfra")
    parser.add_argument("--fbgemm", metavar="PYTHON", help="the interpreter that has FBGEMM")
    parser.add_argument("--quick", action="store_true", help="small sizes: checks that it runs")
    given = parser.parse_args(arguments)
    about, measures = machine(), []
    if given.table_bench.exists():
        sizes = ["--quick", "--only", "w3", "--dims", "16", "--batches", "4096"]
        runs = 1 if given.quick else given.runs
        measures += engine(given.table_bench, sizes if given.quick else ENGINE, runs)
    if given.quick:
        small = {"DE_BENCH_ROWS": "2000", "DE_BENCH_ROUNDS": "2"}
        measures += ops(OPS[:1], ["-k", "16-16384"], small)
    else:
        measures += ops(OPS, [], {})
    peers = {name: getattr(given, name) for name in ("tfra", "fbgemm") if getattr(given, name)}
    if peers:
        measures += libraries({OURS: sys.executable, **peers}, (16, 64), given.runs)
    write(about, measures, given.docs)


if __name__ == "__main__":
    main()
