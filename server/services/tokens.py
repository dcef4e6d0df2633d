"""JSON Web Tokens as credentials: signed by a known key, for this gateway, not expired.

The public keys come from a file (a JSON Web Key Set), never from an address in a token. The file is
read again when it changes, so keys can be rotated. A token needs `exp`, `sub`, the issuer and the
audience; its `scope` (or `scp`) lists its scopes. Shared secrets are refused: anybody who can check
such a token can create one.
"""

import functools
import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import StartError
from .watched_file import WatchedFile

_LEEWAY_SECONDS = 10
_REMEMBERED = 4096
_PRIVATE = frozenset({"d", "k", "p", "q"})


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
        # PyJWT raises these for an invalid token. The built-in ones come from claims of the wrong
        # type and from JSON that is nested too deeply.
        self._errors = (
            self._jwt.PyJWTError,
            ValueError,
            TypeError,
            OverflowError,
            RecursionError,
        )
        self._issuer, self._audience = issuer, audience
        self._clock = clock
        # It keeps no exceptions: a token that is refused now may be valid later.
        self._verified = functools.lru_cache(_REMEMBERED)(self._verify)

        broken = (
            f"The file must be a JSON Web Key Set of public keys. Received: --jwt-keys-file={path}"
        )
        self._file = WatchedFile(path, self._parse, broken, clock)

    def owner(self, token: str) -> tuple[str, frozenset[str]] | None:
        """Returns the subject of a token and its scopes; None if the token is invalid."""
        self.look()
        try:
            expires, subject, scopes = self._verified(token)
        except self._errors:
            return None
        return (subject, scopes) if self._clock() < expires + _LEEWAY_SECONDS else None

    def _verify(self, token: str) -> tuple[float, str, frozenset[str]]:
        jwt = self._jwt
        wanted = jwt.get_unverified_header(token).get("kid")
        for key in self._file.value:
            if wanted is not None and key.key_id != wanted:
                continue
            try:
                claims = jwt.decode(
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
                return float(claims["exp"]), str(claims["sub"])[:128], _scopes(claims)
            except self._errors:
                continue
        raise ValueError("no key accepts the token")

    def look(self, *, now: bool = False) -> None:
        """Reads the file of keys again; see `WatchedFile.look`."""
        if self._file.look(now=now):
            self._verified.cache_clear()

    def _parse(self, content: bytes) -> list[Any]:
        parsed = json.loads(content)
        if any(_PRIVATE & entry.keys() for entry in parsed["keys"]):
            raise ValueError("it holds private keys or shared secrets")
        return list(self._jwt.PyJWKSet.from_dict(parsed).keys)


def _scopes(claims: dict[str, Any]) -> frozenset[str]:
    given = claims.get("scope", claims.get("scp", ""))
    names = given.split() if isinstance(given, str) else given
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("scopes must be strings")
    return frozenset(names)
