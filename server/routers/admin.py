"""Everything under /admin, on its own port: changes that an operator makes at run time."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import orjson
from fastapi import APIRouter
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..engines.routed import RoutedEngine
from ..errors import Code, ServingError, invalid
from ..request import RECORD
from ..services.answer import Answer
from ..services.models import all_statuses, status_entry
from ..wire.paths import malformed
from .body import answered
from .responses import AnswerResponse, error_answer, serving_error_answer

_SAFE_NAME = re.compile(r"[\w.-]{1,128}")

router = APIRouter(prefix="/admin")


class _Label(msgspec.Struct, forbid_unknown_fields=True):
    version: int


class _Traffic(msgspec.Struct, forbid_unknown_fields=True):
    weights: dict[str, float]


_FORMS = {_Label: '{"version": 2}', _Traffic: '{"weights": {"1": 95, "2": 5}}'}


Act = Callable[..., Awaitable[Any]]


async def _answered(request: Request, act: Act) -> Response:
    """Answers an administrator with what `act` returns for engine, body and the path's names."""
    plane, record = request.app.state.plane, request.scope[RECORD]
    record.verb = "admin"
    if plane.keys is None:
        raise ServingError(
            Code.UNAUTHENTICATED, "The admin API needs --keys-file or --jwt-keys-file"
        )

    async def work(body: bytes) -> Answer:
        for name in request.path_params.values():
            if not _SAFE_NAME.fullmatch(name):
                raise invalid(
                    f"A name must be 1 to 128 letters, digits, _, . or -. Received: {name[:128]}"
                )
        return Answer(orjson.dumps(await act(plane.engine, body, **request.path_params)))

    return await answered(request, ("admin",), work)


def _route(method: str, path: str) -> Callable[[Act], Act]:
    """Registers what an administrator may do."""

    def register(act: Act) -> Act:
        async def endpoint(request: Request) -> Response:
            return await _answered(request, act)

        router.add_api_route(path, endpoint, methods=[method], name=path)
        return act

    return register


@_route("GET", "/routes")
async def routes(engine: RoutedEngine, _: bytes) -> dict[str, Any]:
    """Returns labels, traffic and upstreams."""
    return {**msgspec.to_builtins(engine.routes), "upstreams": dict(engine.upstreams())}


@_route("GET", "/models")
async def models(engine: RoutedEngine, _: bytes) -> dict[str, Any]:
    """Returns all models."""
    told = []
    async for name, statuses, _reason in all_statuses(engine):
        told.append(
            {
                "name": name,
                "model_version_status": list(map(status_entry, statuses)),
                "labels": engine.routes.labels.get(name, {}),
                "traffic": engine.routes.traffic.get(name, {}),
            }
        )
    return {"models": told}


@_route("POST", "/models/{model}:reload")
async def reload(engine: RoutedEngine, body: bytes, model: str) -> dict[str, Any]:
    """Looks for new versions now."""
    if model not in engine.model_names():
        raise ServingError(Code.NOT_FOUND, f"Could not find any versions of model {model}")
    await engine.reload()
    return await models(engine, body)


@_route("PUT", "/models/{model}/labels/{label}")
async def set_label(engine: RoutedEngine, body: bytes, model: str, label: str) -> dict[str, Any]:
    """Points a label to a serving version."""
    await engine.set_label(model, label, _decode(body, _Label).version)
    return await routes(engine, body)


@_route("DELETE", "/models/{model}/labels/{label}")
async def remove_label(engine: RoutedEngine, body: bytes, model: str, label: str) -> dict[str, Any]:
    """Removes a label."""
    await engine.set_label(model, label, None)
    return await routes(engine, body)


@_route("PUT", "/models/{model}/traffic")
async def set_traffic(engine: RoutedEngine, body: bytes, model: str) -> dict[str, Any]:
    """Splits the requests that name no version."""
    weights = {}
    for version, weight in _decode(body, _Traffic).weights.items():
        if not version.isdecimal() or len(version) > 19:
            raise invalid(f"weights must be by version number. Received: {version[:128]}")
        if not 0 <= weight < 1e9:
            raise invalid(f"A weight must be from 0 to 1e9. Received: {version}={weight}")
        weights[int(version)] = weight
    await engine.set_traffic(model, weights)
    return await routes(engine, body)


def _switch(path: str, switch: Callable[..., None], on: bool) -> None:
    async def act(engine: RoutedEngine, body: bytes, **names: str) -> dict[str, Any]:
        switch(engine, *names.values(), on)
        return await routes(engine, body)

    _route("POST", path)(act)


_switch("/upstreams/{upstream}:drain", RoutedEngine.set_drained, True)
_switch("/upstreams/{upstream}:enable", RoutedEngine.set_drained, False)
_switch("/gateway:drain", RoutedEngine.set_draining, True)
_switch("/gateway:enable", RoutedEngine.set_draining, False)


async def _nothing(*_: Any, **__: Any) -> None:
    pass


async def unknown(request: Request, error: Exception) -> Response:
    """Refuses an unknown path or method, in the words of the other ports.

    Only administrators learn which paths there are.
    """
    assert isinstance(error, HTTPException)
    record = request.scope[RECORD]
    try:
        await _answered(request, _nothing)
    except ServingError as refusal:
        return AnswerResponse(serving_error_answer(refusal))
    if error.status_code == 404:
        return AnswerResponse(serving_error_answer(malformed(record.method, record.path)))
    allowed = {
        method
        for route in router.routes
        if route.matches(request.scope)[0] is Match.PARTIAL
        for method in getattr(route, "methods", ())
    }
    text = f"Method not allowed: {request.method} {request.scope['path']}"
    return AnswerResponse(error_answer(405, text, (("allow", ", ".join(sorted(allowed))),)))


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"The body must be as {_FORMS[kind]}. Received: {error}") from None
