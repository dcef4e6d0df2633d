"""Limits on one request."""

import dataclasses

from ..errors import ServingError, invalid
from ..tensors import Tensors

_OBJECTS_PER_EXAMPLE = 4


@dataclasses.dataclass(frozen=True)
class Limits:
    """Upper limits for every request, checked before memory is used.

    Attributes:
        max_rank: Dimensions of one tensor.
        max_elements: Values in one request.
        max_ids: Ids in one lookup, or examples in one request.
        max_bytes: Bytes of one request after decompression.
    """

    max_rank: int = 8
    max_elements: int = 4_000_000
    max_ids: int = 100_000
    max_bytes: int = 64 << 20

    def check_rank(self, rank: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a tensor is nested too deeply."""
        if rank > self.max_rank:
            raise invalid(
                f"A tensor must have at most {self.max_rank} dimensions. Received: rank={rank}"
            )

    def check_elements(self, body: bytes) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a body holds too many values.

        Counts commas instead of values, because values can only be counted after they are created.
        A body with n commas holds at most n + 1 values.
        """
        if len(body) > self.max_elements and body.count(b",") >= self.max_elements:
            raise _too_many("request must hold", self.max_elements, "values")

    def check_tensors(self, tensors: Tensors) -> int:
        """Counts the values in tensors.

        Raises:
            ServingError: INVALID_ARGUMENT for too many values or dimensions.
        """
        values = 0
        for array in tensors.values():
            if array.ndim > self.max_rank:
                self.check_rank(array.ndim)
            values += array.size
        if values > self.max_elements:
            self.check_count(values)
        return values

    def check_count(self, elements: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a request has more values than the limit."""
        if elements > self.max_elements:
            raise _too_many("request must hold", self.max_elements, "values", elements)

    def check_examples(self, count: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a request holds too many examples."""
        if count > self.max_ids:
            raise _too_many("request must hold", self.max_ids, "examples", count)

    def check_objects(self, body: bytes) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a body holds too many objects.

        Counts opening braces, before any object is created. An example is an object, and so is each
        base64 value in it. So the limit allows a few objects per example.
        """
        if body.count(b"{") > _OBJECTS_PER_EXAMPLE * self.max_ids:
            raise _too_many("request must hold", self.max_ids, "examples")

    def check_ids(self, count: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) if a lookup has too many ids."""
        if count > self.max_ids:
            raise _too_many("lookup must name", self.max_ids, "ids", count)


def _too_many(holder: str, most: int, what: str, count: int | None = None) -> ServingError:
    received = "" if count is None else f" Received: {count} {what}"
    return invalid(f"A {holder} at most {most} {what}: send it in parts.{received}")
