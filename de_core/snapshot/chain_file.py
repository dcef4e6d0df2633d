"""A chain file lists the snapshot files of a published table.

    de_core chain 1
    0123456789abcdef0123456789abcdef users_mht_1of1-1a2b3c4d.de
    fedcba9876543210fedcba9876543210 users_mht_1of1-5e6f7a8b.de
    end 2

It lists a base and its deltas in order, each with its id. The files are in the chain file's folder.
A chain file is the asset of a published version's table. The op that opens the table reads it.

The version's manifest lists the chain files, each with the id of its last file and the number of
its files. Each file names its parent, so the last id stands for the whole chain. The op refuses a
chain that differs from the manifest: it belongs to another version.

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
    """Writes a version's manifest.

    Args:
        version: The version's directory.
        chains: For each chain file, by its name, the snapshot files of the table.
    """
    (version / MANIFEST).parent.mkdir(exist_ok=True)
    lines = [f"{links[-1].identity} {len(links)} {name}" for name, links in chains.items()]
    _write(version / MANIFEST, _MANIFEST_LINE, lines)


def _write(path: str | os.PathLike[str], first: str, lines: list[str]) -> None:
    with tf.io.gfile.GFile(os.fspath(path), "w") as file:
        file.write("\n".join([first, *lines, f"end {len(lines)}"]) + "\n")


def read(path: str | os.PathLike[str]) -> list[Link]:
    """Reads a chain file.

    Raises:
        tf.errors.DataLossError: The chain file is damaged.
    """
    with tf.io.gfile.GFile(os.fspath(path), "rb") as file:
        lines = file.read().decode("utf-8", errors="replace").split("\n")
    links = [Link(*line.partition(" ")[::2]) for line in lines[1:-2]]
    if lines[0] != _FIRST_LINE or not links or lines[-2:] != [f"end {len(links)}", ""]:
        raise tf.errors.DataLossError(
            None,
            None,
            f"A chain file must begin with {_FIRST_LINE!r} and end with 'end COUNT', the number of "
            f"its snapshot files. Received: {os.fspath(path)!r} with {len(links)} files and the "
            f"last line {lines[-2:][0]!r}. Publish the version again.",
        )
    return links
