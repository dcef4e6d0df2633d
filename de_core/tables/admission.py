"""Admission policies: they decide which keys get a row (`Variable`'s argument `admission`).

A lookup of a key that is not admitted returns the key's initial row. The key's gradient is dropped.
The table stores nothing for the key except what the policy needs to count. Optimizer steps and
`find_or_insert` apply the policy. Writes of explicit rows (`upsert`, `accum`, a restored
checkpoint) always store the row. Counts and filters are saved and restored with the rows. Each key
is counted in exactly one shard, so the number of shards does not change which keys are admitted.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import struct
from typing import Any, TypeVar

from de_core.base.checks import check_integer, received
from de_core.base.keras import keras

_T = TypeVar("_T")


class Configured:
    """An argument of a Variable that Keras saves by its fields."""

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`."""
        return dict(vars(self))

    @classmethod
    def from_config(cls: type[_T], config: dict[str, Any]) -> _T:
        """Makes an object from the result of `get_config`."""
        return cls(**config)


class Admission(Configured):
    """Base class of all admission policies. Equal policies compare equal."""

    def fields(self, tables: int) -> dict[str, int]:
        """Returns the engine's settings for each of `tables` shards."""
        raise NotImplementedError


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class AdmissionCount(Admission):
    """Admits a key at its `min_count`-th occurrence; counts are exact.

    An optimizer step counts a key once, even if its batch contains the key several times. A removed
    key is counted from 0 again. Memory: 16 to 32 bytes for each key that was seen and has no row
    yet.

    Args:
        min_count: Occurrences that a key needs, 1 to 2^32 - 1. With 1, every key is admitted.

    Raises:
        TypeError: `min_count` is not a whole number.
        ValueError: `min_count` is out of range.

    Example:
    >>> import de_core as de
    >>> users = de.Variable(dim=1, admission=de.AdmissionCount(2))
    >>> users.find_or_insert([7]), int(users.size())
    (<tf.Tensor: shape=(1, 1), dtype=float32, numpy=array([[0.]], dtype=float32)>, 0)
    >>> _ = users.find_or_insert([7])
    >>> int(users.size())
    1
    """

    min_count: int

    def __post_init__(self) -> None:
        check_integer("min_count", self.min_count, 1, 2**32 - 1)

    def fields(self, tables: int) -> dict[str, int]:
        """Returns the engine's settings."""
        del tables
        return {"admission": 1, "min_count": self.min_count}


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class AdmissionBloom(Admission):
    """Admits a key at its `min_count`-th occurrence, counted by a counting Bloom filter.

    The count is never too low, but may be too high. At most a fraction `error` of `capacity`
    distinct keys is admitted early. The memory is fixed: 4 / -ln(1 - error^(1/4)) bytes for each
    key of `capacity`, which is 10.5 for an error of 0.01, plus a few percent because keys spread
    unevenly. The filter keeps its counts: a key whose row was removed is admitted again at once.

    Args:
        min_count: Occurrences that a key needs, 1 to 255.
        capacity: Number of distinct keys for which `error` holds, including keys with a row. Each
            file of a shard holds its filter, which must have at most 4000 MiB.
        error: Greatest fraction of keys admitted early, above 0 and below 1.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is out of range.

    Example:
    >>> AdmissionBloom(3, capacity=1_000_000)
    AdmissionBloom(min_count=3, capacity=1000000, error=0.01)
    """

    min_count: int
    capacity: int
    error: float = 0.01

    def __post_init__(self) -> None:
        check_integer("min_count", self.min_count, 1, 255)
        check_integer("capacity", self.capacity, 1, 2**40)
        _check_fraction("error", self.error, one=False)

    def fields(self, tables: int) -> dict[str, int]:
        """Returns the engine's settings: the shard's part of the capacity, and a margin."""
        share = self.capacity / tables
        if tables > 1:
            share += 4 * math.sqrt(share)
        return {
            "admission": 2,
            "min_count": self.min_count,
            "capacity": math.ceil(share),
            "error_bits": _bits(self.error),
        }


@keras.saving.register_keras_serializable(package="de_core")
@dataclasses.dataclass(frozen=True)
class AdmissionProbability(Admission):
    """Admits a key with a fixed probability at each occurrence. Uses no memory.

    The decision is a function of the seed, the key and the table's number of optimizer steps. So a
    repeated or resumed run admits the same keys. A key is admitted within 1 / probability optimizer
    steps on average.

    Args:
        probability: Probability of admission, above 0 and at most 1.
        seed: 0 to 2^63 - 1.

    Raises:
        TypeError: An argument is not a number.
        ValueError: An argument is out of range.

    Example:
    >>> AdmissionProbability(0.1)
    AdmissionProbability(probability=0.1, seed=0)
    """

    probability: float
    seed: int = 0

    def __post_init__(self) -> None:
        _check_fraction("probability", self.probability, one=True)
        check_integer("seed", self.seed, 0, 2**63 - 1)

    def fields(self, tables: int) -> dict[str, int]:
        """Returns the engine's settings."""
        del tables
        return {"admission": 3, "probability_bits": _bits(self.probability), "seed": self.seed}


def _check_fraction(name: str, value: Any, *, one: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"`{name}` must be a number. {received(**{name: value})}")
    if not (0 < float(value) < 1 or (one and value == 1)):
        most = "at most 1" if one else "below 1"
        raise ValueError(f"`{name}` must be above 0 and {most}. {received(**{name: value})}")


def _bits(value: float) -> int:
    """Returns the bits of a double as an integer, because the engine's settings are integers."""
    return int.from_bytes(struct.pack("<d", float(value)), "little")
