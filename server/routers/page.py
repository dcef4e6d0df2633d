"""The page at /ui and its data. One file without external assets, so it works offline."""

from importlib.resources import files

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .. import __version__
from ..request import RECORD, Answer
from .body import answered

_PAGE = files(__package__).joinpath("page.html").read_bytes()
# The page may load nothing from anywhere, and be framed by nobody.
_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}

router = APIRouter()


@router.get("/ui/", include_in_schema=False)
@router.get("/ui", operation_id="page", response_class=HTMLResponse)
async def page(request: Request) -> Response:
    """A page with models, tables and traffic."""
    request.scope[RECORD].verb = "page"
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get("/ui/data", include_in_schema=False)
async def data(request: Request) -> Response:
    """Returns the data of the page."""
    state = request.app.state
    request.scope[RECORD].verb = "page"

    async def work(_: bytes) -> Answer:
        models, seconds = await state.snapshots.models(), state.plane.accounts.live.points()
        told = {"version": __version__, "models": models, "seconds": seconds}
        return Answer(orjson.dumps(told))

    return await answered(request, (), work)
