"""Runs commands as a user would."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(
    *command: object, cwd: Path = ROOT, timeout: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. Returns its status and what it printed."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
