"""Tests the application over HTTP, with an engine of numpy functions."""

import asyncio
import logging
import re

import numpy as np
import pytest

from server.wire.paths import RAW
from tests.server.support.asgi import ask, make_app, scope_of, send
from tests.server.support.numpy_engine import FUNCTIONS, NumpyEngine, signature, tensor
from tests.server.support.virtual_time import in_virtual_time, run_in_virtual_time


def post(app, verb, value, path="/v1/models/m", **kwargs):
    return ask(app, "POST", f"{path}:{verb}", value, **kwargs)


def test_predict_in_rows_and_columns(app):
    reply = post(app, "predict", {"instances": [1.0, 2, 5]})
    assert (reply.status, reply.body) == (200, b'{"predictions":[2.5,3.0,4.5]}')
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-model-version"] == "3"
    headers = {"content-type": RAW, "accept": f"{RAW}, */*"}  # TensorFlow Serving ignores both
    assert post(app, "predict", {"inputs": [2.0]}, headers=headers).body == b'{"outputs":[3.0]}'


def test_int64_is_exact_and_a_string_on_request(app):
    value = {"signature_name": "echo64", "instances": [2**53 + 1]}
    assert post(app, "predict", value).body == b'{"predictions":[9007199254740993]}'
    reply = ask(app, "POST", "/v1/models/m:predict?int64=string", value)
    assert reply.body == b'{"predictions":["9007199254740993"]}'


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("predict?int64=text", "The parameter int64 must be string. Received: text"),
        ("predict?table=user", "Malformed request: POST /v1/models/m:predict?table=user"),
        ("regress?int64=string", "Malformed request: POST /v1/models/m:regress?int64=string"),
        ("predict?int64=a&int64=string", "/v1/models/m:predict?int64=a&int64=string"),
        ("lookup?int64=string", "Malformed request: POST /v1/models/m:lookup?int64=string"),
    ],
)
def test_a_query_that_a_verb_does_not_read_is_refused(app, end, error):
    reply = post(app, end, {"instances": [1.0], "ids": [7]})
    assert reply.status == 400
    assert error in reply.error


@pytest.mark.parametrize(
    ("verb", "name", "error"),
    [
        ("regress", "", 'No regression inputs found in SignatureDef: inputs {\n  key: "x"\n'),
        ("classify", "no", "No signature was found with the name: no"),
        ("regress", "numbers", "Type mismatch: actual string vs. expect float"),
        # A signature is refused for its outputs before its input.
        ("classify", "numbers", "Expected classification signature outputs to contain at least"),
    ],
)
def test_a_signature_that_takes_no_examples_is_refused(verb, name, error):
    numbers = signature("numbers", [tensor("inputs", "float")], [tensor("outputs", "float")])
    app = make_app(NumpyEngine({**FUNCTIONS, "numbers": (numbers, None)}))
    reply = post(app, verb, {"signature_name": name, "examples": [{}]})
    assert (reply.status, reply.error[: len(error)]) == (400, error)


IDS = [7, "9007199254740993", 1]
BAGS = [[7, 8], [], [1], [8, 1]]
MEAN = {"combiner": "mean"}
FOUND = [[True, True], [], [False], [True, False]]


@pytest.mark.parametrize(
    ("asked", "embeddings", "found"),
    [
        ({"ids": IDS}, [[1, 2], [5, -5], [-1, -1]], [True, True, False]),
        ({"ids": IDS, "missing": "null"}, [[1, 2], [5, -5], None], [True, True, False]),
        ({"ids": [], "table": "item"}, [], []),
        ({"ids": BAGS}, [[[1, 2], [3, 6]], [], [[-1, -1]], [[3, 6], [-1, -1]]], FOUND),
        ({"ids": BAGS, "missing": "null"}, [[[1, 2], [3, 6]], [], [None], [[3, 6], None]], FOUND),
        ({"ids": BAGS, **MEAN}, [[2, 4], [0, 0], [-1, -1], [1, 2.5]], FOUND),
        ({"ids": BAGS, **MEAN, "missing": "null"}, [[2, 4], None, None, [3, 6]], FOUND),
    ],
)
def test_lookups(app, asked, embeddings, found):
    reply = post(app, "lookup", {"table": "user", **asked})
    assert reply.json() == {"embeddings": embeddings, "found": found}


