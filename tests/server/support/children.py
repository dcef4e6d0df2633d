"""Finds the child processes of a process, started by any of its threads."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue
    return sorted(found)
