"""The verbs `version` and `doctor`: what is installed, and what is wrong with it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import pathlib
import platform
import re
from typing import Any

from de_core_cli import library, terminal

_PACKAGES = ("tensorflow", "tensorflow-cpu", "keras", "numpy", "h5py", "pyarrow", "de-core-gateway")


def add(verbs: Any) -> None:
    """Adds the verbs to a parser."""
    version = verbs.add_parser(
        "version",
        help="print the versions of de-core and of what it uses",
        description="Prints versions. Loads neither TensorFlow nor the ops.",
        **terminal.examples(("For a bug report:", "version"), ("For a script:", "version --json")),
    )
    doctor = verbs.add_parser(
        "doctor",
        help="check the installation",
        description="Checks that the ops fit Python and TensorFlow, loads them, and trains a row. "
        "Exits with 1 and the remedy if something is wrong.",
        **terminal.examples(("After an installation:", "doctor")),
    )
    for verb, run in ((version, _version), (doctor, _doctor)):
        terminal.add_json(verb)
        verb.set_defaults(run=run)


def _versions() -> dict[str, str]:
    spec = importlib.util.find_spec("de_core")  # does not import it
    found = {"de-core": "not installed", "python": platform.python_version()}
    if spec is not None and spec.origin is not None:
        folder = pathlib.Path(spec.origin).parent
        text = (folder / "__init__.py").read_text("utf-8")
        match = re.search(r'^__version__ = "(.+)"', text, re.MULTILINE)
        found["de-core"] = match[1] if match else "unknown"
        found["installed in"] = str(folder)
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _version(options: argparse.Namespace) -> None:
    found = _versions()
    if options.json:
        terminal.print_json(found)
    else:
        terminal.print_table(("package", "version"), found.items())


def _doctor(options: argparse.Namespace) -> int:
    found: dict[str, Any] = {**_versions(), "problem": None}
    try:
        library.load()
        import de_core as de

        row = de.Variable(dim=1, name="doctor")
        row.upsert([7], [[2.0]])
        read: Any = row.lookup([7])
        if read.numpy().tolist() != [[2.0]]:
            found["problem"] = "A table must return the row that was written. Install de-core again"
    except ImportError as error:
        found["problem"] = str(error)
    if options.json:
        terminal.print_json(found)
    else:
        rows = [(name, value) for name, value in found.items() if name != "problem"]
        terminal.print_table(("package", "version"), rows)
        print(f"problem: {found['problem']}" if found["problem"] else "The installation works.")
    return int(found["problem"] is not None)
