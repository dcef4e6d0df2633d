"""API keys and tokens: who may send which requests.

`python -m server.keys NAME predict lookup` creates a key. The file holds only SHA-256 digests of
the keys. A key is 256 random bits, so its digest cannot be reversed. The file is YAML or JSON::

    keys:
      - {name: shop, scopes: [predict, lookup], sha256: 9f86d081…}

A token is a JSON Web Token: signed by a known key, for this gateway, not expired. The public keys
come from a file (a JSON Web Key Set), never from an address in a token. A token needs `exp`, `sub`,
the issuer and the audience; its `scope` (or `scp`) lists its scopes. Shared secrets are refused:
anybody who can check such a token can create one.

Both files are read again when they change.
"""

import argparse
import functools
import hashlib
import hmac
import importlib
import json
import logging
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from . import COMMAND
from .errors import Code, ServingError, StartError
from .settings import Settings

T = TypeVar("T")

Scope = Literal["predict", "lookup", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)
_LOG = logging.getLogger("server")
_LOOK_SECONDS = 1.0
_LEEWAY_SECONDS = 10
# Verified tokens that are remembered.
_REMEMBERED = 4096
_PRIVATE = frozenset({"d", "k", "p", "q"})


def keys_of(settings: Settings) -> "KeyRing | None":
    """Returns the accepted keys and tokens; None if no key is needed.

    Raises:
        StartError: Settings of tokens are missing. Errors of the files pass through.
    """
    tokens = None
    if settings.jwt_keys_file is not None:
        if not settings.jwt_issuer or not settings.jwt_audience:
            raise StartError("Tokens need --jwt-issuer and --jwt-audience beside --jwt-keys-file.")
        tokens = Tokens(settings.jwt_keys_file, settings.jwt_issuer, settings.jwt_audience)
    elif settings.jwt_issuer or settings.jwt_audience:
        raise StartError(
            "Tokens need --jwt-keys-file beside --jwt-issuer and --jwt-audience. Received: "
            f"--jwt-issuer={settings.jwt_issuer} --jwt-audience={settings.jwt_audience}"
        )
    if settings.keys_file is None and tokens is None:
        return None
    return KeyRing(settings.keys_file, tokens)


class Owner(NamedTuple):
    """The owner of a key or token, and its scopes."""

    name: str
    scopes: frozenset[str]


