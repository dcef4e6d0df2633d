"""API keys, and tokens beside them: who may ask for what.

`python -m server.keys NAME predict lookup` makes a key.

The file holds no key, only SHA-256 digests of them: keys are 256 random bits, so a digest
cannot be reversed. It is YAML or JSON::

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

from server.dataplane.tokens import Tokens
from server.dataplane.watched_file import WatchedFile
from server.errors import Code, ServingError

SCOPES = ("predict", "lookup", "admin")


class KeysError(Exception):
    """A file of keys that cannot be used; the message says why."""


@dataclasses.dataclass(frozen=True)
class ApiKey:
    """Whose key it is, its digest, and what it opens."""

    name: str
    digest: bytes
    scopes: frozenset[str]


class KeyRing:
    """The keys that a gateway knows. Used from one event loop."""

    def __init__(
        self, file: WatchedFile[tuple[ApiKey, ...]] | None, tokens: Tokens | None = None
    ) -> None:
        """Makes the ring.

        Args:
            file: The file of API keys; None if there are none.
            tokens: Tells of the tokens that open too, if any do.
        """
        self._file = file
        self._tokens = tokens

    @classmethod
    def load(
        cls,
        path: Path,
        tokens: Tokens | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> "KeyRing":
        """Reads a file of keys, and reads it again when it changes.

        Args:
            path: The file.
            tokens: As for the constructor.
            clock: Tells the time in seconds.

        Raises:
            KeysError: The file cannot be read, or an entry is wrong.
        """

        def refuse(reason: str) -> KeysError:
            return KeysError(
                "The file of keys must hold entries as `python -m server.keys` writes them. "
                f"Received: --keys-file={path}: {reason}"
            )

        return cls(WatchedFile(path, _api_keys, refuse, clock), tokens)

    def reload(self) -> None:
        """Reads the files of keys again now. A broken file keeps its old keys."""
        if self._file is not None:
            self._file.look(now=True)
        if self._tokens is not None:
            self._tokens.look(now=True)

    def allows(self, scope: str) -> bool:
        """Returns whether any key may open a scope."""
        return self._tokens is not None or any(scope in key.scopes for key in self._known())

    def owner(self, key: str | None) -> ApiKey:
        """Returns whose key it is, and what it opens.

        Args:
            key: The key or token that the client sent, if it sent one.

        Raises:
            ServingError: UNAUTHENTICATED without a known key.
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
        # No API key has a dot in it.
        if self._tokens is not None and "." in key:
            owner = self._tokens.owner(key)
            return ApiKey(f"token of {owner[0]}", b"", owner[1]) if owner else None
        digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        found = None
        # All of them, so that the time tells nothing.
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
        raise ValueError("each key must have a name of its own")
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
