"""The undecoded path of a request, which a framework's router never looks at."""

from starlette.types import Scope


def raw_path(scope: Scope) -> bytes:
    """Returns the path as the client sent it, without the query."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.split(b"?", 1)[0]
