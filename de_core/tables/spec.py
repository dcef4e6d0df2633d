"""The checked properties of a table: dtypes, dim and devices."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import check_integer, received
from de_core.base.types import DTypeLike
from de_core.tables.tier import DiskTier

#: Dtypes a table's keys may have.
KEY_DTYPES = (tf.int64, tf.int32, tf.string)
#: Dtypes a table's values may have.
VALUE_DTYPES = (
    tf.float32,
    tf.float64,
    tf.float16,
    tf.bfloat16,
    tf.int8,
    tf.int32,
    tf.int64,
    tf.bool,
    tf.string,
)
#: The greatest `dim`.
MAX_DIM = 4096
# Matches accelerators in a device name, but not in a job's name.
_ACCELERATOR = re.compile(r"(^|/|device:)([GT]PU|XLA_\w+)(:|$)", re.IGNORECASE)


def arithmetic_dtype(value_dtype: tf.DType) -> tf.DType:
    """Returns the dtype in which rows of `value_dtype` and their gradients are computed."""
    return value_dtype if value_dtype.size >= 4 or value_dtype.is_integer else tf.float32


def is_remote(device: str) -> bool:
    """Returns whether a device name has another process's job, such as "/job:ps/task:0".

    TensorFlow names the devices of this process "/job:localhost/…".
    """
    return "/job:" in device and "/job:localhost/" not in device


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """The properties that must be equal when `get_variable` is called again for a table.

    Attributes:
        key_dtype: Dtype of the keys.
        value_dtype: Dtype of the values.
        dim: Values per row, 1 to `MAX_DIM`.
        devices: The device of each shard.
        tier: Where rows are that are not in memory. None if all rows are in memory.
        slot_dtype: Dtype of optimizer slots with an element per value.
    """

    key_dtype: tf.DType
    value_dtype: tf.DType
    dim: int
    devices: tuple[str, ...]
    tier: DiskTier | None = None
    slot_dtype: tf.DType = tf.float32

    @classmethod
    def checked(
        cls,
        key_dtype: DTypeLike,
        value_dtype: DTypeLike,
        dim: int,
        devices: Sequence[str] | None,
        tier: DiskTier | None = None,
        slot_dtype: DTypeLike | None = None,
    ) -> TableSpec:
        """Makes a spec from a user's arguments."""
        keys = _dtype("key_dtype", key_dtype, KEY_DTYPES)
        values = _dtype("value_dtype", value_dtype, VALUE_DTYPES)
        check_integer("dim", dim, 1, MAX_DIM)
        names = _devices(devices)
        spec = cls(keys, values, int(dim), names, tier, _slot_dtype(slot_dtype, values))
        if tier is None:
            return spec
        if not isinstance(tier, DiskTier):
            raise TypeError(f"`tier` must be a de.DiskTier or None. {received(tier=tier)}")
        if any(map(is_remote, names)):
            raise ValueError(
                "A table with a `tier` must be on CPUs of this process. "
                f"{received(devices=list(names))} Leave out `devices` or `tier`."
            )
        if values == tf.string:
            raise NotImplementedError(
                "A table with a `tier` must have values of fixed width. "
                f"{received(value_dtype=values.name)} Leave out `tier`."
            )
        return spec

    def difference(self, other: TableSpec) -> str:
        """Describes the first property that differs, with both values. "" if none differs."""
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            if mine != theirs:
                return f"{field.name}={_plain(theirs)!r}, but it exists with {_plain(mine)!r}"
        return ""


def _plain(value: Any) -> Any:
    if isinstance(value, tf.DType):
        return value.name
    return list(value) if isinstance(value, tuple) else value


def _dtype(name: str, value: Any, allowed: tuple[tf.DType, ...]) -> tf.DType:
    try:
        dtype = tf.as_dtype(value)
    except TypeError:
        dtype = None
    if dtype not in allowed:
        names = ", ".join(each.name for each in allowed)
        raise TypeError(f"`{name}` must be one of {names}. {received(**{name: value})}")
    return dtype


def _slot_dtype(slot_dtype: DTypeLike | None, value_dtype: tf.DType) -> tf.DType:
    full = tf.float64 if value_dtype == tf.float64 else tf.float32
    if slot_dtype is None:
        return full
    halves = value_dtype.is_floating and full == tf.float32
    allowed = (full, tf.bfloat16) if halves else (full,)
    try:
        return _dtype("slot_dtype", slot_dtype, allowed)
    except TypeError as error:
        raise TypeError(
            f"{error} The table has value_dtype={value_dtype.name}. Leave out `slot_dtype`."
        ) from None


def _devices(devices: Any) -> tuple[str, ...]:
    if devices is None:
        return ("/CPU:0",)
    if isinstance(devices, str):
        devices = (devices,)
    if not isinstance(devices, Iterable):
        raise TypeError(f"`devices` must be a list of device names. {received(devices=devices)}")
    names = tuple(devices)
    if not names:
        raise ValueError(
            "`devices` must name at least one device, or be None for the CPU. "
            + received(devices=devices)
        )
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"`devices` must hold device names. {received(device=name)}")
        if _ACCELERATOR.search(name):
            raise ValueError(
                "`devices` must name CPUs, such as '/CPU:0': tables are in main memory, and "
                f"TensorFlow copies looked-up rows to a GPU. {received(device=name)}"
            )
    return names
