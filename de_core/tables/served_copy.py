"""A table inside a SavedModel: read-only, over a snapshot file among the SavedModel's assets."""

from __future__ import annotations

import contextlib
import contextvars
import pathlib
import re
import tempfile
import types
import uuid
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import tensorflow as tf

from de_core.base.ops import file_metadata, library
from de_core.tables.spec import TableSpec

#: File name suffix of snapshot files.
SUFFIX = ".de"
# Longer names are shortened. File systems allow 255 bytes, and suffixes need some of them.
_STEM_BYTES = 150
_PART = re.compile(r"\d+of\d+")  # a shard's number and the number of shards
# The suffix of the assets' names while an export writes the assets itself; otherwise None.
_deferred: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "de_core_deferred", default=None
)
#: The objects that replace tables' shards while functions of TensorFlow's own ops are traced, by
#: table. Empty while functions may have this library's ops.
stand_ins: contextvars.ContextVar[Mapping[Any, Any]] = contextvars.ContextVar(
    "de_core_stand_ins", default=types.MappingProxyType({})
)


@contextlib.contextmanager
def standing_for(replaced: Mapping[Any, Any]) -> Iterator[None]:
    """Makes lookups that this thread traces use TensorFlow's ops alone.

    `replaced` has the object that replaces the shards of each table.
    """
    token = stand_ins.set(replaced)
    try:
        yield
    finally:
        stand_ins.reset(token)


def is_exporting() -> bool:
    """Returns whether an export is running that writes the tables' files itself."""
    return _deferred.get() is not None


@contextlib.contextmanager
def deferred_writes(suffix: str = SUFFIX) -> Iterator[None]:
    """Makes each `FrozenTable` leave its file empty, for a caller that writes the assets itself."""
    token = _deferred.set(suffix)
    try:
        yield
    finally:
        _deferred.reset(token)


class LiveTable(Protocol):
    """The part of a `Table` that a `FrozenTable` uses."""

    name: str
    spec: TableSpec
    metadata: tuple[str, ...]

    @property
    def resource_handle(self) -> tf.Tensor:
        """The handle that the ops use."""


class FrozenTable(tf.Module):
    """Represents one shard of a live table in one SavedModel.

    In every function that TensorFlow saves, it replaces the live table's handle by the handle that
    `create_resource` makes. No function is traced again: the op that reads rows accepts either
    handle.
    """

    def __init__(self, table: LiveTable) -> None:
        super().__init__()
        self.spec = table.spec
        self.handle = table.resource_handle
        # Unique per SavedModel, so that versions served by one process never share a table.
        unique = uuid.uuid4().hex
        self._metadata = file_metadata(table.metadata)
        self._shared_name = f"{table.name}_{unique}"
        folder = tempfile.TemporaryDirectory(prefix="de_core_export_")
        weakref.finalize(self, folder.cleanup)
        suffix = _deferred.get() or SUFFIX
        self.file = pathlib.Path(folder.name) / f"{file_stem(table.name)}-{unique[:8]}{suffix}"
        self.file.touch()
        self._asset = tf.saved_model.Asset(str(self.file))
        #: The tables that this table's functions open and close.
        self.together: list[FrozenTable] = [self]

    def create_resource(self) -> tf.Tensor:
        """Creates the read-only table's handle in the current graph."""
        return library.de_frozen_table(
            shared_name=self._shared_name,
            key_dtype=self.spec.key_dtype,
            value_dtype=self.spec.value_dtype,
            dim=self.spec.dim,
        )

    def children(self) -> dict[str, Any]:
        """Returns the objects that the SavedModel stores: the table's functions and its file.

        The functions create, open and close the table. TensorFlow and Keras call this in eager
        mode, once or more, before they save. Only the rows of the last call are saved.
        """
        if _deferred.get() is None:
            attributes = {"values_only": True, "metadata": self._metadata}
            library.de_table_save(self.handle, str(self.file), **attributes)

        @tf.function(input_signature=[], autograph=False)
        def create() -> tf.Tensor:
            return self.create_resource()

        functions = {"_create_resource": create.get_concrete_function(), "snapshot": self._asset}
        if not self.together:
            return {**functions, "_initialize": _do_nothing}

        @tf.function(input_signature=[], autograph=False)
        def initialize() -> int:
            for table in self.together:
                library.de_frozen_table_open(table.handle, table._asset.asset_path)
            return 1

        @tf.function(input_signature=[], autograph=False)
        def destroy() -> int:
            for table in self.together:
                library.de_frozen_table_close(table.handle)
            return 1

        destroyer = destroy.get_concrete_function()
        return {**functions, "_initialize": initialize, "_destroy_resource": destroyer}


@tf.function(input_signature=[], autograph=False)
def _do_nothing() -> int:
    return 1


def put_together(tables: Iterable[FrozenTable]) -> None:
    """Makes one function open all tables of a SavedModel, and one close them.

    Loading and exporting take milliseconds per function. One function also opens the tables in
    parallel.
    """
    first, *others = tables
    for each in others:
        each.together = []
    first.together = [first, *others]


def file_stem(name: str) -> str:
    """Returns a file name prefix for a table, short enough for a suffix."""
    whole, part, number = name.rpartition("_mht_")
    if part and _PART.fullmatch(number):
        return file_stem(whole) + part + number
    stem = "".join(each if each.isalnum() or each in "._-" else "_" for each in name)
    if len(stem.encode()) <= _STEM_BYTES:
        return stem
    return stem.encode()[:_STEM_BYTES].decode(errors="ignore") + f"-{zlib.crc32(name.encode()):08x}"
