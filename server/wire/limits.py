"""How much one request may ask for."""

import dataclasses

from server.errors import invalid
from server.tensors import Tensors

_OBJECTS_PER_EXAMPLE = 4


@dataclasses.dataclass(frozen=True)
class Limits:
    """Upper bounds that hold for every request, checked before memory is spent.

    Attributes:
        max_rank: Dimensions of one tensor.
        max_elements: Values in one request.
        max_ids: Ids in one lookup, or examples in one request.
        max_bytes: Bytes of one request, whatever it was compressed to.
    """

    max_rank: int = 8
    max_elements: int = 4_000_000
    max_ids: int = 100_000
    max_bytes: int = 64 << 20

    def check_rank(self, rank: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) when a tensor is nested too deeply."""
        if rank > self.max_rank:
            raise invalid(
                f"A tensor must have at most {self.max_rank} dimensions. Received: rank={rank}"
            )

    def check_elements(self, body: bytes) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) when a body holds too many values.

        Commas are counted: they bound the number of values and cost one pass over memory,
        where counting values would first build them.
        """
        if len(body) > self.max_elements and body.count(b",") >= self.max_elements:
            raise invalid(
                f"A request must hold at most {self.max_elements} values: send it in parts."
            )

    def check_tensors(self, tensors: Tensors) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) when tensors hold too many values, or ranks."""
        for array in tensors.values():
            self.check_rank(array.ndim)
        self.check_count(sum(array.size for array in tensors.values()))

    def check_count(self, elements: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) for more values than a request may hold."""
        if elements > self.max_elements:
            raise invalid(
                f"A request must hold at most {self.max_elements} values: send it in parts. "
                f"Received: {elements} values"
            )

    def check_examples(self, count: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) when a request holds too many examples."""
        if count > self.max_ids:
            raise invalid(
                f"A request must hold at most {self.max_ids} examples: send it in parts. "
                f"Received: {count} examples"
            )

    def check_objects(self, body: bytes) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) when a body holds too many objects.

        Braces are counted before any object is built. An example is an object, and so is each of
        its values in base64: few objects per example are allowed for.
        """
        if body.count(b"{") > _OBJECTS_PER_EXAMPLE * self.max_ids:
            raise invalid(f"A request must hold at most {self.max_ids} examples: send it in parts.")

    def check_ids(self, count: int) -> None:
        """Raises `ServingError` (INVALID_ARGUMENT) when a lookup names too many ids."""
        if count > self.max_ids:
            raise invalid(
                f"A lookup must name at most {self.max_ids} ids: send it in parts. "
                f"Received: {count} ids"
            )
