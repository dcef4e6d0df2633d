"""Reads columns of a Parquet file as texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ranking.errors import DataError

_MAGIC = b"PAR1"


def is_parquet(path: Path) -> bool:
    """Whether a file starts as Parquet files do."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def columns_of(path: Path) -> list[str]:
    """Returns the names of the columns.

    Raises:
        DataError: the file is damaged.
        ImportError: pyarrow is missing.
    """
    return list(_opened(path).schema_arrow.names)


def texts_of(path: Path, columns: Sequence[str]) -> list[list[str]]:
    """Returns the values of some columns as texts, with "" for a missing value.

    A date or time becomes its whole seconds since 1970.

    Raises:
        DataError: the file is damaged, or values of a column have no text.
        ImportError: pyarrow is missing.
    """
    file = _opened(path)
    import pyarrow as pa

    try:
        table = file.read(columns=list(columns))
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    return [_texts(name, table.column(name)) for name in columns]


def _texts(name: str, column: Any) -> list[str]:
    import pyarrow as pa

    try:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            zone = getattr(column.type, "tz", None)
            column = column.cast(pa.timestamp("s", zone), safe=False).cast(pa.int64())
        return [(text or "").strip() for text in column.cast(pa.string()).to_pylist()]
    except pa.ArrowException as error:
        raise DataError(
            "A column of the log must hold texts, numbers or times. "
            f"Received: {name} of type {column.type}."
        ) from error


def _opened(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError("A Parquet log needs pyarrow: pip install pyarrow") from error
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"The log must be a whole Parquet file. Received: {path} ({error}).")
