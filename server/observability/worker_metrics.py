"""Metrics of several worker processes. Each writes its own to a file; any of them reports all."""

import asyncio
import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from .logs import LOG
from .metrics import Metrics

_WRITE_SECONDS = 1.0
# The name of a sample without labels, and of a sample with labels.
_PLAIN = re.compile(rb"^([A-Za-z0-9_:]+) ", re.MULTILINE)
_LABELLED = re.compile(rb"^([A-Za-z0-9_:]+)\{", re.MULTILINE)


async def keep_written(metrics: Metrics, file: Path) -> None:
    """Writes a worker's metrics every second for the other workers, without end.

    `file` is `0.prom` for worker 0, beside the files of the others.
    """
    failing = False
    while True:
        # The file's time tells the supervisor that the worker runs, also on a full disk.
        with contextlib.suppress(OSError):
            os.utime(file)
        try:
            exposition = metrics.exposition()
            file.parent.mkdir(exist_ok=True)
            part = file.with_suffix(".part")
            part.write_bytes(exposition)
            part.replace(file)
            failing = False
        except Exception as error:  # the supervisor would kill a worker that ends this loop
            if not failing:
                LOG.error("other workers do not see this worker's metrics: %s", error)
            failing = True
        await asyncio.sleep(_WRITE_SECONDS)


def of_all_workers(exposition: bytes, file: Path) -> bytes:
    """Returns this worker's current metrics and the last written metrics of the others."""
    parts = [(int(file.stem), exposition)]
    for other in sorted(file.parent.glob("*.prom")):
        if other != file:
            parts.append((int(other.stem), other.read_bytes()))
    return merge(parts)


def merge(expositions: Iterable[tuple[int, bytes]]) -> bytes:
    r"""Merges metrics of several workers, and adds the label `worker` to each sample.

    Example:
        >>> one = b"# HELP a A\n# TYPE a gauge\na 1.0\n"
        >>> print(merge([(0, one), (1, one)]).decode(), end="")
        # HELP a A
        # TYPE a gauge
        a{worker="0"} 1.0
        a{worker="1"} 1.0
    """
    heads: dict[bytes, bytes] = {}
    samples: dict[bytes, list[bytes]] = {}
    for worker, text in expositions:
        for family in re.split(rb"^(?=# HELP )", text, flags=re.MULTILINE):
            if not family.startswith(b"# HELP "):
                continue
            name = family.split(b" ", 3)[2]
            lines = family.splitlines(keepends=True)
            heads.setdefault(name, b"".join(line for line in lines if line.startswith(b"#")))
            body = b"".join(line for line in lines if not line.startswith(b"#"))
            body = _LABELLED.sub(rb'\1{worker="%d",' % worker, body)
            body = _PLAIN.sub(rb'\1{worker="%d"} ' % worker, body)
            samples.setdefault(name, []).append(body)
    return b"".join(heads[name] + b"".join(samples[name]) for name in heads)
