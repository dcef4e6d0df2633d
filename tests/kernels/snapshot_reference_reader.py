"""A second snapshot reader: docs/reference/snapshot-format.md in numpy, slow, simple and strict."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HEADER_TEXT = """magic:V8 version:<u4 endian_mark:<u4 header_bytes:<u8 kind:u1 key_type:u1 dtype:u1
 hash_kind:u1 dim:<u4 row_stride:<u4 flags:<u4 hash_seed:<u8 created_micros:<i8 sequence:<u8 id:V16
 parent:V16 field_count:<u4 reserved:V24 crc:<u4"""
SECTION_TEXT = """begin:<u8 last:<u8 offset:<u8 count:<u4 lines:<u4 string_bytes:<u8 tombstones:<u4
 crc:<u4 reserved:V16"""
FOOTER_TEXT = """file_bytes:<u8 directory:<u8 sections:<u8 rows:<u8 tombstones:<u8 string_bytes:<u8
 id:V16 contents_crc:<u4 reserved:V48 crc:<u4 magic:V8"""
HEADER, SECTION, FOOTER = (
    np.dtype([tuple(field.split(":")) for field in text.split()])
    for text in (HEADER_TEXT, SECTION_TEXT, FOOTER_TEXT)
)
LINE = np.dtype(
    [("words", "<u8", 5), ("rows", "<u4", 5), ("used", "u1"), ("overflow", "u1"), ("filter", "<u2")]
)
# Dtypes by number, from 1. numpy has no bfloat16, so its bits are read; 9 is string.
DTYPES = dict(enumerate(("<f4", "<f8", "<f2", "<u2", "i1", "<i4", "<i8", "?"), start=1))
STRING = 9
BASE, DELTA = 1, 2
BFLOAT16, INT8 = 4, 5
KINDS = ("zeros", "constant", "uniform", "normal", "truncated_normal", "row", "quantile")
MASK = (1 << 64) - 1


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


CRC_TABLE = list(range(256))
for _ in range(8):
    CRC_TABLE = [crc >> 1 ^ (0x82F63B78 if crc & 1 else 0) for crc in CRC_TABLE]


def mix64(x: int) -> int:
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def hash_bytes(key: bytes) -> int:
    state = 0x9E3779B97F4A7C15 ^ len(key) * 0xFF51AFD7ED558CCD & MASK
    for at in range(0, len(key), 8):
        word = int.from_bytes(key[at : at + 8], "little")
        state = mix64(state ^ word) + 0x9E3779B97F4A7C15 & MASK
    return state


class Snapshot:
    """A snapshot file, base or delta, with all checksums verified.

    `header` and `footer` are numpy records, `initializer` a dict, `metadata` a dict of bytes,
    `slots` a list of (owner, name, dtype number, width, initial value, offset in the row).
    """

    def __init__(self, path: str | Path) -> None:
        self.data = Path(path).read_bytes()
        self.header = header = self._records(HEADER, 0)[0]
        assert header["magic"].tobytes() == b"\x89DES\r\n\x1a\n"
        assert (header["version"], header["endian_mark"]) == (1, 0x01020304)
        assert (header["hash_kind"], header["hash_seed"]) == (1, 0)
        assert header["kind"] in (BASE, DELTA)
        self.stride, self.dim = int(header["row_stride"]), int(header["dim"])
        self.string_keys, self.dtype = header["key_type"] == 2, int(header["dtype"])
        checksums = [self._check(0, 128), self._check(128, int(header["header_bytes"]))]
        self.slots: list[tuple[str, str, int, int, float, int]] = []
        self.metadata: dict[str, bytes] = {}
        self.reads_as = self.dtype
        self._read_fields()

        end = len(self.data) - FOOTER.itemsize
        self.footer = footer = self._records(FOOTER, end)[0]
        assert footer["magic"].tobytes() == b"DES-END\n"
        assert (footer["file_bytes"], footer["id"]) == (len(self.data), header["id"])
        self._check(end, len(self.data) - 8)
        directory = int(footer["directory"])
        self.sections = self._records(SECTION, directory, int(footer["sections"]))
        for section in self.sections:
            begin = int(section["offset"])
            checksums.append(self._check(begin, begin + self._shape(section)[2]))
            assert checksums[-1] == section["crc"]
        checksums.append(self._check(directory, end))
        assert crc32c(struct.pack(f"<{len(checksums)}I", *checksums)) == footer["contents_crc"]

    def rows(self) -> dict[int | bytes, tuple[Any, dict[str, Any]]]:
        """Returns every key with its value and its slots, which are named "owner/slot"."""
        found = {}
        for section in self.sections:
            for line in self._lines(section):
                for word, row in self._entries(section, line):
                    if row >= section["count"]:
                        continue
                    at = self._row(section, row)
                    slots = {
                        f"{owner}/{name}": np.frombuffer(
                            self.data, DTYPES[dtype], width, at + start
                        )
                        for owner, name, dtype, width, _, start in self.slots
                    }
                    found[self._key(section, word, row)] = (self._value(section, at), slots)
        assert len(found) == self.footer["rows"]
        return found

    def tombstones(self) -> set[int | bytes]:
        """Returns the keys that a delta removes."""
        gone = {
            self._key(section, word, row)
            for section in self.sections
            for line in self._lines(section)
            for word, row in self._entries(section, line)
            if row >= section["count"]
        }
        assert len(gone) == self.footer["tombstones"]
        return gone

    def find(self, key: int | bytes) -> Any | None:
        """Finds a key through the index, like a table; returns None for an unknown key."""
        word = hash_bytes(key) if isinstance(key, bytes) else key & MASK
        digest = mix64(word)
        for section in self.sections:
            if not section["begin"] <= digest <= section["last"]:
                continue
            lines = self._lines(section)
            home = (digest & 0xFFFFFFFF) * len(lines) >> 32
            for step in range(len(lines)):
                line = lines[(home + step) % len(lines)]
                for candidate, row in self._entries(section, line):
                    if candidate == word and self._key(section, word, row) == key:
                        gone = row >= section["count"]
                        return None if gone else self._value(section, self._row(section, row))
                if line["overflow"] == 0 or not line["filter"] >> (digest >> 32 & 15) & 1:
                    break
        return None

    def _records(self, dtype: np.dtype[Any], offset: int, count: int = 1) -> Any:
        return np.frombuffer(self.data, dtype, count, offset)

    def _check(self, begin: int, end: int) -> int:
        stored: int = struct.unpack_from("<I", self.data, end - 4)[0]
        assert crc32c(self.data[begin : end - 4]) == stored, f"checksum at {end - 4}"
        return stored

    def _read_fields(self) -> None:
        at = 128
        for _ in range(self.header["field_count"]):
            tag, _, size = struct.unpack_from("<HHI", self.data, at)
            payload = self.data[at + 8 : at + 8 + size]
            at += 8 + (size + 7) // 8 * 8
            if tag == 1:
                dtype, width, initial, start, owner = struct.unpack_from("<B3xIdII", payload)
                names = payload[24 : 24 + owner].decode(), payload[24 + owner :].decode()
                self.slots.append((*names, dtype, width, initial, start))
            elif tag == 2:
                kind, a, b, seed, count = struct.unpack_from("<B7xddQQ", payload)
                table = np.frombuffer(payload, "<f4", count, 40)
                self.initializer = {
                    "kind": KINDS[kind],
                    "a": a,
                    "b": b,
                    "seed": seed,
                    "table": table,
                }
            elif tag == 4:
                self.reads_as = payload[0]
            elif tag == 3:
                (name,) = struct.unpack_from("<I", payload)
                self.metadata[payload[4 : 4 + name].decode()] = payload[4 + name :]

    def _shape(self, section: Any) -> tuple[int, int, int]:
        """Returns rows, strings and end offset of the section at an offset."""
        rows = 64 + 64 * int(section["lines"])
        strings = rows + int(section["count"]) * self.stride
        strings += int(section["tombstones"]) * 8 if self.string_keys else 0
        return rows, strings, (strings + int(section["string_bytes"]) + 4 + 63) // 64 * 64

    def _lines(self, section: Any) -> Any:
        return self._records(LINE, int(section["offset"]) + 64, int(section["lines"]))

    def _entries(self, section: Any, line: Any) -> Iterator[tuple[int, int]]:
        for i in range(5):
            if line["used"] >> i & 1:
                assert line["rows"][i] < section["count"] + section["tombstones"]
                yield int(line["words"][i]), int(line["rows"][i])

    def _row(self, section: Any, row: int) -> int:
        return int(section["offset"]) + self._shape(section)[0] + row * self.stride

    def _string(self, section: Any, at: int) -> bytes:
        start, size = struct.unpack_from("<II", self.data, at)
        start += int(section["offset"]) + self._shape(section)[1]
        return self.data[start : start + size]

    def _key(self, section: Any, word: int, row: int) -> int | bytes:
        if not self.string_keys:
            return word - (1 << 64) if word >> 63 else word
        count = int(section["count"])
        if row >= count:
            return self._string(section, self._row(section, count) + (row - count) * 8)
        return self._string(section, self._row(section, row) + self.stride - 8)

    def _value(self, section: Any, at: int) -> Any:
        if self.dtype == STRING:
            return [self._string(section, at + 8 * j) for j in range(self.dim)]
        stored = np.frombuffer(self.data, DTYPES[self.dtype], self.dim, at)
        if self.reads_as == self.dtype:
            return stored
        if self.dtype == BFLOAT16:
            stored = (stored.astype("<u4") << 16).view("<f4")
        scale = 1.0
        for owner, name, dtype, width, _, start in self.slots:
            if (owner, name, dtype, width, self.dtype) == ("de.stored", "scale", 1, 1, INT8):
                scale = np.frombuffer(self.data, "<f4", 1, at + start)[0]
        return (stored.astype("<f4") * np.float32(scale)).astype(DTYPES[self.reads_as])
