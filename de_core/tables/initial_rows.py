"""Translates a user's `initializer` for the engine.

The engine computes an initial row from (seed, key) alone, so it never calls the initializer itself.
Known initializers are translated to a distribution with parameters. Any other callable is called
once to make a sample, and the engine draws the row of each key from this sample.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import keras

#: Number of rows drawn from a callable initializer.
SAMPLE_ROWS = 1024
# Truncating a normal distribution at two stddevs multiplies its stddev by this factor. So a Keras
# VarianceScaling divides by the factor first. The engine takes the stddev before truncation.
_TRUNCATED_STDDEV = 0.87962566103423978
_LIBRARIES = ("keras.", "tf_keras.", "tensorflow.")


@dataclasses.dataclass(frozen=True, eq=False)
class InitialRow:
    """The engine's description of the row that a lookup returns for a key without a row.

    Attributes:
        kind: "zeros", "constant", "uniform", "normal", "truncated_normal", "row" or "quantile".
        args: The parameters of the kind, such as (low, high).
        seed: The seed of the random kinds.
        table: [dim] for "row". [q, dim] with each column ascending for "quantile".
    """

    kind: str
    args: tuple[float, ...] = ()
    seed: int = 0
    table: np.ndarray[Any, np.dtype[np.float32]] | None = None

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes of the op that creates the table."""
        return {
            "initializer": self.kind,
            "init_args": list(self.args),
            "init_seed": self.seed,
            "init_table": [] if self.table is None else self.table.ravel().tolist(),
        }


def resolve(
    initializer: Any, *, name: str, dim: int, value_dtype: tf.DType, height: int = 0
) -> InitialRow:
    """Translates a user's initializer for the engine.

    See `de.Variable` for the kinds of initializers. The variable's name is hashed to a seed for an
    initializer without one. `height` is the expected number of rows, 0 if unknown: a
    `VarianceScaling` computes its fans from a matrix [height, dim].

    Raises:
        TypeError: `initializer` is none of these. Or it is random and the values are not
            floating-point. Or it is not zero and the values are strings.
        ValueError: An array, or the result of a callable, has a wrong shape. A tensor's dtype
            differs from the values' dtype. The table cannot hold the number, or float32 cannot, in
            which initial rows are computed. `initializer` is a `VarianceScaling` and `height` is 0.

    Example:
    >>> resolve(0.5, name="t", dim=2, value_dtype=tf.float32).kind
    'constant'
    """
    if tf.is_tensor(initializer) and initializer.dtype != value_dtype:
        raise ValueError(
            f"An `initializer` tensor must be of the values' dtype, {value_dtype.name}. Cast it "
            f"with tf.cast(initializer, tf.{value_dtype.name}). Received: "
            f"initializer.dtype={initializer.dtype.name} (of type {type(initializer).__name__})."
        )
    if value_dtype == tf.string and not _is_zero(initializer):
        raise TypeError(
            "The `initializer` of string values must be None: a key without a row reads as empty "
            f"strings. {received(initializer=initializer)}"
        )
    row = _resolve(with_fans(initializer, height, dim), name, dim, value_dtype)
    random = row.kind in ("uniform", "normal", "truncated_normal", "quantile")
    if random and not value_dtype.is_floating:
        raise TypeError(
            f"A random initializer needs floating-point values, not {value_dtype.name}. "
            f"Pass a number or None. {received(initializer=initializer)}"
        )
    return row


