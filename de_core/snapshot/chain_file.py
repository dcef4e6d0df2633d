"""A chain file lists the snapshot files of a published table.

    de_core chain 1
    0123456789abcdef0123456789abcdef users_mht_1of1-1a2b3c4d.de
    fedcba9876543210fedcba9876543210 users_mht_1of1-5e6f7a8b.de
    end 2

It lists a base and its deltas in order, each with its id. The files are in the chain file's folder.
A chain file is the asset of a published version's table. The op that opens the table reads it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable

import tensorflow as tf

#: File name suffix of chain files.
SUFFIX = ".chain"
_FIRST_LINE = "de_core chain 1"


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
    lines = [f"{link.identity} {link.name}" for link in links]
    with tf.io.gfile.GFile(os.fspath(path), "w") as file:
        file.write("\n".join([_FIRST_LINE, *lines, f"end {len(lines)}"]) + "\n")


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
            "A chain file must have all its lines. "
            f"Received: damaged file {os.fspath(path)!r}. Publish the version again.",
        )
    return links
