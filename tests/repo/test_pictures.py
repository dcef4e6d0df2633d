"""The pictures that the documentation shows exist."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_picture_that_a_page_shows_exists(root: Path):
    pages = [*(root / "docs").rglob("*.md"), root / "README.md", root / "server/README.md"]
    missing = [
        f"{page}: {target}"
        for page in pages
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
        if not (page.parent / target).is_file()
    ]
    assert missing == []
