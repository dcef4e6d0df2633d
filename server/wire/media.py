"""The formats of a request and its answer."""

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from ..errors import invalid

RAW = "application/octet-stream"


class Media(enum.Enum):
    """Formats of requests and answers, by media type."""

    JSON = "application/json"
    RAW = RAW


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The request's format, the answer's format, and the query's parameters."""

    request: Media = Media.JSON
    answer: Media = Media.JSON
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """True if both formats are JSON."""
        return self.request is Media.JSON and self.answer is Media.JSON


PLAIN = Layout()

# The allowed parameters of a query.
PARAMETERS = frozenset({"int64", "table", "combiner", "missing"})


def layout_of(content_type: bytes, accept: bytes, query: bytes) -> Layout:
    """Returns the layout that headers and query choose.

    Only the content type `application/octet-stream` means bytes. Every other one means JSON,
    because TensorFlow Serving ignores the content type, and `curl -d` sends the type of a form. The
    answer is JSON unless `accept` names `application/octet-stream`.

    Example:
        >>> layout_of(b"application/octet-stream", b"", b"table=user").request
        <Media.RAW: 'application/octet-stream'>
    """
    return Layout(
        _media(content_type),
        Media.RAW if any(_media(part) is Media.RAW for part in accept.split(b",")) else Media.JSON,
        dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {},
    )


def one_of(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> Any:
    """Returns a parameter of the query, by default the first choice.

    Raises:
        ServingError: INVALID_ARGUMENT if the value is none of the choices.
    """
    value = query.get(name, choices[0])
    if value not in choices:
        raise invalid(
            f"The parameter {name} must be one of {', '.join(choices)}. Received: {value[:128]}"
        )
    return value


def _media(text: bytes) -> Media:
    name = text.split(b";", 1)[0].strip().lower()
    return Media.RAW if name == Media.RAW.value.encode() else Media.JSON
