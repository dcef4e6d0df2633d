"""The pictures of the documentation show the numbers of the benchmarks' page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.docs_plots import PLOTS


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_shows_the_numbers_of_the_page(root: Path, name: str):
    _, measure, _ = PLOTS[name]
    numbers = {f"{value:g}" for group in measure().values() for value in group.values()}
    shown = re.findall(r">([\d.]+)</text>", (root / "docs/images" / name).read_text("utf-8"))
    assert numbers - set(shown) == set(), "run scripts/docs_plots.py"


def test_every_picture_that_a_page_shows_exists(root: Path):
    pages = [*(root / "docs").rglob("*.md"), root / "README.md", root / "server/README.md"]
    missing = [
        f"{page}: {target}"
        for page in pages
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
        if not (page.parent / target).is_file()
    ]
    assert missing == []
