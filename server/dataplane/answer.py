"""The answer to a request to a model."""

import dataclasses
from collections.abc import Mapping

JSON = "application/json"


@dataclasses.dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        body: JSON text, or bytes of another media type.
        version: The model version that answered; None if no version did.
        media_type: The media type of the body.
        headers: Further headers of the answer.
    """

    body: bytes
    version: int | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
