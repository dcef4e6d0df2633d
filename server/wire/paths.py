"""Parses request paths under /v1/ and /v2/, and the headers and query that choose formats.

The rules are TensorFlow Serving's: match the whole *undecoded* path, ignore letter case, then
percent-decode each segment. So a model name may contain any character, even `%2F`. A framework's
router decodes first and cannot be used.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes

from ..errors import ServingError, invalid
from ..request import ModelSpec

PREFIX = b"/v1/"
RAW = "application/octet-stream"
# A media type of the header Accept, and its weight.
_ACCEPTED = re.compile(rb"\s*([^\s;,]+)[^,]*?(?:;\s*q=([01](?:\.\d*)?))?\s*(?:,|$)")
# The allowed parameters of a query, by verb.
PARAMETERS = {b"predict": {"int64"}, b"lookup": {"table", "combiner", "missing"}}

_MODEL = rb"/models/(?P<model>[^/:]+)"
_CHOICE = rb"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_V1 = {
    method: [re.compile(rb"/v1" + pattern, re.IGNORECASE) for pattern in patterns]
    for method, patterns in {
        "POST": [_MODEL + _CHOICE + rb":(?P<verb>classify|regress|predict|lookup)"],
        "GET": [
            rb"/models(?:/(?P<model>[^/:]+))?" + _CHOICE + rb"(?:/(?P<verb>metadata))?",
            _MODEL + _CHOICE + rb"/(?P<verb>tables)(?:/(?P<table>[^/:]+))?",
            _MODEL + _CHOICE + rb"/(?P<verb>openapi)\.json",
        ],
    }.items()
}
_V2 = re.compile(rb"/v2" + _MODEL + _CHOICE + rb"(?:/(?P<verb>ready|infer|config))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_MAX_VERSION = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Route:
    """A parsed path.

    Attributes:
        verb: `predict`, `classify`, `regress`, `lookup`; or `status`, `metadata`, `tables`,
            `openapi`; under /v2/ `infer`, `ready`, `config` or `describe`.
        parameters: The decoded parts of the path: `model`, and `version`, `label` and `table` if
            the path has them.
    """

    verb: str
    parameters: Mapping[str, Any]

    @functools.cached_property
    def form(self) -> tuple[str, ...]:
        """The verb and the names of the parameters. Each route of the application has its own."""
        return (self.verb, *self.parameters)

    @functools.cached_property
    def spec(self) -> ModelSpec:
        """The model."""
        get = self.parameters.get
        return ModelSpec(self.parameters["model"], get("version"), get("label"))


def parse_path(method: str, path: bytes) -> Route:
    """Parses an undecoded request path.

    Args:
        method: The HTTP method, upper case.
        path: The path as received, without the query.

    Raises:
        ServingError: INVALID_ARGUMENT, with TensorFlow Serving's message, for an unknown path, a
            version beyond int64, or a name that is not printable UTF-8.
    """
    for pattern in _V1.get(method, ()):
        if match := pattern.fullmatch(path):
            verb = (match["verb"] or b"status").decode()
            if method == "POST" and verb != verb.lower():
                # The match ignores letter case but the verb does not, as in TensorFlow Serving.
                break
            if match["model"] is None:
                raise invalid("Missing model name in request.")
            return _route(method, path, verb.lower(), match)
    raise malformed(method, path)


def parse_v2_path(path: bytes) -> Route | None:
    """Parses an undecoded path of the Open Inference Protocol as `parse_path`; None if unknown.

    Example:
        >>> parse_v2_path(b"/v2/models/ranker/versions/3/infer").verb
        'infer'
    """
    if (match := _V2.fullmatch(path)) is None:
        return None
    verb = (match["verb"] or b"describe").decode()
    return _route("POST" if verb == "infer" else "GET", path, verb, match)


def malformed(method: str, path: bytes) -> ServingError:
    """Returns the error for an unknown path."""
    return invalid(f"Malformed request: {method} {path.decode('latin-1')}")


def _route(method: str, path: bytes, verb: str, match: re.Match[bytes]) -> Route:
    parameters: dict[str, Any] = {}
    for name, value in match.groupdict().items():
        if name != "verb" and value is not None:
            try:
                parameters[name] = unquote_to_bytes(value).decode()
            except UnicodeDecodeError:
                raise malformed(method, path) from None
    if any(map(_CONTROL.search, parameters.values())):
        raise malformed(method, path)
    if digits := parameters.get("version"):
        # Python refuses to convert thousands of digits: check the length first.
        significant = digits.lstrip("0") or "0"
        if len(significant) > 19 or int(significant) > _MAX_VERSION:
            raise invalid(f"Failed to convert version: {digits} to numeric.")
        parameters["version"] = int(significant)
    return Route(verb, parameters)


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
    answer is JSON unless `accept` names `application/octet-stream`, with at least the weight of
    `application/json`.

    Example:
        >>> layout_of(b"application/octet-stream", b"", b"table=user")
        Layout(raw_request=True, raw_answer=False, query={'table': 'user'})
    """
    weights = {media: float(q or 1) for media, q in _ACCEPTED.findall(accept.lower())}
    return Layout(
        content_type.split(b";", 1)[0].strip().lower() == RAW.encode(),
        0 < weights.get(RAW.encode(), 0) >= weights.get(b"application/json", 0),
        dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)),
    )
