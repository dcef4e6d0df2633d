"""Everything under /admin, on its own port: changes that an operator makes at run time."""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import orjson

from ...dataplane.answer import Answer
from ...dataplane.keys import KeyRing
from ...dataplane.models import all_statuses
from ...engines.routed import RoutedEngine
from ...errors import Code, ServingError, invalid
from ...request import Request
from ...wire.paths import malformed
from ...wire.status import status_entry
from .front import Ask
from .responses import RawHeaders

_NAME = r"([^/:]+)"
_PATHS = [
    (method, re.compile(pattern.replace("NAME", _NAME).encode()), action)
    for method, pattern, action in (
        ("GET", "/admin/models", "models"),
        ("GET", "/admin/routes", "routes"),
        ("PUT", "/admin/models/NAME/labels/NAME", "label"),
        ("DELETE", "/admin/models/NAME/labels/NAME", "unlabel"),
        ("PUT", "/admin/models/NAME/traffic", "traffic"),
        ("POST", "/admin/models/NAME:reload", "reload"),
        ("POST", "/admin/upstreams/NAME:drain", "drain_upstream"),
        ("POST", "/admin/upstreams/NAME:enable", "enable_upstream"),
        ("POST", "/admin/gateway:drain", "drain"),
        ("POST", "/admin/gateway:enable", "enable"),
    )
]
_SAFE_NAME = re.compile(r"[\w.-]{1,128}")


class _Label(msgspec.Struct, forbid_unknown_fields=True):
    version: int


class _Traffic(msgspec.Struct, forbid_unknown_fields=True):
    weights: dict[str, float]


_FORMS = {_Label: '{"version": 2}', _Traffic: '{"weights": {"1": 95, "2": 5}}'}


class Admin:
    """The admin API. Every request needs a key with the scope `admin`."""

    def __init__(self, engine: RoutedEngine, keys: KeyRing | None) -> None:
        """Creates the API.

        Args:
            engine: The engine to administer.
            keys: The keys. Without keys it refuses everything.
        """
        self._engine = engine
        self._keys = keys
        #: Headers of every answer.
        self.headers: RawHeaders = []

    def read(self, request: Request) -> None:
        """Reads nothing: few requests repeat."""

    async def respond(self, request: Request, asked: None, ask: Ask) -> Answer:  # noqa: ARG002
        """Answers one request."""
        request.verb = "admin"
        if self._keys is None:
            raise ServingError(
                Code.UNAUTHENTICATED, "The admin API needs --keys-file or --jwt-keys-file"
            )

        async def work(body: bytes) -> bytes:
            names, action = self._find(request.method, request.path)
            return orjson.dumps(await action(*names, body))

        return Answer(await ask(("admin",), work))

    def _find(self, wanted: str, path: bytes) -> tuple[list[str], Callable[..., Awaitable[Any]]]:
        for method, pattern, action in _PATHS:
            match = pattern.fullmatch(path)
            if match and method == wanted:
                return [_name(group) for group in match.groups()], getattr(self, f"_{action}")
        raise malformed(wanted, path)

    async def _models(self, _: bytes) -> dict[str, Any]:
        models = []
        async for name, statuses, _reason in all_statuses(self._engine):
            models.append(
                {
                    "name": name,
                    "model_version_status": [
                        status_entry(s.version, s.state.value, s.code, s.message) for s in statuses
                    ],
                    "labels": self._engine.routes.labels.get(name, {}),
                    "traffic": self._engine.routes.traffic.get(name, {}),
                }
            )
        return {"models": models}

    async def _routes(self, _: bytes) -> dict[str, Any]:
        return {
            **msgspec.to_builtins(self._engine.routes),
            "upstreams": dict(self._engine.upstreams()),
        }

    async def _label(self, model: str, label: str, body: bytes) -> dict[str, Any]:
        version = _decode(body, _Label).version
        await self._engine.set_label(model, label, version)
        return await self._routes(body)

    async def _unlabel(self, model: str, label: str, body: bytes) -> dict[str, Any]:
        await self._engine.set_label(model, label, None)
        return await self._routes(body)

    async def _traffic(self, model: str, body: bytes) -> dict[str, Any]:
        weights = {}
        for version, weight in _decode(body, _Traffic).weights.items():
            if not version.isdecimal() or len(version) > 19:
                raise invalid(f"weights must be by version number. Received: {version[:128]}")
            if not 0 <= weight < 1e9:
                raise invalid(f"A weight must be from 0 to 1e9. Received: {version}={weight}")
            weights[int(version)] = weight
        await self._engine.set_traffic(model, weights)
        return await self._routes(body)

    async def _reload(self, model: str, body: bytes) -> dict[str, Any]:
        if model not in self._engine.model_names():
            raise ServingError(Code.NOT_FOUND, f"Could not find any versions of model {model}")
        await self._engine.reload()
        return await self._models(body)

    async def _drain_upstream(self, upstream: str, body: bytes) -> dict[str, Any]:
        self._engine.set_drained(upstream, True)
        return await self._routes(body)

    async def _enable_upstream(self, upstream: str, body: bytes) -> dict[str, Any]:
        self._engine.set_drained(upstream, False)
        return await self._routes(body)

    async def _drain(self, body: bytes) -> dict[str, Any]:
        self._engine.set_draining(True)
        return await self._routes(body)

    async def _enable(self, body: bytes) -> dict[str, Any]:
        self._engine.set_draining(False)
        return await self._routes(body)


def _name(segment: bytes) -> str:
    name = unquote_to_bytes(segment).decode("utf-8", "replace")
    if not _SAFE_NAME.fullmatch(name):
        raise invalid(f"A name must be 1 to 128 letters, digits, _, . or -. Received: {name[:128]}")
    return name


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body must be as {_FORMS[kind]}. Received: {error}") from None
