"""Which form a request has, and which one its answer should have."""

import dataclasses
import enum
import functools
from collections.abc import Mapping
from urllib.parse import parse_qsl

from server.errors import invalid


class Media(enum.Enum):
    """Forms of requests and answers, by media type."""

    JSON = "application/json"
    RAW = "application/octet-stream"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The form of a request, the one wanted for the answer, and the query's parameters."""

    request: Media = Media.JSON
    answer: Media = Media.JSON
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def plain(self) -> bool:
        """Whether both are JSON."""
        return self.request is Media.JSON and self.answer is Media.JSON


PLAIN = Layout()

# The parameters that a query may have.
PARAMETERS = frozenset({"int64", "table", "combiner", "missing"})


@functools.lru_cache(maxsize=256)
def layout_of(content_type: bytes | None, accept: bytes | None, query: bytes) -> Layout:
    """Returns the layout that headers and query ask for.

    Any other content type than that of bytes means JSON: TensorFlow Serving never looks at it,
    and `curl -d` says it sends a form. Without that type in `accept` the answer is JSON.

    Example:
        >>> layout_of(b"application/octet-stream", None, b"table=user").request
        <Media.RAW: 'application/octet-stream'>
    """
    return Layout(
        _media(content_type or b""),
        Media.RAW
        if any(_media(part) is Media.RAW for part in (accept or b"").split(b","))
        else Media.JSON,
        dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)) if query else {},
    )


def one_of(query: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Returns a parameter of the query; the first of the choices if it is not there.

    Raises:
        ServingError: INVALID_ARGUMENT if it is none of them.
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
