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

from ..dataplane.answer import Answer
from ..dataplane.models import all_statuses, status_entry
from ..engines.routed import RoutedEngine
from ..errors import Code, ServingError, invalid
from ..request import RECORD
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


async def _answered(
    request: Request, act: Callable[[RoutedEngine, bytes], Awaitable[Any]]
) -> Response:
    """Answers an administrator with what `act` returns."""
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
        return Answer(orjson.dumps(await act(plane.engine, body)))

    return await answered(request, ("admin",), work)


def _routes(engine: RoutedEngine) -> dict[str, Any]:
    return {**msgspec.to_builtins(engine.routes), "upstreams": dict(engine.upstreams())}


@router.get("/routes")
async def routes(request: Request) -> Response:
    """Returns labels, traffic and upstreams."""

    async def act(engine: RoutedEngine, _: bytes) -> dict[str, Any]:
        return _routes(engine)

    return await _answered(request, act)


async def _models(engine: RoutedEngine, _: bytes) -> dict[str, Any]:
    models = []
    async for name, statuses, _reason in all_statuses(engine):
        models.append(
            {
                "name": name,
                "model_version_status": list(map(status_entry, statuses)),
                "labels": engine.routes.labels.get(name, {}),
                "traffic": engine.routes.traffic.get(name, {}),
            }
        )
    return {"models": models}


@router.get("/models")
async def models(request: Request) -> Response:
    """Returns all models."""
    return await _answered(request, _models)


@router.post("/models/{model}:reload")
async def reload(request: Request, model: str) -> Response:
    """Looks for new versions now."""

    async def act(engine: RoutedEngine, body: bytes) -> dict[str, Any]:
        if model not in engine.model_names():
            raise ServingError(Code.NOT_FOUND, f"Could not find any versions of model {model}")
        await engine.reload()
        return await _models(engine, body)

    return await _answered(request, act)


@router.put("/models/{model}/labels/{label}")
async def set_label(request: Request, model: str, label: str) -> Response:
    """Points a label to a serving version."""

    async def act(engine: RoutedEngine, body: bytes) -> dict[str, Any]:
        await engine.set_label(model, label, _decode(body, _Label).version)
        return _routes(engine)

    return await _answered(request, act)


@router.delete("/models/{model}/labels/{label}")
async def remove_label(request: Request, model: str, label: str) -> Response:
    """Removes a label."""

    async def act(engine: RoutedEngine, _: bytes) -> dict[str, Any]:
        await engine.set_label(model, label, None)
        return _routes(engine)

    return await _answered(request, act)


@router.put("/models/{model}/traffic")
async def set_traffic(request: Request, model: str) -> Response:
    """Splits the requests that name no version."""

    async def act(engine: RoutedEngine, body: bytes) -> dict[str, Any]:
        weights = {}
        for version, weight in _decode(body, _Traffic).weights.items():
            if not version.isdecimal() or len(version) > 19:
                raise invalid(f"weights must be by version number. Received: {version[:128]}")
            if not 0 <= weight < 1e9:
                raise invalid(f"A weight must be from 0 to 1e9. Received: {version}={weight}")
            weights[int(version)] = weight
        await engine.set_traffic(model, weights)
        return _routes(engine)

    return await _answered(request, act)


def _switch(path: str, switch: Callable[..., None], on: bool) -> None:
    async def endpoint(request: Request) -> Response:
        async def act(engine: RoutedEngine, _: bytes) -> dict[str, Any]:
            switch(engine, *request.path_params.values(), on)
            return _routes(engine)

        return await _answered(request, act)

    router.add_api_route(path, endpoint, methods=["POST"], name=path)


_switch("/upstreams/{upstream}:drain", RoutedEngine.set_drained, True)
_switch("/upstreams/{upstream}:enable", RoutedEngine.set_drained, False)
_switch("/gateway:drain", RoutedEngine.set_draining, True)
_switch("/gateway:enable", RoutedEngine.set_draining, False)


async def unknown(request: Request, error: Exception) -> Response:
    """Refuses an unknown path or method, in the words of the other ports.

    Only administrators learn which paths there are.
    """
    assert isinstance(error, HTTPException)
    record = request.scope[RECORD]

    async def act(_: RoutedEngine, __: bytes) -> None:
        pass

    try:
        await _answered(request, act)
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
