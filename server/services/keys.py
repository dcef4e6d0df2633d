"""API keys and tokens: who may send which requests.

`python -m server.keys NAME predict lookup` creates a key.

The file holds only SHA-256 digests of the keys. A key is 256 random bits, so its digest cannot be
reversed. The file is YAML or JSON::

    keys:
      - {name: shop, scopes: [predict, lookup], sha256: 9f86d081…}
"""

import dataclasses
import hashlib
import hmac
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import COMMAND
from ..errors import Code, ServingError
from .tokens import Tokens
from .watched_file import WatchedFile

SCOPES = ("predict", "lookup", "admin")


@dataclasses.dataclass(frozen=True)
class ApiKey:
    """The owner of a key, its digest, and its scopes."""

    name: str
    digest: bytes
    scopes: frozenset[str]


class KeyRing:
    """The API keys that a gateway accepts. Used from one event loop."""

    def __init__(
        self,
        path: Path | None,
        tokens: Tokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Reads a keys file, and reads it again when it changes.

        Args:
            path: The file; None if there is none.
            tokens: Checks tokens; None if tokens are not accepted.
            clock: Returns the time in seconds.

        Raises:
            StartError: The file cannot be read, or an entry is wrong.
        """
        broken = (
            f"The file of keys must hold entries as `{COMMAND}.keys` writes them. "
            f"Received: --keys-file={path}"
        )
        self._file = WatchedFile(path, _api_keys, broken, clock) if path is not None else None
        self._tokens = tokens

    def reload(self) -> None:
        """Reads the keys files again now. If a file is broken, its old keys stay."""
        if self._file is not None:
            self._file.look(now=True)
        if self._tokens is not None:
            self._tokens.look(now=True)

    def allows(self, scope: str) -> bool:
        """Returns whether any key has the scope, or a token could have it."""
        return self._tokens is not None or any(scope in key.scopes for key in self._known())

    def owner(self, key: str | None) -> ApiKey:
        """Returns the owner of a credential and its scopes.

        Args:
            key: The key or token that the client sent, or None.

        Raises:
            ServingError: UNAUTHENTICATED if the key is missing or unknown.
        """
        owner = self._owner(key) if key else None
        if owner is None:
            kinds = "An API key" if self._tokens is None else "An API key or a valid token"
            raise ServingError(
                Code.UNAUTHENTICATED,
                f"{kinds} is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
            )
        return owner

    def _owner(self, key: str) -> ApiKey | None:
        # An API key contains no dot; a token does.
        if self._tokens is not None and "." in key:
            owner = self._tokens.owner(key)
            return ApiKey(f"token of {owner[0]}", b"", owner[1]) if owner else None
        digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        found = None
        # Compare with every entry even after a match, so that the time reveals nothing about the
        # key.
        for candidate in self._known():
            if hmac.compare_digest(candidate.digest, digest):
                found = candidate
        return found

    def _known(self) -> tuple[ApiKey, ...]:
        if self._file is None:
            return ()
        self._file.look()
        return self._file.value


def key_of_headers(authorization: bytes | None, api_key: bytes | None) -> str | None:
    """Returns the key in a request's headers.

    Example:
        >>> key_of_headers(b"Bearer abc", None), key_of_headers(None, b"abc")
        ('abc', 'abc')
    """
    if api_key is not None:
        return api_key.decode("latin-1").strip()
    if authorization is not None:
        scheme, _, credentials = authorization.decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            return credentials.strip()
    return None


def _api_keys(content: bytes) -> tuple[ApiKey, ...]:
    import yaml

    keys = tuple(_api_key(entry) for entry in yaml.safe_load(content)["keys"])
    if len({key.name for key in keys}) < len(keys):
        raise ValueError("each key must have a different name")
    return keys


def _api_key(entry: Any) -> ApiKey:
    name, digest, scopes = entry["name"], bytes.fromhex(entry["sha256"]), entry["scopes"]
    if not isinstance(name, str) or not name or not isinstance(scopes, list):
        raise ValueError("a key needs a name, scopes and sha256")
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise ValueError(f"key {name}: no scope is called {unknown[0]}; there are {SCOPES}")
    if len(digest) != hashlib.sha256().digest_size:
        raise ValueError(f"key {name}: sha256 must be 64 hexadecimal digits")
    return ApiKey(name, digest, frozenset(scopes))