@pytest.mark.parametrize(
    ("value", "status", "error"),
    [
        ({"table": "no", "ids": [1]}, 404, "Its tables: item, user"),
        ({"ids": [1]}, 400, "`table` must name one of the tables of model m: item, user"),
        (
            {"table": "user", "ids": [7, 1, 2, 3, 4, 5, 6], "missing": "error"},
            404,
            "Ids not found in table user: 1, 2, 3, 4, 5, … (6 of 7)",
        ),
        ({"table": "x" * 9999, "ids": [1]}, 404, f"table={'x' * 128}. Its tables"),
    ],
)
def test_lookup_refusals(app, value, status, error):
    reply = post(app, "lookup", value)
    assert reply.status == status
    assert error in reply.error


def test_the_only_table_needs_no_name():
    functions = {"de_lookup/user": NumpyEngine().servable.functions["de_lookup/user"]}
    app = make_app(NumpyEngine(functions))
    assert post(app, "lookup", {"ids": [7]}).json()["found"] == [True]
    app = make_app(NumpyEngine({}))
    assert post(app, "lookup", {"ids": [7]}).error == "Model m has no embedding tables"


def test_tables_are_described(app):
    user = {"table": "user", "dim": 2, "key_dtype": "int64", "value_dtype": "float32"}
    assert ask(app, "GET", "/v1/models/m/tables/user").json() == user
    tables = ask(app, "GET", "/v1/models/m/tables").json()["tables"]
    assert [table["table"] for table in tables] == ["item", "user"]
    assert ask(app, "GET", "/v1/models/m/tables/no").status == 404
    assert ask(app, "GET", "/v1/models/x/tables").status == 404


def test_a_user_s_signature_named_as_the_statistics_is_not_asked_for_them():
    stats = signature("de_stats", [tensor("x", "float")], [tensor("stats", "string")])
    app = make_app(NumpyEngine({**FUNCTIONS, "de_stats": (stats, lambda **_: {"stats": STATS})}))
    assert ask(app, "GET", "/v1/models/m/tables/user").json()["dim"] == 2


def test_an_error_of_a_model_reveals_no_secret(app):
    reply = post(app, "predict", {"signature_name": "fail", "instances": [1]})
    assert reply.status == 500
    assert re.fullmatch(r"Internal error\. Request id: [0-9a-f]{32}", reply.error)
    assert reply.error.endswith(reply.headers["x-request-id"])


def test_the_log_tells_failures_from_refusals_and_probes(caplog):
    caplog.set_level(logging.INFO, "server")
    app = make_app(NumpyEngine(is_ready=False), log_sample="1")
    post(app, "predict", {"instances": [1.0]})
    post(app, "predict", {"instances": "x"})
    post(app, "predict", {"signature_name": "fail", "instances": [1]})
    ask(app, "GET", "/readyz")
    told = [
        (record.status, record.levelname, record.getMessage())
        for record in caplog.records
        if hasattr(record, "milliseconds")
    ]
    assert told == [
        (200, "INFO", "request answered"),
        (400, "INFO", "request refused"),
        (500, "ERROR", "request not answered"),
        (503, "INFO", "request not answered"),
    ]


def test_request_ids_are_taken_only_if_harmless(app):
    def answered(value):
        return ask(app, "GET", "/livez", headers={"X-Request-Id": value}).headers["x-request-id"]

    assert answered("abc-123") == "abc-123"
    for value in ("a b", "x" * 65, "a\tb", ""):
        assert re.fullmatch("[0-9a-f]{32}", answered(value))


async def test_health_follows_the_engine_and_the_lifecycle():
    engine = NumpyEngine(is_ready=False)
    app = make_app(engine)

    async def statuses():
        paths = ("/livez", "/readyz", "/v2/health/ready", "/startupz")
        return [(await send(app, "GET", path)).status for path in paths]

    async with app.router.lifespan_context(app):
        assert await statuses() == [200, 503, 503, 503]
        engine.is_ready = True
        assert await statuses() == [200, 200, 200, 200]
        app.state.plane.lifecycle.draining = True
        assert await statuses() == [200, 503, 503, 200]
        assert (await send(app, "GET", "/readyz")).headers["retry-after"] == "1"
    assert engine.events == ["start", "close"]


def test_the_versions_of_the_software_are_told(app):
    assert ask(app, "GET", "/version").json().keys() == {"gateway", "python", "numpy"}


async def metrics_after(app, *requests):
    async with app.router.lifespan_context(app):
        for path, body in requests:
            await send(app, "POST", path, body)
        return (await send(app, "GET", "/metrics")).body.decode()


