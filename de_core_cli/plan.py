"""The verb `plan`: says how many bytes a table will take, before there is one."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

from de_core_cli import terminal

_BYTES = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}
#: The metadata column that each policy adds to a row, an int64.
_COLUMNS = {
    "lru": "time",
    "lfu": "uses",
    "score": "score",
    "ttl-steps": "step",
    "ttl-seconds": "time",
}
_LINE, _KEYS_PER_LINE = 64, 5
#: The engine's own shards of a table, and the lines of an index segment that is full grown.
_SHARDS, _SEGMENT_LINES = 16, 1024


def add(verbs: Any) -> None:
    """Adds the verb to a parser."""
    verb = verbs.add_parser(
        "plan",
        help="say how many bytes a table will take",
        description="Computes the bytes of a table with so many rows: in memory, on disk, and in "
        "its files. Loads neither TensorFlow nor the ops. Memory of malloc and of single batches "
        "comes on top.",
        **terminal.examples(
            ("A table under Adam:", "plan --rows 1e8 --dim 64 --slots 2"),
            (
                "Strings, bounded, served as int8, published each minute:",
                "plan --rows 1e7 --dim 32 --key-dtype string --key-bytes 20 --slots 1 "
                "--eviction lru --export-dtype int8 --changed 0.002",
            ),
        ),
    )
    verb.add_argument("--rows", type=terminal.whole(1), required=True, help="rows, such as 1e8")
    verb.add_argument("--dim", type=terminal.whole(1, 4096), required=True, help="values per row")
    verb.add_argument("--value-dtype", choices=_BYTES, default="float32", help="float32")
    verb.add_argument("--key-dtype", choices=("int64", "int32", "string"), default="int64")
    verb.add_argument(
        "--key-bytes", type=terminal.whole(1), default=16, help="mean length of string keys, 16"
    )
    verb.add_argument(
        "--slots",
        type=terminal.whole(0, 64),
        default=0,
        help="optimizer slots of `dim` values: Adam has 2 (0)",
    )
    verb.add_argument("--slot-dtype", choices=("float32", "bfloat16"), default="float32")
    verb.add_argument("--eviction", choices=_COLUMNS, action="append", default=[])
    verb.add_argument(
        "--tier-memory", type=terminal.whole(1), help="`memory_bytes` of a `DiskTier`"
    )
    verb.add_argument("--export-dtype", choices=("float32", "float16", "bfloat16", "int8"))
    verb.add_argument(
        "--changed", type=float, default=0.01, help="fraction of rows in a delta (0.01)"
    )
    terminal.add_json(verb)
    verb.set_defaults(run=run, parser=verb)


def run(options: argparse.Namespace) -> None:
    """Prints the bytes."""
    refuse = options.parser.error
    if not 0 <= options.changed <= 1:
        refuse(f"`--changed` must be from 0 to 1. Received: {options.changed}.")
    if options.tier_memory is not None and options.eviction:
        refuse(f"A table with a tier has no eviction. Received: --eviction {options.eviction}.")
    is_float = "float" in options.value_dtype
    if options.export_dtype is not None and not is_float:
        refuse(
            "Only floating-point values are stored in another dtype. "
            f"Received: --value-dtype {options.value_dtype} --export-dtype {options.export_dtype}."
        )
    if options.slot_dtype == "bfloat16" and options.value_dtype == "float64":
        refuse("Slots of float64 rows are float64. Received: --slot-dtype bfloat16.")
    found = planned(options)
    if options.json:
        terminal.print_json(found)
    else:
        terminal.print_table(("of the table", "bytes"), found.items())


def planned(options: argparse.Namespace) -> dict[str, int]:
    """Returns the bytes of each part, by name. A tier's are the most that it takes."""
    rows, text = options.rows, options.key_dtype == "string"
    value = (options.dim, _BYTES[options.value_dtype])
    slot_bytes = 8 if options.value_dtype == "float64" else _BYTES[options.slot_dtype]
    columns = [(1, 8)] * len({_COLUMNS[each] for each in options.eviction})
    trained = [value, *columns, *[(options.dim, slot_bytes)] * options.slots]
    served = [value]
    if options.export_dtype is not None:
        served = [(options.dim, _BYTES[options.export_dtype])]
        served += [(1, 4)] if options.export_dtype == "int8" else []
    stride = _stride(trained, text)
    key_bytes = options.key_bytes if text else 0
    strings = rows * ((key_bytes + 15) // 8 * 8) if text else 0
    index = _SHARDS * _LINE * _index_lines(rows / _SHARDS)
    memory, disk = index + rows * stride + strings, 0
    if options.tier_memory is not None and memory > options.tier_memory:
        memory = options.tier_memory + rows * (40 if text else 32) + 2**20
        disk = int(1.47 * rows * (stride + key_bytes + 16)) + 192 * 2**20
    changed = round(rows * options.changed)
    converts = options.export_dtype not in (None, options.value_dtype)
    return {
        "memory": round(memory),
        "disk": disk,
        "checkpoint": _file(rows, stride, key_bytes, False),
        "export": _file(rows, _stride(served, text), key_bytes, converts),
        "checkpoint delta": _file(changed, stride, key_bytes, False),
        "published delta": _file(changed, _stride(served, text), key_bytes, converts),
    }


def _stride(parts: Sequence[tuple[int, int]], has_key: bool) -> int:
    """Returns the bytes from one row to the next.

    Args:
        parts: The width and the bytes per element of the value and of each slot.
        has_key: Whether a row ends with the reference of a string key.
    """
    parts = [*parts, (1, 8)] if has_key else parts
    end = 0
    for width, size in parts:
        end = math.ceil(end / size) * size + width * size
    widest = max(size for _, size in parts)
    return math.ceil(end / widest) * widest


def _index_lines(keys: float, lines: int = 2) -> float:
    """Returns the expected number of lines of an index segment and of those it splits into.

    A segment with more than 4 keys per line doubles its lines. One of `_SEGMENT_LINES` lines
    splits in two.

    Args:
        keys: The mean number of keys of the segment. Hashes spread them like a Poisson variable.
        lines: The segment's lines.
    """
    grows = math.erfc((4 * lines + 0.5 - keys) / math.sqrt(2 * keys + 1)) / 2
    if grows < 1e-6:
        return lines
    if lines == _SEGMENT_LINES:
        return (1 - grows) * lines + grows * 2 * _index_lines(keys / 2, lines)
    return (1 - grows) * lines + grows * _index_lines(keys, 2 * lines)


def _file(rows: int, stride: int, key_bytes: int, converts: bool) -> int:
    """Returns the bytes of a snapshot file; see docs/reference/snapshot-format.md."""
    load = 0.7 if stride >= 128 or converts else 0.85
    lines = math.ceil(rows / (_KEYS_PER_LINE * load))
    return lines * _LINE + rows * (stride + key_bytes) + 1024  # a header and a directory
