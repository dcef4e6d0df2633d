"""The result for ids without a row in an exported model: the argument `oov`."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from de_core.base.checks import received
from de_core.base.types import UnknownIds
from de_core.tables.spec import TableSpec

_NAMES = ("initial", "zeros", "error")


def metadata(oov: UnknownIds, spec: TableSpec) -> list[str | bytes]:
    """Returns `oov` as metadata of a snapshot file: alternating keys and values.

    Args:
        oov: "initial", "zeros", "error"; a constant: a number, or `bytes` for a table of strings;
            or a row [dim].
        spec: The table's spec.

    Raises:
        TypeError: `oov` is none of these.
        ValueError: `oov` is an unknown name, a row of another shape, or a number that the values
            cannot represent.
    """
    strings = spec.value_dtype.name == "string"
    if isinstance(oov, str):
        if oov in _NAMES:
            return ["oov", oov]
        raise ValueError(
            f"`oov` must be one of {', '.join(map(repr, _NAMES))}, a constant or a row; a constant "
            f"for a table of strings is `bytes`. {received(oov=oov)}"
        )
    if isinstance(oov, bytes) and strings:
        return ["oov", "constant", "oov_value", oov]
    if isinstance(oov, (bool, numbers.Real)) and not strings:
        _check_fits(oov, np.asarray(float(oov)), spec)
        return ["oov", "constant", "oov_value", repr(float(oov))]
    if isinstance(oov, numbers.Real) or oov is None or isinstance(oov, bytes) or strings:
        raise TypeError(
            f"`oov` must fit the table's values, {spec.value_dtype.name}. {received(oov=oov)}"
        )
    row = np.asarray(oov)
    if row.shape != (spec.dim,) or row.dtype.kind not in "biufV":
        raise ValueError(
            f"A default row of unknown ids must be numbers of shape ({spec.dim},). "
            f"Received: shape={row.shape}, dtype={row.dtype}."
        )
    _check_fits(oov, row, spec)
    return ["oov", "row", "oov_value", row.astype(spec.value_dtype.as_numpy_dtype).tobytes()]


def _check_fits(oov: UnknownIds, wanted: np.ndarray[Any, Any], spec: TableSpec) -> None:
    """Raises ValueError unless the table's value dtype can hold `wanted`.

    Rounding to a floating-point dtype is allowed.
    """
    dtype = spec.value_dtype
    with np.errstate(over="ignore", invalid="ignore"):
        stored = wanted.astype(dtype.as_numpy_dtype)
    if dtype.is_floating:
        fits = bool(np.all(np.isfinite(stored.astype(np.float64))))
    else:
        fits = bool(np.all(stored.astype(wanted.dtype) == wanted))
        if wanted.ndim == 0:  # Python compares whole numbers of any size exactly
            fits = fits and bool(float(wanted) == oov)
    if not fits:
        raise ValueError(
            f"`oov` must be finite numbers that {dtype.name} can hold. {received(oov=oov)}"
        )