def with_fans(initializer: Any, height: int, dim: int) -> Any:
    """Translates a `VarianceScaling` to the distribution it has for a matrix; returns others as is.

    Raises:
        ValueError: `initializer` is a variance scaling, and `height` is 0. Keras cannot compute the
            fans of a matrix of unknown height either.
    """
    found = _instance(initializer)
    known = type(found).__module__.startswith(_LIBRARIES)
    if not known or not all(hasattr(found, each) for each in ("scale", "mode", "distribution")):
        return initializer
    if not height:
        raise ValueError(
            "The variance of a `VarianceScaling` initializer depends on the table's height: pass "
            "`init_size`, the number of rows to expect, or "
            "keras.initializers.RandomUniform(-limit, limit) with a limit of your own. "
            f"Received: initializer={found!r}, init_size=0."
        )
    fans = {"fan_in": height, "fan_out": dim, "fan_avg": (height + dim) / 2.0}
    stddev = math.sqrt(found.scale / max(1.0, fans[found.mode]))
    seed = _given_seed(found)
    if found.distribution == "uniform":
        limit = math.sqrt(3.0) * stddev
        return keras.initializers.RandomUniform(-limit, limit, seed=seed)
    if found.distribution == "untruncated_normal":
        return keras.initializers.RandomNormal(0.0, stddev, seed=seed)
    return keras.initializers.TruncatedNormal(0.0, stddev / _TRUNCATED_STDDEV, seed=seed)


def _instance(initializer: Any) -> Any:
    """Makes the initializer of a name, a config, a class or a `functools.partial` of a class."""
    if isinstance(initializer, (str, dict)):
        initializer = keras.initializers.get(initializer)
    is_class = inspect.isclass(getattr(initializer, "func", initializer))
    return initializer() if is_class else initializer


def _is_zero(initializer: Any) -> bool:
    """Returns whether a string table can treat the initializer as empty strings."""
    if isinstance(initializer, (numbers.Number, np.number)):
        return initializer == 0
    return initializer is None or type(initializer).__name__ == "Zeros" or initializer == "zeros"


def _check_numbers(values: Any, value_dtype: tf.DType) -> None:
    """Raises unless values of this dtype can represent these numbers."""
    for value in np.asarray(values).ravel().tolist():
        if value_dtype.is_integer:
            whole = math.isfinite(value) and int(value) == value
            fits = whole and value_dtype.min <= value <= value_dtype.max
            if not fits or int(np.float32(value)) != value:
                raise ValueError(
                    f"The `initializer` of {value_dtype.name} values must be whole numbers that "
                    "this dtype and float32 can represent: initial rows are computed in float32. "
                    + received(value=value)
                )
        elif math.isfinite(value) and abs(value) > float(tf.float32.max):
            raise ValueError(
                f"The `initializer` must be from {tf.float32.min} to {tf.float32.max}: initial "
                f"rows are computed in float32. {received(value=value)}"
            )


def _resolve(initializer: Any, name: str, dim: int, value_dtype: tf.DType) -> InitialRow:
    if initializer is None:
        return InitialRow("zeros")
    if isinstance(initializer, (numbers.Number, np.generic)):
        return _of_array(initializer, dim, value_dtype)
    initializer = _instance(initializer)
    if isinstance(initializer, (list, tuple, np.ndarray)) or tf.is_tensor(initializer):
        return _of_array(initializer, dim, value_dtype)
    if not callable(initializer):
        raise TypeError(
            "`initializer` must be None, a number, a list, array or tensor of [dim] values, an "
            f"initializer or a callable f(shape, dtype). {received(initializer=initializer)}"
        )
    known = _of_known(initializer, name, dim, value_dtype)
    return known if known is not None else _of_callable(initializer, name, dim, value_dtype)


def _constant(value: Any) -> InitialRow:
    number = float(value)
    return InitialRow("constant", (number,)) if number else InitialRow("zeros")


def _of_array(initializer: Any, dim: int, value_dtype: tf.DType) -> InitialRow:
    values = values_of(initializer) if tf.is_tensor(initializer) else initializer
    array = np.asarray(values)
    _check_numbers(array, value_dtype)
    if array.size == 1 and dim >= 1 and array.ndim <= 1:
        return _constant(array.reshape([]))
    if array.shape not in ((dim,), (1, dim)):
        raise ValueError(
            f"An `initializer` array must be a scalar or of shape [{dim}], one row: write rows of "
            "given ids by `upsert(ids, rows)`. "
            f"Received: initializer.shape={array.shape} (of type {type(initializer).__name__})."
        )
    return InitialRow("row", table=array.reshape([dim]).astype(np.float32))


