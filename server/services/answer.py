"""The answer to a request."""

import dataclasses

from ..tensors import Array

JSON = "application/json"

Headers = tuple[tuple[str, str], ...]


@dataclasses.dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        body: JSON text, or bytes of another media type. A tuple holds the parts of the body, which
            are sent one after the other; each part is bytes or a uint8 array of rank 1.
        version: The model version that answered; None if no version did.
        media_type: The media type of the body; empty without a body.
        headers: Further headers of the answer.
        status: The HTTP status.
    """

    body: bytes | tuple[bytes | Array, ...]
    version: int | None = None
    media_type: str = JSON
    headers: Headers = ()
    status: int = 200