class KeyRing:
    """The API keys and tokens that a gateway accepts. Used from one event loop."""

    def __init__(
        self,
        path: Path | None,
        tokens: "Tokens | None" = None,
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
        rule = (
            f"The file of keys must hold entries as `{COMMAND}.keys` writes them. "
            f"Received: --keys-file={path}"
        )
        self._file = None if path is None else WatchedFile(path, _api_keys, "keys", rule, clock)
        self._tokens = tokens

    def reload(self) -> None:
        """Reads the keys files again now. If a file is broken, its old keys stay."""
        if self._file is not None:
            self._file.look(now=True)
        if self._tokens is not None:
            self._tokens.look(now=True)

    def allows(self, scope: str) -> bool:
        """Returns whether any key has the scope, or a token could have it."""
        return self._tokens is not None or any(scope in known.scopes for _, known in self._known())

    def owner(self, key: str | None) -> Owner:
        """Returns the owner of a credential and its scopes.

        Raises:
            ServingError: UNAUTHENTICATED if the key is missing or unknown.
        """
        found = None
        # An API key contains no dot; a token does.
        if key and self._tokens is not None and "." in key:
            if told := self._tokens.owner(key):
                found = Owner(f"token of {told.name}", told.scopes)
        elif key:
            digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
            # Compare with every entry even after a match, so that the time reveals nothing about
            # the key.
            for candidate, known in self._known():
                if hmac.compare_digest(candidate, digest):
                    found = known
        if found is None:
            kinds = "An API key" if self._tokens is None else "An API key or a valid token"
            raise ServingError(
                Code.UNAUTHENTICATED,
                f"{kinds} is needed: send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`.",
            )
        return found

    def _known(self) -> "list[tuple[bytes, Owner]]":
        if self._file is None:
            return []
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


class _Entry(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    scopes: list[Scope]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{64}$")]


def _api_keys(content: bytes) -> list[tuple[bytes, Owner]]:
    """Returns the digest and the owner of each key in a file."""
    import yaml

    try:
        entries = msgspec.convert(yaml.safe_load(content)["keys"], list[_Entry])
    except msgspec.ValidationError as error:
        scopes = ", ".join(SCOPES)
        raise ValueError(f"{error}; an entry has name, sha256 and scopes ({scopes})") from None
    if len({entry.name for entry in entries}) < len(entries):
        raise ValueError("each key must have a different name")
    return [(bytes.fromhex(e.sha256), Owner(e.name, frozenset(e.scopes))) for e in entries]


class Tokens:
    """Checks tokens. Used from one event loop."""

    def __init__(
        self, path: Path, issuer: str, audience: str, clock: Callable[[], float] = time.time
    ) -> None:
        """Reads the public keys.

        Args:
            path: The key set's file.
            issuer: The required issuer (`iss`).
            audience: The required audience (`aud`).
            clock: Returns the time in seconds since 1970.

        Raises:
            StartError: PyJWT is missing, or the file is no set of public keys.
        """
        try:
            self._jwt = importlib.import_module("jwt")
            importlib.import_module("cryptography")
        except ImportError as error:
            raise StartError(
                f"--jwt-keys-file needs: pip install 'de-core-gateway[jwt]'. Received: {error}"
            ) from None
        self._issuer, self._audience = issuer, audience
        self._clock = clock
        # It keeps no exceptions: a token that is refused now may be valid later.
        self._verified = functools.lru_cache(_REMEMBERED)(self._verify)
        rule = (
            f"The file must be a JSON Web Key Set of public keys. Received: --jwt-keys-file={path}"
        )
        self._file = WatchedFile(path, self._parse, "keys", rule, clock)

    def owner(self, token: str) -> Owner | None:
        """Returns the subject of a token and its scopes; None if the token is invalid."""
        self.look()
        try:
            expires, owner = self._verified(token)
        except Exception:
            # Claims of the wrong type and deep JSON raise more than PyJWT's own errors.
            return None
        return owner if self._clock() < expires + _LEEWAY_SECONDS else None

    def _verify(self, token: str) -> tuple[float, Owner]:
        reason: Exception = ValueError("no key has the token's `kid`")
        wanted = self._jwt.get_unverified_header(token).get("kid")
        for key in self._file.value:
            if wanted is not None and key.key_id != wanted:
                continue
            try:
                claims = self._jwt.decode(
                    token,
                    key,
                    # The algorithm comes from the key. A token's own header could name a weaker
                    # one.
                    algorithms=[key.algorithm_name],
                    issuer=self._issuer,
                    audience=self._audience,
                    leeway=_LEEWAY_SECONDS,
                    options={"require": ["exp", "sub", "iss", "aud"]},
                )
                scopes = claims.get("scope", claims.get("scp", ""))
                names = scopes.split() if isinstance(scopes, str) else scopes
                owner = Owner(
                    str(claims["sub"])[:128], frozenset(msgspec.convert(names, list[str]))
                )
                return float(claims["exp"]), owner
            except Exception as error:
                reason = error
        raise reason

    def look(self, *, now: bool = False) -> None:
        """Reads the file of keys again; see `WatchedFile.look`."""
        if self._file.look(now=now):
            self._verified.cache_clear()

    def _parse(self, content: bytes) -> list[Any]:
        parsed = json.loads(content)
        if any(_PRIVATE & entry.keys() for entry in parsed["keys"]):
            raise ValueError("it holds private keys or shared secrets")
        return list(self._jwt.PyJWKSet.from_dict(parsed).keys)


class WatchedFile(Generic[T]):
    """The parsed content of a file. Used from one event loop."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        what: str,
        rule: str,
        clock: Callable[[], float] = time.monotonic,
        default: T | None = None,
    ) -> None:
        """Reads the file.

        Args:
            path: The file.
            parse: Parses the file's content. Any exception means that the file is broken.
            what: Names the content in the log, such as `keys`.
            rule: The beginning of the error for a broken file; the reason follows.
            clock: Returns the time in seconds.
            default: The value while there is no file; None if the file must exist.

        Raises:
            StartError: The file is broken.
        """
        self.path, self._parse, self._what, self._rule = path, parse, what, rule
        self._clock = clock
        self._looked = clock()
        self._content: bytes | None = None
        self._problem = ""
        self._is_optional = default is not None
        try:
            if default is not None and not path.exists():
                self.value = default
            else:
                self._content = path.read_bytes()
                self.value = parse(self._content)
        except Exception as error:
            raise StartError(self._text(error)) from None

    def look(self, *, now: bool = False) -> bool:
        """Reads the file again if it changed. Checks at most once a second.

        A broken file keeps the old value and logs one sentence.

        Args:
            now: Check without waiting for the second to pass.

        Returns:
            True if there is a new value.
        """
        time_now = self._clock()
        # `abs`, because the system's clock may be set back to long before the last check.
        if not now and abs(time_now - self._looked) < _LOOK_SECONDS:
            return False
        self._looked = time_now
        try:
            content = self.path.read_bytes()
            self._problem = ""  # an outage that comes again is logged again
            if content == self._content:
                return False
            self._content = content
            self.value = self._parse(content)
        except Exception as error:
            if self._is_optional and isinstance(error, FileNotFoundError):
                return False
            if self._problem != (problem := self._text(error)):
                _LOG.error("the %s stay as they were: %s", self._what, problem)
                self._problem = problem
            return False
        return True

    def _text(self, error: Exception) -> str:
        return f"{self._rule}: {' '.join(str(error).split())[:200]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Creates a key and prints it with its entry for the keys file; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"{COMMAND}.keys",
        description="Makes an API key. It is shown once; the line goes into --keys-file, "
        "under `keys:`.",
    )
    parser.add_argument("name", help="whose key it is")
    parser.add_argument("scope", nargs="+", choices=SCOPES, help="what it opens")
    options = parser.parse_args(arguments)
    key = secrets.token_urlsafe(32)
    digest = hashlib.sha256(key.encode()).hexdigest()
    scopes = ", ".join(options.scope)
    print(f"key: {key}")
    name = json.dumps(options.name, ensure_ascii=False)  # YAML reads 42 and no as other types
    print(f"  - {{name: {name}, scopes: [{scopes}], sha256: {digest!r}}}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
