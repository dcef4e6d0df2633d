"""Reads the header and the footer of a snapshot file with the standard library alone.

`docs/reference/snapshot-format.md` specifies the format. The op `DeSnapshotInfo` returns the same
fields, but needs TensorFlow.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

from de_core_cli.library import CommandError

MAGIC = b"\x89DES\r\n\x1a\n"
_VERSION = 1
_HEAD = struct.Struct("<8sIIQ4BIIIQqQ16s16sI24xI")
_FOOT = struct.Struct("<6Q16sI48xI8s")
_LONGEST_HEADER = 1 << 28
_KINDS = ("", "base", "delta")
_KEYS = ("", "int64", "string")
_DTYPES = (
    *("", "float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "bool", "string"),
)
_INITIALIZERS = ("zeros", "constant", "uniform", "normal", "truncated_normal", "row", "quantile")
#: Called as `read(offset, size)`; returns fewer bytes at the end of the file.
ReadAt = Callable[[int, int], bytes]


@dataclasses.dataclass(frozen=True)
class Header:
    """A snapshot file's header and footer.

    Attributes:
        info: The fields of the op `DeSnapshotInfo`.
        metadata: All metadata, as bytes, with the entries of the table itself (`de.…`).
    """

    info: dict[str, Any]
    metadata: dict[str, bytes]


def read(read_at: ReadAt, size: int, name: str) -> Header:
    """Reads a header and checks its checksums and the footer's.

    Args:
        read_at: Reads bytes of the file.
        size: Bytes of the file.
        name: The file's name, for errors.

    Raises:
        CommandError: The file is no snapshot file, is truncated, or its header is damaged.
    """
    start = read_at(0, _HEAD.size)
    if start[:8] != MAGIC:
        raise CommandError(f"The file must be a snapshot file. Received: {name!r}.")
    if size < _HEAD.size + _FOOT.size:
        raise _damaged(name, "it is truncated")
    (_, version, _, header_bytes, kind, key, dtype, _, dim, stride, flags, _, created, sequence,
     identity, parent, count, crc) = _HEAD.unpack(start)  # fmt: skip
    if crc != _crc32c(start[:124]):
        raise _damaged(name, "its header has a wrong checksum")
    if version > _VERSION:
        raise CommandError(
            f"The file's format must be at most version {_VERSION}. Received: {name!r} of version "
            f"{version}. Install a newer de-core."
        )
    if not _HEAD.size < header_bytes <= min(size, _LONGEST_HEADER):
        raise _damaged(name, "it is truncated")
    fields = read_at(_HEAD.size, header_bytes - _HEAD.size)
    if _crc32c(fields[:-4]) != int.from_bytes(fields[-4:], "little"):
        raise _damaged(name, "its header has a wrong checksum")
    foot = read_at(size - _FOOT.size, _FOOT.size)
    file_bytes, _, sections, rows, tombstones, string_bytes, footer_id, contents, crc, _ = (
        _FOOT.unpack(foot)
    )
    if crc != _crc32c(foot[:116]) or (file_bytes, footer_id) != (size, identity):
        raise _damaged(name, "it is truncated, or its footer is damaged")
    try:
        info: dict[str, Any] = {
            "kind": _KINDS[kind],
            "id": identity.hex(),
            "parent": parent.hex() if kind == 2 else None,
            "sequence": sequence,
            "replaces": bool(flags & 2),
            "created_micros": created,
            "key_dtype": _KEYS[key],
            "value_dtype": _DTYPES[dtype],
            "reads_as": _DTYPES[dtype],
            "dim": dim,
            "row_bytes": stride,
            "slots": [],
            "values_only": bool(flags & 1),
        }
        metadata = _read_fields(fields, count, info)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise _damaged(name, "a field of its header has an unknown value") from None
    shown = {k: _text(v) for k, v in metadata.items() if not k.startswith("de.")}
    info |= {"metadata": shown, "rows": rows, "tombstones": tombstones, "sections": sections}
    info |= {"bytes": size, "string_bytes": string_bytes, "contents_crc": contents}
    return Header(info, metadata)


def _read_fields(data: bytes, count: int, info: dict[str, Any]) -> dict[str, bytes]:
    metadata = {}
    at = 0
    for _ in range(count):
        tag, _, size = struct.unpack_from("<HHI", data, at)
        payload = data[at + 8 : at + 8 + size]
        at += 8 + (size + 7) // 8 * 8
        if tag == 1:
            dtype, width, initial, offset, length = struct.unpack_from("<B3xIdII", payload)
            slot = {"owner": payload[24 : 24 + length].decode()}
            slot |= {"name": payload[24 + length :].decode(), "dtype": _DTYPES[dtype]}
            info["slots"].append({**slot, "width": width, "initial": initial, "offset": offset})
        elif tag == 2:
            kind, a, b, seed, table = struct.unpack_from("<B7xddQQ", payload)
            made = {"kind": _INITIALIZERS[kind], "a": a, "b": b, "seed": seed, "table": table}
            info["initializer"] = made
        elif tag == 3:
            (length,) = struct.unpack_from("<I", payload)
            metadata[payload[4 : 4 + length].decode()] = payload[4 + length :]
        elif tag == 4:
            info["reads_as"] = _DTYPES[payload[0]]
    return metadata


def _text(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _damaged(name: str, reason: str) -> CommandError:
    return CommandError(f"A snapshot file must be whole. Received: {name!r}: {reason}.")


def _table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in table]
    return table


_TABLE = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
