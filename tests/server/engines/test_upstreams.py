"""A gateway in front of model servers, which are real processes. Some are killed."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.support.asking import asking
from tests.server.support.eventually import wait_until
from tests.server.support.gateway_process import write_key
from tests.server.support.light_upstream import LightUpstream, front, fronted

PREDICT = "/v1/models/m:predict"
TELL = {"signature_name": "told", "instances": [1.0, 2.0]}


def version_of(reply):
    (version,) = set(reply.json()["predictions"])
    assert reply.headers["x-model-version"] == str(version)
    return version


def test_a_model_that_no_model_server_knows_hides_no_other(tmp_path):
    key, keys = write_key(tmp_path, "predict", "admin")
    headers = {"authorization": f"Bearer {key}"}
    arguments = ("--models", "absent,m", "--admin-port", "0", "--keys-file", str(keys))
    with fronted(tmp_path, 3, flags=arguments) as (gateway, _):
        wait_until(lambda: gateway.ask("GET", "/v1/models/m", None, headers).status == 200)
        listed = gateway.ask("POST", "/v2/repository/index", {}, headers)
        assert listed.status == 200, listed
        absent, served = listed.json()
        assert (absent["name"], absent["version"], absent["state"]) == ("absent", "", "UNAVAILABLE")
        assert absent["reason"]
        assert served == {"name": "m", "version": "3", "state": "READY"}
        ready = gateway.ask("POST", "/v2/repository/index", {"ready": True}, headers)
        assert ready.json() == [served]
        admin = gateway.port_of("Admin API")
        models = gateway.ask("GET", "/admin/models", None, headers, port=admin)
        assert models.status == 200, models
        assert gateway.ask("GET", "/admin/models", None, headers).status == 404
        told = {each["name"]: each["model_version_status"] for each in models.json()["models"]}
        assert told["absent"] == []
        assert [status["version"] for status in told["m"]] == ["3"]


def test_everything_passes_through(tmp_path):
    with fronted(tmp_path, 3) as (gateway, _):
        gateway.wait_ready()
        aged = {"examples": [{"age": 20.0}]}
        both = {"signature_name": "both", "instances": [{"a": 1, "s": {"b64": "/w=="}}]}
        for verb, body, name, value in (
            ("predict", {"instances": [1, 2, 5]}, "predictions", [2.5, 3.0, 4.5]),
            ("predict", both, "predictions", [{"a": 1, "s_bytes": {"b64": "/w=="}}]),
            ("classify", {"signature_name": "old", **aged}, "results", [[["", 20.0]]]),
            ("regress", {"signature_name": "half_the_age", **aged}, "results", [10.0]),
        ):
            assert gateway.ask("POST", f"/v1/models/m:{verb}", body).json() == {name: value}
        lookup = {"table": "user", "ids": [7, 1]}
        assert gateway.ask("POST", "/v1/models/m:lookup", lookup).json()["found"] == [True, False]
        status = gateway.ask("GET", "/v1/models/m").json()["model_version_status"]
        assert status[0] == {
            "version": "3", "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }  # fmt: skip
        signatures = gateway.ask("GET", "/v1/models/m/metadata").json()["metadata"]
        assert "de_lookup/user" in signatures["signature_def"]["signature_def"]
        for path, status, error in (
            ("/v1/models/x:predict", 404, "Servable not found for request: Latest(x)"),
            ("/v1/models/m/versions/9:predict", 404, "Specific(m, 9)"),
            ("/v1/models/m/labels/l:predict", 400, "Unrecognized servable version label: l"),
        ):
            reply = gateway.ask("POST", path, TELL)
            assert (reply.status, error in reply.error) == (status, True), reply
        failed = gateway.ask("POST", PREDICT, {"signature_name": "fail", "instances": [1.0]})
        assert failed.status == 500
        assert failed.error.startswith("Internal error. Request id: ")
        told = gateway.ask("GET", "/metrics").body.decode()
        assert "gateway_queue_seconds_count" in told
        assert 'gateway_upstream_seconds_count{code="OK",upstream="u0"}' in told


def test_upstreams_that_die_and_return_with_another_version_cost_no_request(tmp_path):
    with fronted(tmp_path, 3, 3, seconds=0.01) as (gateway, one, two):
        gateway.wait_ready()
        with asking(lambda: gateway.ask("POST", PREDICT, TELL), clients=3, pause=0.03) as replies:

            def go_on():
                wanted = len(replies) + 30
                wait_until(lambda: len(replies) >= wanted)

            for each in (one, two):
                go_on()
                each.kill()
                go_on()
                each.version = 4
                each.start()
                gateway.wait_for("/v1/models/m/versions/4", lambda reply: reply.status == 200)
            go_on()
        assert {reply.status for reply in replies} == {200}
        assert {version_of(reply) for reply in replies} == {3, 4}
        # In two outages, three clients: a lost server takes no further requests.
        assert gateway.metric("gateway_retries_total") <= 2 * 3 * 2


@pytest.mark.slow
def test_a_server_that_hangs_is_left_out(tmp_path):
    with fronted(tmp_path, 3, 3) as (gateway, one, two):
        gateway.wait_ready()
        one.pause()
        service = 'gateway_upstream_in_service{upstream="u%d"}'
        wait_until(lambda: gateway.metric(service % 0) == 0)
        for _ in range(20):
            assert gateway.ask("POST", PREDICT, TELL).status == 200
        two.pause()
        gateway.wait_for("/readyz", lambda reply: reply.status == 503)
        assert gateway.ask("POST", PREDICT, TELL).status == 503
        one.go_on()
        wait_until(lambda: gateway.metric(service % 0) == 1)
        assert gateway.metric(service % 1) == 0
        assert gateway.ask("POST", PREDICT, TELL).status == 200


def test_without_upstreams_the_answer_is_503_until_one_returns(tmp_path):
    with fronted(tmp_path, 3) as (gateway, upstream):
        gateway.wait_ready()
        upstream.kill()
        gateway.wait_for("/readyz", lambda reply: reply.status == 503)
        # Without an upstream a request does not wait for its deadline, which would be a 504.
        reply = gateway.ask("POST", PREDICT, TELL)
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "127.0.0.1" not in reply.error
        assert str(upstream.port) not in reply.error
        assert gateway.ask("GET", "/v1/models/m").status == 503
        assert gateway.ask("GET", "/v1/models/x").status == 404
        assert gateway.ask("GET", "/v1/models/x/labels/l").status == 400
        upstream.start()
        gateway.wait_ready()
        assert gateway.ask("POST", PREDICT, TELL).status == 200
        assert gateway.ask("GET", "/livez").status == 200


@pytest.mark.slow
def test_a_request_under_way_when_its_upstream_dies_is_answered_by_the_newer_version(tmp_path):
    with LightUpstream(3) as old, LightUpstream(4) as new:
        new.kill()
        with front(tmp_path, old, new) as gateway, ThreadPoolExecutor(1) as clients:
            gateway.wait_ready()
            old.pause()
            asked = clients.submit(gateway.ask, "POST", PREDICT, TELL)
            gateway.wait_in_flight(1)
            new.start()
            gateway.wait_for("/v1/models/m/versions/4", lambda reply: reply.status == 200)
            assert not asked.done()
            old.kill()
            assert version_of(asked.result()) == 4


def test_a_failed_request_polls_the_endpoints_at_once(tmp_path):
    never = ("--poll-seconds", "1000")
    with fronted(tmp_path, 3, 4, flags=never) as (gateway, old, new):
        gateway.wait_ready()
        assert version_of(gateway.ask("POST", PREDICT, TELL)) == 4
        assert version_of(gateway.ask("POST", "/v1/models/m/versions/3:predict", TELL)) == 3
        new.kill()
        assert version_of(gateway.ask("POST", PREDICT, TELL)) == 3
        gateway.wait_for("/v1/models/m/versions/4", lambda reply: reply.status == 404)
        old.kill()
        assert gateway.ask("POST", PREDICT, TELL).status == 503
        old.start()
        wait_until(lambda: gateway.ask("POST", PREDICT, TELL).status == 200)
        assert gateway.ask("GET", "/readyz").status == 200


@pytest.mark.slow
def test_a_drained_upstreams_version_is_not_the_newest(tmp_path):
    routes = tmp_path / "routes.json"
    routes.write_text('{"drained": ["u1"]}')
    flags = ("--routes-file", str(routes))
    with fronted(tmp_path, 3, 4, flags=flags) as (gateway, *_):
        gateway.wait_for("/v1/models/m/versions/4", lambda reply: reply.status == 200)
        gateway.wait_for("/v1/models/m/versions/3", lambda reply: reply.status == 200)
        assert version_of(gateway.ask("POST", PREDICT, TELL)) == 3
        routes.write_text('{"drained": ["u0", "u1"]}')
        gateway.wait_for("/readyz", lambda reply: reply.status == 503)
        assert gateway.ask("POST", PREDICT, TELL).status == 503


def test_a_slow_upstream_meets_the_deadline(tmp_path):
    with fronted(tmp_path, 3, seconds=3600) as (gateway, _):
        gateway.wait_ready()
        reply = gateway.ask("POST", PREDICT, TELL, {"x-request-timeout-ms": "200"})
        assert (reply.status, reply.error) == (504, "Deadline exceeded")
        assert gateway.metric("gateway_retries_total") == 0
