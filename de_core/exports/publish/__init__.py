"""Publishes versions of a model every few minutes: full versions, and deltas between them."""

from __future__ import annotations

import numbers
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.ops import library
from de_core.base.types import DTypeLike, InputSpecs, Model, Request, Signatures, UnknownIds
from de_core.exports import served_rows, version, warm_up
from de_core.exports.publish import versions
from de_core.exports.publish.publication import Publication
from de_core.exports.served_rows import KeepRows
from de_core.exports.template import Template
from de_core.exports.version import Version
from de_core.tables.sharded import living


def publish(
    model: Model,
    root: str | os.PathLike[str],
    signatures: Signatures = None,
    *,
    full_every: int = 20,
    full_part: float = 0.5,
    keep_versions: int | None = 3,
    full: bool = False,
    consistent: bool = False,
    inputs: InputSpecs = None,
    dtype: DTypeLike | Mapping[str, DTypeLike] | None = None,
    oov: UnknownIds | Mapping[str, UnknownIds] = "initial",
    keep: KeepRows | Mapping[str, KeepRows] | None = None,
    sample: Request | Sequence[Request] | None = None,
) -> Version:
    """Writes the next version of a model into a directory that a server watches.

    The first version contains all rows (a base). A later version contains a hard link to the base,
    a delta and the dense weights. The delta holds the rows that changed and the keys that were
    removed since the previous version. A version appears atomically, even if this process or the
    disk fails, and needs no file of another version. It has the graph of the last full version:
    changed code is published with the next full version.

    A version is full again when the deltas are many or large, when an argument changed, or when
    another process published into the directory.

    Args:
        model: As for `de.export`.
        root: The directory of the versions, on a local file system.
        signatures: As for `de.export`.
        full_every: Write a full version after this many versions.
        full_part: Write a full version once deltas exceed this fraction of the bases' bytes, all
            tables together.
        keep_versions: Number of published versions to keep; None for all. At least 2, so that a
            server can finish its requests to the previous version.
        full: Whether to force a full version.
        consistent: Whether all rows of a table are saved as of the moment when its save begins; see
            `de.checkpoint.save`.
        inputs: As for `de.export`.
        dtype: As for `de.export`.
        oov: As for `de.export`.
        keep: Bounds on the rows, as for `de.export`, but without `where`. If an unchanged row falls
            below a bound, the next full version removes it.
        sample: Warm-up requests, as for `de.export`. Taken with a full version.

    Returns:
        The version directory, a string with a `report`: `kind` ("full" or "delta"), `previous` (the
        version that a delta follows), and `tables`, which has for each table the `rows`,
        `tombstones` and `bytes` written.

    Raises:
        TypeError: An argument has a wrong type.
        ValueError: An argument is out of range.
        tf.errors.OpError: A file cannot be written. Then the version does not appear. The next
            version still contains all changes.

    Example:
    >>> import keras, tempfile, de_core as de
    >>> model = keras.Sequential([keras.Input([], dtype="int64"), de.layers.Embedding(2, name="t")])
    >>> root = tempfile.mkdtemp()
    >>> de.publish(model, root).report["kind"]
    'full'
    >>> model.get_layer("t").table.upsert([7], [[1.0, 2.0]])
    >>> de.publish(model, root).report["tables"]["t"]["rows"]
    1
    """
    check_when_full(full_every, full_part)
    check_integer("keep_versions", keep_versions, 2, or_none=True)
    for each in keep.values() if isinstance(keep, Mapping) else [keep]:
        if getattr(each, "where", None) is not None:
            raise ValueError(
                "`keep` must have no `where` here: a delta must know which rows the earlier "
                f"versions left out. {received(keep=keep)} Use bounds alone, or de.export."
            )
    folder = version.local(root, "root").resolve()
    arguments = (model, signatures, inputs, dtype, oov, keep)
    with versions.alone_in(folder):
        known: Publication | None = None
        for table in living() if not full else []:
            before = table.publications.get(str(folder))
            if before is not None and all(map(_same, before[0], arguments)):
                known = before[1]
                break
        last = None if known is None else known.followed(full_every, full_part)
        if known is None or last is None:
            template = Template(model, signatures, inputs)
            rows = served_rows.of_tables(template.names, dtype, oov, keep)
            function = template.functions[template.main_signature]
            requests = None if sample is None else warm_up.requests(sample, function)
            known = Publication(folder, template, rows, requests)
        target = version.next_in(folder, None)
        with version.being_written(target, versions.WORK_PREFIX) as work:
            try:
                written = known.write(work, last, consistent)
            except tf.errors.FailedPreconditionError:
                if last is None:
                    raise
                # A table's delta cannot follow its last save. Write a full version.
                shutil.rmtree(work)
                work.mkdir()
                last = None
                written = known.write(work, last, consistent)
            chains = {written.assets[shard]: links for shard, links in written.links.items()}
            previous = None if last is None else int(last.path.name)
            report = versions.write_chains(work, chains, written.reports, previous)
        # Only now, because the next delta must follow a version that exists.
        tables = known.template.names
        for name, table in tables.items():
            for shard, made in zip(table.tables, written.reports[name], strict=True):
                shard.run(library.de_table_commit_save, made["id"], chain=known.chain)
        written.path = target
        known.last = written
        next(iter(tables.values())).publications[str(folder)] = (arguments, known)
        versions.prune(folder, keep_versions)
    return Version(str(target), report)


def check_when_full(full_every: int, full_part: float) -> None:
    """Raises if the rules for the next full version are out of range."""
    check_integer("full_every", full_every, 1)
    if not isinstance(full_part, numbers.Real) or not 0 < full_part <= 10:
        raise ValueError(
            f"`full_part` must be a number above 0 and at most 10. {received(full_part=full_part)}"
        )


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other))
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # raised for arrays inside other objects
        return False
