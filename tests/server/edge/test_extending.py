"""A user's own routes and middleware see the requests to models, as the README says."""

import asyncio
import re

import pytest
from starlette.responses import Response, StreamingResponse

import server.app
from server.errors import invalid
from tests.server.support.asgi import PREDICT, ask, scope_of
from tests.server.support.gateway_process import ROOT
from tests.server.support.numpy_engine import NumpyEngine


def test_the_example_of_the_readme_adds_a_route_and_a_middleware(monkeypatch):
    text = (ROOT / "server" / "README.md").read_text("utf-8")
    (code,) = re.findall(r"## Extend it.*?```python\n(.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 16
    monkeypatch.setenv("DE_GATEWAY_MODEL_DIR", "unused")
    monkeypatch.setattr(server.app, "make_engine", lambda *_: NumpyEngine())
    names = {}
    exec(code.replace("de_core_gateway", "server"), names)
    app = names["app"]
    assert ask(app, "GET", "/hello?name=you").json() == {"hello": "you"}
    reply = ask(app, *PREDICT)
    assert reply.json() == {"predictions": [2.5]}
    assert reply.headers["x-route"] == "/v1/models/{model}:predict"
    assert "/hello" in app.openapi()["paths"]


def test_a_middleware_sees_the_route_and_its_parameters(app):
    seen = []

    def middleware(inner):
        async def call(scope, receive, send):
            await inner(scope, receive, send)
            if scope["type"] == "http":
                seen.append((scope["route"].path, scope["path_params"]))

        return call

    app.add_middleware(middleware)
    for path in ("/v1/models/a%2Fb/versions/3", "/v2/models/m/ready", "/livez", "/v1/nothing"):
        ask(app, "GET", path)
    ask(app, "HEAD", "/livez")
    assert seen == [
        ("/v1/models/{model}/versions/{version}", {"model": "a/b", "version": 3}),
        ("/v2/models/{model}/ready", {"model": "m"}),
        ("/livez", {}),
        ("/v1/{rest:path}", {}),
        ("/livez", {}),
    ]


def test_a_user_s_own_route_answers_head(app):
    app.add_api_route("/own", lambda: Response(headers={"x-own": "yes"}), methods=["HEAD"])
    assert ask(app, "HEAD", "/own").headers["x-own"] == "yes"


def test_a_mounted_application_takes_head_only_where_it_takes_get(app):
    async def mounted(scope, receive, send):
        await Response(headers={"x-method": scope["method"]})(scope, receive, send)

    app.mount("/", mounted)
    assert ask(app, "HEAD", "/livez").headers.get("x-method") is None
    assert ask(app, "HEAD", "/index.html").headers["x-method"] == "HEAD"


def test_an_error_of_a_route_of_the_user_has_the_gateway_s_form(app):
    @app.get("/double")
    async def double(x: int) -> int:
        return 2 * x

    @app.get("/broken")
    async def broken() -> int:
        raise ValueError("secret")

    assert ask(app, "GET", "/double?x=4").json() == 8
    reply = ask(app, "GET", "/double?x=no")
    assert (reply.status, reply.error.startswith("The request is wrong: query.x: ")) == (400, True)
    reply = ask(app, "GET", "/broken")
    assert (reply.status, "secret" in reply.error) == (500, False)


@pytest.mark.parametrize("error", [ValueError("late"), invalid("late")])
def test_an_error_after_an_answer_has_begun_starts_no_second_answer(app, error, caplog):
    sent = []

    async def pieces():
        yield b"piece"
        raise error

    @app.get("/pieces")
    async def answer() -> StreamingResponse:
        return StreamingResponse(pieces())

    async def taken(message):
        sent.append(message["type"])

    asyncio.run(app(scope_of("GET", "/pieces"), asyncio.Event().wait, taken))
    assert sent.count("http.response.start") == 1
    assert "request failed" in caplog.messages


NOWHERE = "/x /admin/models /v1 /v2/health /v2/models /v2/models/m/no /v2/x /v2x"


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("POST", "/", 405, "GET, HEAD"),
        ("DELETE", "/livez", 405, "GET, HEAD"),
        ("HEAD", "/livez", 200, None),
        ("HEAD", "/metrics", 200, None),
        ("HEAD", "/v2/models/m", 200, None),
        ("HEAD", "/v2/repository/index", 405, "POST"),
        ("HEAD", "/x", 404, None),
        ("GET", "/v2/models/m/infer", 405, "POST"),
        ("POST", "/v2/models/m", 405, "GET, HEAD"),
        ("PUT", "/v2/repository/index", 405, "POST"),
        ("PUT", "/openapi.json", 405, "GET, HEAD"),
        ("PUT", "/v1/models/m:predict", 400, None),
        ("HEAD", "/v1/models/m", 400, None),
        ("TRACE", "/v1/anything", 400, None),
        ("POST", "/v2/models/m/ready", 405, "GET, HEAD"),
        *(("GET", path, 404, None) for path in NOWHERE.split()),
    ],
)
def test_a_route_takes_its_methods_and_head_for_get_outside_of_v1(app, method, path, status, allow):
    reply = ask(app, method, path)
    assert (reply.status, reply.headers.get("allow")) == (status, allow)
    assert method == "HEAD" or list(reply.json()) == ["error"]
