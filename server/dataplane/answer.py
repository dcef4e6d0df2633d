"""What a request is answered with."""

import dataclasses

from server.tensors import Array

JSON = "application/json"

Headers = tuple[tuple[str, str], ...]


@dataclasses.dataclass(slots=True)
class Answer:
    """An answer.

    Attributes:
        body: The JSON text, or bytes of another media type; or the parts of them, each bytes or an
            array of rank 1 and type uint8.
        version: The model version that gave it, if one did.
        media_type: What the body is; empty if there is none.
        headers: More to tell beside the body.
        status: The HTTP status.
    """

    body: bytes | tuple[bytes | Array, ...]
    version: int | None = None
    media_type: str = JSON
    headers: Headers = ()
    status: int = 200