def _of_known(initializer: Any, name: str, dim: int, value_dtype: tf.DType) -> InitialRow | None:
    # Recognize only the libraries' own classes: a subclass may compute anything.
    if not type(initializer).__module__.startswith(_LIBRARIES):
        return None
    kind = type(initializer).__name__
    if kind == "Zeros":
        return InitialRow("zeros")
    if kind == "Ones":
        return _constant(1)
    if kind == "Constant":
        return _of_array(initializer.value, dim, value_dtype)
    seed = _seed_of(initializer, name)
    if kind == "RandomUniform":
        # In TensorFlow 1 `maxval` may be None, which means 1 for floating-point values.
        high = 1.0 if initializer.maxval is None else initializer.maxval
        return InitialRow("uniform", _floats(initializer.minval, high), seed)
    if kind == "RandomNormal":
        return InitialRow("normal", _floats(initializer.mean, initializer.stddev), seed)
    if kind == "TruncatedNormal":
        return InitialRow("truncated_normal", _floats(initializer.mean, initializer.stddev), seed)
    return None


def _of_callable(
    initializer: Callable[..., Any], name: str, dim: int, value_dtype: tf.DType
) -> InitialRow:
    shape = [SAMPLE_ROWS, dim]
    try:
        with_dtype = "dtype" in inspect.signature(initializer).parameters
    except (TypeError, ValueError):
        with_dtype = True

    def sample() -> Any:
        return initializer(shape, dtype=value_dtype) if with_dtype else initializer(shape)

    values = np.asarray(_evaluate(sample))
    if values.shape != tuple(shape):
        raise ValueError(
            "A callable `initializer` must return an array of the requested shape. "
            f"Received: shape={values.shape} for {shape} (from {initializer!r})."
        )
    _check_numbers(values[0], value_dtype)
    if np.all(values == values[:1]):
        return InitialRow("row", table=values[0].astype(np.float32))
    columns = np.sort(values.astype(np.float32), axis=0)
    return InitialRow("quantile", seed=_seed_of(initializer, name), table=columns)


def values_of(tensor: Any) -> Any:
    """Returns a tensor's or variable's values.

    In a graph, a tensor must not depend on an input.

    Raises:
        ValueError: The values are not known yet.
    """
    try:
        return tensor.numpy()
    except (AttributeError, NotImplementedError):
        static = None if isinstance(tensor, tf.Variable) else tf.get_static_value(tensor)
    if static is not None:
        return static
    try:
        with tf.compat.v1.Session(graph=tensor.graph) as session:
            return session.run(tensor)
    except (tf.errors.OpError, TypeError, ValueError) as error:
        raise ValueError(
            "An `initializer` tensor must have known values when the Variable is created: pass an "
            f"array or a constant. Received: initializer={tensor!r}, computed from others."
        ) from error


def _evaluate(function: Callable[[], Any]) -> Any:
    with tf.init_scope():
        if tf.executing_eagerly():
            return np.asarray(function())
    # In TensorFlow 1 graph mode, the op that creates the table needs the numbers now.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = function()
        return session.run(value) if tf.is_tensor(value) else value


def _floats(*values: Any) -> tuple[float, ...]:
    return tuple(float(np.asarray(value)) for value in values)


def _seed_of(initializer: Any, name: str) -> int:
    """Returns the initializer's seed, or a seed from the name, the same in every process."""
    seed = _given_seed(initializer)
    if seed is not None:
        return seed
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _given_seed(initializer: Any) -> int | None:
    config = initializer.get_config() if hasattr(initializer, "get_config") else {}
    seed = config.get("seed")
    if isinstance(seed, dict):  # the config of a keras.random.SeedGenerator
        seed = seed.get("config", {}).get("seed")
    return int(seed) & (2**63 - 1) if isinstance(seed, numbers.Integral) else None