async def test_metrics_count_and_unknown_models_share_a_label(app):
    paths = [f"/v1/models/{model}:predict" for model in "mabc"]
    inputs = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}'
    requests = [(path, b'{"instances": [1]}') for path in paths]
    text = await metrics_after(app, *requests, ("/v2/models/m/infer", inputs))
    assert 'gateway_requests_total{code="200",model="m",verb="infer"} 1.0' in text
    assert 'gateway_requests_total{code="200",model="m",verb="predict"} 1.0' in text
    assert 'gateway_requests_total{code="404",model="unknown",verb="predict"} 3.0' in text
    assert 'gateway_request_seconds_count{model="m",verb="predict"} 1.0' in text
    assert 'model="a"' not in text


SIZE = 'gateway_table_rows{model="m",table="user"}'
HEALTH = 'gateway_table_health{health="intact",model="m",table="user"} 1.0'
STATS = np.array(b'[{"table": "user", "rows": 7, "health": "intact"}]', object)


@in_virtual_time
async def test_metrics_are_reported_while_statistics_are_slow():
    asked, go_on = [], asyncio.Event()

    async def tell():
        asked.append("de_stats")
        await go_on.wait()
        return {"stats": STATS}

    stats = signature("de_stats", [], [tensor("stats", "string")])
    app = make_app(NumpyEngine({**FUNCTIONS, "de_stats": (stats, tell)}))
    async with app.router.lifespan_context(app):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        replies = await asyncio.gather(*(send(app, "GET", "/metrics") for _ in range(3)))
        assert 1 <= loop.time() - begun < 10
        go_on.set()
        replies.append(await send(app, "GET", "/metrics"))
    assert asked == ["de_stats"]
    for line in (HEALTH, SIZE):
        told = [line in each.body.decode() for each in replies]
        assert told == [False, False, False, True]


@pytest.mark.parametrize(("rows", "counted"), [("[]", 0), ("[1, 2]", 2), ("1", 1)])
async def test_the_rows_of_a_predict_are_counted(app, rows, counted):
    text = await metrics_after(app, ("/v1/models/m:predict", b'{"inputs": %b}' % rows.encode()))
    assert f'gateway_rows_sum{{verb="predict"}} {counted}.0' in text
    assert 'code="200"' in text


async def test_an_answer_that_cannot_be_sent_is_no_answer(app):
    async def broken(_):
        raise OSError("the connection is lost")

    async with app.router.lifespan_context(app):
        with pytest.raises(OSError, match="lost"):
            await app(scope_of("GET", "/livez"), None, broken)
        told = (await send(app, "GET", "/metrics")).body.decode()
    assert 'gateway_requests_total{code="499",model="",verb="other"} 1.0' in told


def test_options_answers_browsers_only_when_an_origin_is_set(app):
    origin = {"origin": "http://here"}
    reply = ask(app, "OPTIONS", "/v1/models/m:predict?int64=string", headers=origin)
    assert (reply.status, reply.headers["allow"]) == (200, "POST, OPTIONS")
    reply = ask(app, "OPTIONS", "/v1/models/m:predict")
    assert (reply.status, reply.error) == (400, "Malformed request: OPTIONS /v1/models/m:predict")
    for method in ("OPTIONS", "GET"):  # no preflight
        reply = ask(app, method, "/v1/models/m:predict?int64=string")
        told = f"Malformed request: {method} /v1/models/m:predict?int64=string"
        assert (reply.status, reply.error) == (400, told)
    assert "access-control-allow-origin" not in reply.headers
    open_app = make_app(cors_origin="*")
    reply = ask(open_app, "OPTIONS", "/v1/models/m", headers=origin)
    assert reply.headers["access-control-allow-origin"] == "*"
    assert reply.headers["access-control-allow-methods"] == "GET, OPTIONS"
    reply = post(open_app, "predict", b"nonsense")
    assert reply.headers["access-control-allow-origin"] == "*"
    reply = ask(app, "OPTIONS", "/v1/foo", headers=origin)
    assert (reply.status, reply.error) == (400, "Malformed request: OPTIONS /v1/foo")


def test_a_slow_body_is_refused():
    app = make_app(body_seconds=5)
    reply = run_in_virtual_time(send(app, "POST", "/v1/models/m:predict", [b"{", None]))
    assert (reply.status, reply.error) == (408, "Request body must arrive within 5 seconds")


def test_leases_end_with_their_requests():
    engine = NumpyEngine()
    app = make_app(engine)
    for body in (b'{"instances": [1]}', b"nonsense", b'{"signature_name": "fail", "inputs": 1}'):
        post(app, "predict", body)
    assert engine.leases == 0
