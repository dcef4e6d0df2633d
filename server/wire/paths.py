"""Parses request paths under /v1/ and /v2/.

The rules are TensorFlow Serving's: match the whole *undecoded* path, ignore letter case, then
percent-decode each segment. So a model name may contain any character, even `%2F`. A framework's
router decodes first and cannot be used.
"""

import dataclasses
import re
from urllib.parse import unquote_to_bytes

from ..errors import Code, ServingError, invalid

PREFIX = b"/v1/"

_MODEL = rb"/v1/models/([^/:]+)"
_CHOICE = rb"(?:/versions/([0-9]+)|/labels/([^/:]+))?"
_POST = re.compile(_MODEL + _CHOICE + rb":(classify|regress|predict|lookup)", re.IGNORECASE)
_GET = re.compile(rb"/v1/models(?:/([^/:]+))?" + _CHOICE + rb"(?:/(metadata))?", re.IGNORECASE)
_TABLES = re.compile(_MODEL + _CHOICE + rb"/(tables)(?:/([^/:]+))?", re.IGNORECASE)
_OPENAPI = re.compile(_MODEL + _CHOICE + rb"/(openapi\.json)", re.IGNORECASE)
_V2 = re.compile(rb"/v2/models/([^/:]+)" + _CHOICE + rb"(?:/(ready|infer|config))?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_VERBS = frozenset({"classify", "regress", "predict", "lookup"})
_MAX_VERSION = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Route:
    """A parsed path.

    Attributes:
        verb: `predict`, `classify`, `regress`, `lookup`; or `status`, `metadata`, `tables`,
            `openapi`; under /v2/ `infer`, `ready`, `config` or `describe`.
        model: The model's name, decoded.
        version: The requested version, or None.
        label: The requested version label, or None.
        table: The requested table, for `tables`.
    """

    verb: str
    model: str
    version: int | None = None
    label: str | None = None
    table: str | None = None


def parse_path(method: str, path: bytes) -> Route:
    """Parses an undecoded request path.

    Args:
        method: The HTTP method, upper case.
        path: The path as received, without the query.

    Raises:
        ServingError: INVALID_ARGUMENT, with TensorFlow Serving's message, for an unknown path, a
            version beyond int64, or a name that is not printable UTF-8.
    """
    if method == "POST" and (match := _POST.fullmatch(path)):
        verb = match[4].decode()
        if verb not in _VERBS:
            # The match ignores letter case but the verb does not, as in TensorFlow Serving.
            raise malformed(method, path)
        return _route(method, path, verb, match)
    if method == "GET":
        if match := _GET.fullmatch(path):
            if match[1] is None:
                raise invalid("Missing model name in request.")
            return _route(method, path, "metadata" if match[4] else "status", match)
        if match := _TABLES.fullmatch(path):
            return _route(method, path, "tables", match, table=match[5])
        if match := _OPENAPI.fullmatch(path):
            return _route(method, path, "openapi", match)
    raise malformed(method, path)


def parse_v2_path(method: str, path: bytes) -> Route:
    """Parses an undecoded path of the Open Inference Protocol; as `parse_path`.

    Raises:
        ServingError: As `parse_path`, but NOT_FOUND for an unknown path.

    Example:
        >>> parse_v2_path("POST", b"/v2/models/ranker/versions/3/infer").verb
        'infer'
    """
    match = _V2.fullmatch(path)
    if match and (method == "POST") == (match[4] == b"infer") and method in ("GET", "POST"):
        return _route(method, path, (match[4] or b"describe").decode(), match)
    raise ServingError(Code.NOT_FOUND, f"Not found: {method} {path.decode('latin-1')}")


def malformed(method: str, path: bytes) -> ServingError:
    """Returns the error for an unknown path."""
    return invalid(f"Malformed request: {method} {path.decode('latin-1')}")


def _route(
    method: str, path: bytes, verb: str, match: re.Match[bytes], table: bytes | None = None
) -> Route:
    def decoded(segment: bytes | None) -> str | None:
        if segment is None:
            return None
        try:
            text = unquote_to_bytes(segment).decode()
        except UnicodeDecodeError:
            raise malformed(method, path) from None
        if _CONTROL.search(text):
            raise malformed(method, path)
        return text

    return Route(
        verb=verb,
        model=decoded(match[1]) or "",
        version=_version(match[2]),
        label=decoded(match[3]),
        table=decoded(table),
    )


def _version(digits: bytes | None) -> int | None:
    if digits is None:
        return None
    # Python refuses to convert thousands of digits: check the length first.
    if len(digits.lstrip(b"0")) <= 19:
        version = int(digits)
        if version <= _MAX_VERSION:
            return version
    raise invalid(f"Failed to convert version: {digits.decode()} to numeric.")
