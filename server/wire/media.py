"""The formats of a request and its answer."""

import functools
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

RAW = "application/octet-stream"
# The allowed parameters of a query.
PARAMETERS = frozenset({"int64", "table", "combiner", "missing"})


class Layout(NamedTuple):
    """Whether the request and the answer are bytes instead of JSON, and the query's parameters."""

    raw_request: bool = False
    raw_answer: bool = False
    query: Mapping[str, str] = {}


@functools.lru_cache(maxsize=512)
def layout_of(content_type: bytes, accept: bytes, query: bytes) -> Layout:
    """Returns the layout that headers and query choose.

    Only the content type `application/octet-stream` means bytes. Every other one means JSON,
    because TensorFlow Serving ignores the content type, and `curl -d` sends the type of a form. The
    answer is JSON unless `accept` names `application/octet-stream`.

    Example:
        >>> layout_of(b"application/octet-stream", b"", b"table=user")
        Layout(raw_request=True, raw_answer=False, query={'table': 'user'})
    """
    return Layout(
        _is_raw(content_type),
        any(map(_is_raw, accept.split(b","))),
        dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)),
    )


def _is_raw(text: bytes) -> bool:
    return text.split(b";", 1)[0].strip().lower() == RAW.encode()
