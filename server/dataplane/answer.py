"""What a request to a model is answered with."""

import dataclasses
from collections.abc import Mapping

JSON = "application/json"


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        body: The JSON text, or bytes of another media type.
        version: The model version that gave it, if one did.
        media_type: What the body is.
        headers: More to tell beside the body.
    """

    body: bytes
    version: int | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
