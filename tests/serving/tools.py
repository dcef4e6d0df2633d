"""Runs external programs for the tests of the serving overlay."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVING_OPS = ROOT / "serving_ops"


def run(command, timeout=600, **options):
    """Runs a command, which must succeed, and returns its output."""
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def needs(*programs):
    """Skips the test if the machine lacks a program."""
    missing = [program for program in programs if shutil.which(program) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)} installed")
