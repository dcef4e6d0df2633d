"""The admin port: an application of its own, for changes that an operator makes at run time."""

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, FastAPI, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .app import bare_app
from .dependencies import DataPlane
from .engines.routed import VERSION_PATTERN, WEIGHT_LIMIT, RoutedEngine
from .errors import Code, ServingError, not_found
from .request import RECORD
from .routers.body import admitted
from .services.models import all_statuses, status_entry
from .wire.paths import malformed

_BODY_BYTES = 64 << 10

router = APIRouter(prefix="/admin")


def create_admin_app(gateway: DataPlane) -> FastAPI:
    """Builds the application of the admin port; `gateway` is the gateway's data plane.

    The gateway's application starts and closes the engine. Every request needs a key with the scope
    `admin`.
    """
    most = {"max_body_bytes": _BODY_BYTES, "max_decompressed_bytes": _BODY_BYTES}
    plane = DataPlane(gateway.engine, gateway.settings.model_copy(update=most), gateway.keys)
    plane.lifecycle = gateway.lifecycle
    app = bare_app(plane, _Administrators, openapi_url=None)
    app.router.routes.extend(router.routes)
    app.add_exception_handler(404, _unknown)
    return app


class _Administrators:
    """ASGI middleware that lets only administrators in, even to learn which paths there are.

    It reads the body within limits, before FastAPI does.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        scope[RECORD].verb = "admin"

        async def work(body: bytes) -> None:
            async def replay() -> Message:
                return {"type": "http.request", "body": body, "more_body": False}

            # `curl -d` sends the type of a form, so the content type means nothing.
            headers = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
            headers.append((b"content-type", b"application/json"))
            await self._app({**scope, "headers": headers}, replay, send)

        if request.app.state.plane.keys is None:
            raise ServingError(
                Code.UNAUTHENTICATED, "The admin API needs --keys-file or --jwt-keys-file"
            )
        await admitted(request, ("admin",), work)


async def _unknown(request: Request, _: Exception) -> Response:
    record = request.scope[RECORD]
    raise malformed(record.method, record.path)


def _engine(request: Request) -> RoutedEngine:
    engine: RoutedEngine = request.app.state.plane.engine
    return engine


Engine = Annotated[RoutedEngine, Depends(_engine)]
Name = Annotated[str, Path(pattern=r"^[\w.-]{1,128}$")]
Switch = Literal["drain", "enable"]


class Label(BaseModel):
    """The version of a label."""

    model_config = ConfigDict(extra="forbid", strict=True)

    version: int


class Traffic(BaseModel):
    """Weights by version number."""

    model_config = ConfigDict(extra="forbid", strict=True)

    weights: dict[
        Annotated[str, Field(pattern=VERSION_PATTERN)],
        Annotated[float, Field(ge=0, lt=WEIGHT_LIMIT)],
    ]


@router.get("/routes")
async def routes(engine: Engine) -> dict[str, Any]:
    """Returns labels, traffic and upstreams."""
    return {**msgspec.to_builtins(engine.routes), "upstreams": dict(engine.upstreams())}


@router.get("/models")
async def models(engine: Engine) -> dict[str, Any]:
    """Returns all models."""
    told = [
        {
            "name": name,
            "model_version_status": list(map(status_entry, statuses)),
            "labels": engine.routes.labels.get(name, {}),
            "traffic": engine.routes.traffic.get(name, {}),
        }
        async for name, statuses, _ in all_statuses(engine)
    ]
    return {"models": told}


@router.post("/models/{model}:reload")
async def reload(engine: Engine, model: Name) -> dict[str, Any]:
    """Looks for new versions now."""
    if model not in engine.model_names():
        raise not_found(f"Could not find any versions of model {model}")
    await engine.reload()
    return await models(engine)


@router.put("/models/{model}/labels/{label}")
async def set_label(engine: Engine, model: Name, label: Name, body: Label) -> dict[str, Any]:
    """Points a label to a serving version."""
    await engine.set_label(model, label, body.version)
    return await routes(engine)


@router.delete("/models/{model}/labels/{label}")
async def remove_label(engine: Engine, model: Name, label: Name) -> dict[str, Any]:
    """Removes a label."""
    await engine.set_label(model, label, None)
    return await routes(engine)


@router.put("/models/{model}/traffic")
async def set_traffic(engine: Engine, model: Name, body: Traffic) -> dict[str, Any]:
    """Splits the requests that name no version."""
    await engine.set_traffic(model, {int(n): weight for n, weight in body.weights.items()})
    return await routes(engine)


@router.post("/upstreams/{upstream}:{switch}")
async def switch_upstream(engine: Engine, upstream: Name, switch: Switch) -> dict[str, Any]:
    """Takes a model server out of service, or returns it to service."""
    engine.set_drained(upstream, switch == "drain")
    return await routes(engine)


@router.post("/gateway:{switch}")
async def switch_gateway(engine: Engine, switch: Switch) -> dict[str, Any]:
    """Makes readiness fail, or succeed again."""
    engine.set_draining(switch == "drain")
    return await routes(engine)
