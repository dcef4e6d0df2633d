"""File systems of a few MiB in memory, for tests of full disks."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.applies import applies_if


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mounts a file system of `size` (`2m`) at a new folder, and unmounts it at the end."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, stderr=subprocess.DEVNULL)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            with small_disk(Path(folder) / "probe", "1m"):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False


needs_mounts = applies_if(_can_mount(), "the right to mount a tmpfs")
