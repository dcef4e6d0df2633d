"""A chain file lists the snapshot files of a published table.

    de_core chain 1
    0123456789abcdef0123456789abcdef users_mht_1of1-1a2b3c4d.de
    fedcba9876543210fedcba9876543210 users_mht_1of1-5e6f7a8b.de
    end 2

It lists a base and its deltas in order, each with its id. The files are in the chain file's folder.
A chain file is the asset of a published version's table. The op that opens the table reads it.

The version's manifest lists the chain files, each with the id of its last file and the number of
its files. Each file names its parent, so the last id stands for the whole chain. A chain that
differs from the manifest belongs to another version. The op and `check_manifest` refuse it.

    de_core manifest 1
    fedcba9876543210fedcba9876543210 2 users_mht_1of1.chain
    end 1
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping

import tensorflow as tf

from de_core.base.paths import join

#: File name suffix of chain files.
SUFFIX = ".chain"
#: The manifest, in a version's directory.
MANIFEST = pathlib.Path("assets.extra", "de_manifest")
_FIRST_LINE = "de_core chain 1"
_MANIFEST_LINE = "de_core manifest 1"


@dataclasses.dataclass(frozen=True)
class Link:
    """One file of a chain.

    Attributes:
        identity: The id of the snapshot, 32 hexadecimal digits.
        name: File name, in the folder of the chain file.
    """

    identity: str
    name: str


def write(path: str | os.PathLike[str], links: Iterable[Link]) -> None:
    """Writes a chain file."""
    _write(path, _FIRST_LINE, [f"{link.identity} {link.name}" for link in links])


def write_manifest(version: pathlib.Path, chains: Mapping[str, list[Link]]) -> None:
    """Writes a version's manifest."""
    (version / MANIFEST).parent.mkdir(exist_ok=True)
    _write(version / MANIFEST, _MANIFEST_LINE, _manifest_lines(chains))


def check_manifest(version: str | os.PathLike[str], chains: Mapping[str, list[Link]]) -> None:
    """Compares the chains of a version, on any file system, with its manifest.

    Raises:
        tf.errors.DataLossError: The manifest is missing or damaged, or names other chains.
    """
    path = join(os.fspath(version), str(MANIFEST))
    due = sorted(_read(path, _MANIFEST_LINE)) if tf.io.gfile.exists(path) else "no such file"
    own = sorted(_manifest_lines(chains))
    if own != due:
        raise tf.errors.DataLossError(
            None,
            None,
            "The chains of a version must be the ones in its manifest: id of the last file, number "
            f"of files, name. Received: {os.fspath(version)!r} with {own}, and in {MANIFEST.name} "
            f"{due}. Copy the whole version again, or publish it again.",
        )


def _manifest_lines(chains: Mapping[str, list[Link]]) -> list[str]:
    return [f"{links[-1].identity} {len(links)} {name}" for name, links in chains.items()]


def _write(path: str | os.PathLike[str], first: str, lines: list[str]) -> None:
    with tf.io.gfile.GFile(os.fspath(path), "w") as file:
        file.write("\n".join([first, *lines, f"end {len(lines)}"]) + "\n")


def read(path: str | os.PathLike[str]) -> list[Link]:
    """Reads a chain file.

    Raises:
        tf.errors.DataLossError: The chain file is damaged.
    """
    return [Link(*line.partition(" ")[::2]) for line in _read(path, _FIRST_LINE)]


def _read(path: str | os.PathLike[str], first: str) -> list[str]:
    with tf.io.gfile.GFile(os.fspath(path), "rb") as file:
        lines = file.read().decode("utf-8", errors="replace").split("\n")
    own = lines[1:-2]
    if lines[0] != first or not own or lines[-2:] != [f"end {len(own)}", ""]:
        raise tf.errors.DataLossError(
            None,
            None,
            f"The file must begin with {first!r} and end with 'end COUNT', the number of lines "
            f"between them. Received: {os.fspath(path)!r} with {len(own)} such lines and the last "
            f"line {lines[-2:][0]!r}. Publish the version again.",
        )
    return own
