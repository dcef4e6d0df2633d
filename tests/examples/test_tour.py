"""The notebook runs in a kernel of Jupyter, as in a reader's browser."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "tour.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.slow
def test_the_tour_runs_and_draws_its_picture(notebook, monkeypatch):
    # The command `de-core` is beside this Python.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    said = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert "delta 1 rows" in said


def test_the_tour_is_stored_without_outputs(notebook):
    assert not [cell for cell in notebook.cells if cell.get("outputs")]
