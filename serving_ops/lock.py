"""Writes the lock files of the images' Python packages: versions and hashes.

    python serving_ops/lock.py

It needs uv. `locks/tensorflow.txt` holds versions.env's TensorFlow for x86-64 and 64-bit ARM.
`locks/gateway.txt` holds the dependencies and extras of server/pyproject.toml. Shared packages have
one version.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

from versions import versions

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOCKS = ROOT / "serving_ops" / "locks"
LISTS = ("dependencies", "jwt", "otel")
OPTIONS = ("--quiet", "--generate-hashes", "--universal", "--no-header", "--no-annotate")
OPTIONS += ("--python-version", "3.11", "--no-emit-index-url", "--no-emit-find-links", "--upgrade")


def requirements() -> dict[str, list[str]]:
    """Returns the input of each lock file, by the file's name."""
    release = versions()["TENSORFLOW"]
    text = (ROOT / "server" / "pyproject.toml").read_text("utf-8")
    lists = [re.search(rf"^{name} = \[(.*?)\]$", text, re.M | re.S) for name in LISTS]
    gateway = [each for found in lists if found for each in re.findall(r'"(.+?)"', found[1])]
    return {
        # tensorflow-cpu does not exist for ARM. The package `tensorflow` has no GPU code on ARM.
        "tensorflow.txt": [
            f"tensorflow-cpu=={release} ; platform_machine == 'x86_64'",
            f"tensorflow=={release} ; platform_machine == 'aarch64'",
        ],
        "gateway.txt": gateway,
    }


def main() -> None:
    """Resolves and writes both files."""
    constraint: list[str] = []
    for name, wanted in requirements().items():
        lock = LOCKS / name
        command = ["uv", "pip", "compile", *OPTIONS, *constraint, "-"]
        pins = subprocess.run(
            command, input="\n".join(wanted), check=True, stdout=subprocess.PIPE, text=True
        ).stdout
        header = "# Written by serving_ops/lock.py, from:\n"
        lock.write_text(header + "".join(f"#   {each}\n" for each in wanted) + pins, "utf-8")
        constraint = ["--constraint", str(lock)]
        print(f"wrote {lock}")


if __name__ == "__main__":
    main()
