"""Runs every linter over the checkout, and lists the ones that failed at the end."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def cpp_files() -> list[str]:
    """Returns the C++ files of the project, relative to its root."""
    folder = ROOT / "de_core" / "cc"
    return sorted(
        str(p.relative_to(ROOT)) for p in folder.rglob("*") if p.suffix in (".cc", ".h", ".inc")
    )


def commands(fix: bool) -> dict[str, list[str]]:
    """Returns each linter's command line by name; with ``fix``, the commands that rewrite files."""
    clang_format = ["-i"] if fix else ["--dry-run", "-Werror"]
    every = {
        "ruff check": ["ruff", "check", *(["--fix"] if fix else []), "."],
        "ruff format": ["ruff", "format", *([] if fix else ["--check"]), "."],
        "clang-format": ["clang-format", *clang_format, *cpp_files()],
    }
    if not fix:
        every["mypy"] = ["mypy"]
    return every


def main() -> None:
    """Runs all linters; returns 1 if any found a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, required=True, help="the bin folder with the linters")
    parser.add_argument("--fix", action="store_true", help="rewrite the files if that is safe")
    args = parser.parse_args()
    failed = []
    for name, command in commands(args.fix).items():
        print(f"== {name}", flush=True)
        program = args.tools.absolute() / command[0]
        if subprocess.call([str(program), *command[1:]], cwd=ROOT) != 0:
            failed.append(name)
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}. Run: make format")
    print("All linters are content.")


if __name__ == "__main__":
    main()
