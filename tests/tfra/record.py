"""Records what the real wheel does: `DE_TFRA_PYTHON=… python -m tests.tfra.record`."""

import json
import tempfile
from pathlib import Path

from tests.tfra.wheel import run_wheel

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER / "programs"
SIGNATURES = FOLDER / "data/signatures.json"
RESULTS = FOLDER / "data/results.json"
#: Programs that write numbers into the file of their first argument.
NAMES = ("movielens", "parameter_servers", "reviews", "two_tower")


def results_of_the_wheel(name: str, folder: Path) -> dict[str, list[float]]:
    """Runs one of the programs with the wheel, and returns what it wrote."""
    file = folder / f"{name}.json"
    run_wheel(PROGRAMS / f"{name}.py", file)
    results: dict[str, list[float]] = json.loads(file.read_text("utf-8"))
    return results


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        recorded = {name: results_of_the_wheel(name, Path(made)) for name in NAMES}
    RESULTS.write_text(json.dumps(recorded, sort_keys=True) + "\n", "utf-8")
    run_wheel(PROGRAMS / "signatures.py", SIGNATURES)
