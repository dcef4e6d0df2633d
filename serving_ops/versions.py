"""Reads `versions.env`: the versions of everything that serves."""

from __future__ import annotations

import pathlib

FILE = pathlib.Path(__file__).resolve().parent / "versions.env"


def versions() -> dict[str, str]:
    """Returns the names and values of `versions.env`."""
    lines = (line.strip() for line in FILE.read_text("utf-8").splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
