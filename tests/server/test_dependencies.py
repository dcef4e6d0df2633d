"""API keys and scopes, limits on rates and concurrency, and the size of a request's head."""

import asyncio
import contextlib
import errno
import gzip
import json

import pytest

from server import keys as keys_module
from server.admin import create_admin_app
from server.dependencies import DataPlane
from server.engines.routed import RoutedEngine, Routes
from server.errors import ServingError, StartError
from server.keys import KeyRing
from server.limits import Shares
from server.process.server import uvicorn_config
from server.settings import load_settings
from server.wire.paths import RAW
from tests.server.support.asgi import LOOKUP, PREDICT, ask, make_app, send
from tests.server.support.gateway_process import make_key
from tests.server.support.numpy_engine import NumpyEngine
from tests.server.support.virtual_time import in_virtual_time


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    made = {name: make_key(name, name) for name in ("predict", "lookup", "admin")}
    file = tmp_path_factory.mktemp("keys") / "keys.yaml"
    file.write_text("keys:\n" + "\n".join(line for _, line in made.values()) + "\n")
    text = file.read_text()
    assert not any(key in text for key, _ in made.values())
    return KeyRing(file), {name: key for name, (key, _) in made.items()}


def infer(name, datatype, *values, **request):
    tensor = {"name": name, "datatype": datatype, "shape": [len(values)], "data": values}
    return "POST", "/v2/models/m/infer", {"inputs": [tensor], **request}


def lookups_by_other_verbs(*ids):
    """Returns requests that run the signature of a lookup by predict and by infer."""
    user = {"signature_name": "de_lookup/user"}
    v1 = ("POST", "/v1/models/m:predict", {"instances": ids, **user})
    return [v1, infer("ids", "INT64", *ids, parameters=user)]


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
@pytest.mark.parametrize(
    ("scope", "request_"),
    [("predict", PREDICT), ("predict", infer("x", "FP32", 1)), ("lookup", LOOKUP),
     *(("lookup", each) for each in lookups_by_other_verbs(7))],
)  # fmt: skip
def test_a_key_opens_its_scope_and_no_other(keys, header, scope, request_):
    ring, values = keys
    for name in ("predict", "lookup"):
        credential = ("Bearer " if header == "authorization" else "") + values[name]
        reply = ask(make_app(keys=ring), *request_, headers={header: credential})
        assert reply.status == (200 if name == scope else 403)
        assert name == scope or f"does not open the scope {scope}" in reply.error


@pytest.mark.parametrize("request_", lookups_by_other_verbs(7, 8), ids=["v1", "v2"])
def test_the_limit_on_ids_applies_to_lookups_by_any_verb(request_):
    assert ask(make_app(max_ids="2"), *request_).status == 200
    reply = ask(make_app(max_ids="1"), *request_)
    assert (reply.status, "at most 1 ids" in reply.error) == (400, True)


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer no"}, {"authorization": "Basic eDp5"}]
)
def test_without_a_known_key_only_health_is_answered(keys, headers):
    app = make_app(keys=keys[0], ui="true")
    for request in (PREDICT, LOOKUP, ("GET", "/v1/models/m"), ("GET", "/ui/data")):
        reply = ask(app, *request, headers=headers)
        assert reply.status == 401
        assert reply.headers["www-authenticate"].startswith("Bearer")
    for path in ("/livez", "/readyz", "/metrics", "/ui"):
        assert ask(make_app(keys=keys[0], ui="true"), "GET", path, headers=headers).status == 200


def test_the_page_is_off_unless_it_is_asked_for():
    for path in ("/ui", "/ui/data"):
        assert ask(make_app(), "GET", path).status == 404
        assert ask(make_app(ui="true"), "GET", path).status == 200


@pytest.mark.parametrize(
    "content",
    ["keys: 3", "[]", "keys:\n  - {name: a, scopes: [root], sha256: '00'}", "\0",
     "keys:\n  - {name: a, scopes: [admin], sha256: 'ab'}"],
)  # fmt: skip
def test_an_invalid_keys_file_is_refused(tmp_path, content):
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(StartError, match="Received: --keys-file="):
        KeyRing(file)


def test_a_key_that_leaves_the_file_opens_nothing_a_second_later(tmp_path, caplog):
    now = 0.0
    file = tmp_path / "keys.yaml"
    (old, old_line), (new, new_line) = make_key("old", "predict"), make_key("new", "predict")
    file.write_text(f"keys:\n{old_line}\n")
    ring = KeyRing(file, clock=lambda: now)

    def opens(key):
        try:
            return ring.owner(key).scopes == {"predict"}
        except ServingError:
            return False

    assert (opens(old), opens(new)) == (True, False)
    for broken in ("keys: 3", "[" * 50_000, None, None):
        if broken is None:
            file.write_text("[" * 50_000)  # as before
            now += 1
            assert opens(old)
            file.unlink()
        else:
            file.write_text(broken)
        for _ in range(3):
            now += 1
            assert opens(old), "a broken file must not lock everybody out"
        (record,) = caplog.records
        assert "the keys stay as they were: The file of keys must hold" in record.getMessage()
        caplog.clear()
    file.write_text(f"keys:\n{new_line}\n")
    assert opens(old), "the file is read once a second at most"
    now += 1
    assert (opens(old), opens(new)) == (False, True)
    file.write_text(f"keys:\n{old_line}\n")
    ring.reload()
    assert (opens(old), opens(new)) == (True, False)


def admin_app(engine, ring):
    return create_admin_app(DataPlane(engine, load_settings(model_dir="x"), ring))


def admin(app, method, path, value=b"", key=None):
    return asyncio.run(send(app, method, path, value, {"x-api-key": key} if key else {}))


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [("GET", "/admin/models", 200, None), ("GET", "/admin/nothing", 400, None),
     ("GET", "/", 400, None), ("POST", "/admin/models", 405, "GET, HEAD"),
     ("GET", "/admin/models/m/labels/l", 405, "DELETE, PUT")],
)  # fmt: skip
def test_the_admin_port_answers_administrators_only(keys, method, path, status, allow):
    ring, values = keys
    app = admin_app(RoutedEngine(NumpyEngine()), ring)
    assert admin(app, method, path).status == 401
    assert admin(app, method, path, key=values["predict"]).status == 403
    reply = admin(app, method, path, key=values["admin"])
    assert (reply.status, reply.headers.get("allow")) == (status, allow)
    assert admin(admin_app(RoutedEngine(NumpyEngine()), None), method, path).status == 401


def test_labels_traffic_and_drain_are_set_and_reported(keys):
    ring, values = keys
    engine = RoutedEngine(NumpyEngine())
    app = admin_app(engine, ring)

    def told(method, path, value=b""):
        return admin(app, method, path, value, values["admin"])

    reply = told("PUT", "/admin/models/m/labels/stable", {"version": 3})
    assert reply.json()["labels"] == {"m": {"stable": 3}}
    path = "/v1/models/m/labels/stable"
    labelled = ask(make_app(engine), "POST", f"{path}:predict", PREDICT[2])
    assert (labelled.status, labelled.headers["x-model-version"]) == (200, "3")
    [status] = ask(make_app(engine), "GET", path).json()["model_version_status"]
    assert (status["version"], status["state"]) == ("3", "AVAILABLE")
    absent = told("PUT", "/admin/models/m/labels/stable", {"version": 4})
    assert (absent.status, absent.error) == (404, "Could not find version 4 of model m")
    assert told("PUT", "/admin/models/m/traffic", {"weights": {"3": 1}}).status == 200
    assert told("GET", "/admin/models").json()["models"][0]["traffic"] == {"3": 1}
    for weights in ({"3": 0}, {"3": -1}, {"x": 1}, {"3": 1, "03": 99}):
        assert told("PUT", "/admin/models/m/traffic", {"weights": weights}).status == 400
    wrong = told("PUT", "/admin/models/m/labels/stable", {"version": "3"})
    assert (wrong.status, "body.version: " in wrong.error) == (400, True)
    assert told("PUT", "/admin/models/m/traffic", {"weights": {}}).json()["traffic"] == {}
    assert told("DELETE", "/admin/models/m/labels/stable").json()["labels"] == {}
    assert told("DELETE", "/admin/models/m/labels/stable").status == 404
    assert told("POST", "/admin/models/m:reload").status == 200
    assert "reload" in engine.inner.events
    assert told("POST", "/admin/models/no:reload").status == 404
    assert told("POST", "/admin/upstreams/u:drain").json()["drained"] == ["u"]
    assert engine.inner.drained == {"u"}
    assert told("POST", "/admin/upstreams/u:enable").json()["drained"] == []
    assert told("POST", "/admin/upstreams/no:drain").status == 404
    for switch, status in (("drain", 503), ("enable", 200)):
        draining = told("POST", f"/admin/gateway:{switch}").json()["draining"]
        assert draining is (switch == "drain")
        for path in ("/readyz", "/v2/health/ready"):
            assert ask(make_app(engine), "GET", path).status == status


@pytest.mark.parametrize("name", ["42", "no", "a: b", "Zoë \U0001f511", 'say "}"'])
def test_a_printed_key_can_be_read_whatever_its_name(tmp_path, name):
    key, line = make_key(name, "predict")
    file = tmp_path / "keys.yaml"
    file.write_text(f"keys:\n{line}\n")
    app = make_app(keys=KeyRing(file))
    assert ask(app, *PREDICT, headers={"x-api-key": key}).status == 200


@pytest.mark.parametrize("weights", [{"1": 95, "3": 5}, {"1": 1}, {"3": 0}, {"1": 1, "3": 0}])
def test_a_split_sends_requests_only_to_versions_that_serve(weights):
    app = make_app(RoutedEngine(NumpyEngine(version=3), Routes(traffic={"m": weights})))
    for _ in range(5):
        assert ask(app, *PREDICT).headers["x-model-version"] == "3"
    named = ask(app, "POST", "/v1/models/m/versions/1:predict", PREDICT[2])
    assert (named.status, "Specific(m, 1)" in named.error) == (404, True)


def test_a_split_does_not_choose_the_version_of_the_statistics():
    asked, engine = [], NumpyEngine()
    lease = engine.lease

    def recorded(spec):
        asked.append(spec.version)
        return lease(spec)

    engine.lease = recorded
    app = make_app(RoutedEngine(engine, Routes(traffic={"m": {"3": 1}})))
    assert ask(app, "GET", "/metrics").status == 200
    assert asked == [None]  # the newest version


def test_a_broken_file_of_routes_is_logged_once_and_changes_nothing(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(keys_module, "_LOOK_SECONDS", 0.0)
    file = tmp_path / "routes.json"
    engine = RoutedEngine(NumpyEngine(), file=file)
    assert not engine.routes.draining
    for good, broken in (("", ""), ('{"draining": true}', "{")):
        file.write_text(good)
        for _ in range(3):
            assert engine.routes.draining is bool(good)
            file.write_text(broken)
        (record,) = caplog.records
        told = "the routes stay as they were: The file of routes cannot be read"
        assert record.getMessage().startswith(told)
        caplog.clear()


@pytest.mark.parametrize("weights", [{"latest": 1}, {"02": 1}, {"3": -1}, {"3": 1e300}])
def test_a_file_of_routes_with_a_wrong_split_is_refused(tmp_path, weights):
    file = tmp_path / "routes.json"
    file.write_text(json.dumps({"traffic": {"m": weights}}))
    with pytest.raises(StartError, match=r"The file of routes cannot be read: .*traffic"):
        RoutedEngine(NumpyEngine(), file=file)


def test_a_decision_keeps_what_was_written_into_the_file_in_the_last_second(tmp_path):
    file = tmp_path / "routes.json"
    engine = RoutedEngine(NumpyEngine(), file=file)
    file.write_text('{"labels": {"m": {"a": 3}}, "traffic": {"m": {"3": 1}}, "drained": ["v"]}')
    asyncio.run(engine.set_label("m", "b", 3))
    file.write_text(file.read_text().replace('"a"', '"c"'))
    engine.set_drained("u", True)
    assert engine.routes == RoutedEngine(NumpyEngine(), file=file).routes
    assert engine.routes == Routes({"m": {"c": 3, "b": 3}}, {"m": {"3": 1}}, ["v", "u"])


def test_a_decision_that_the_disk_cannot_hold_leaves_no_file(tmp_path, monkeypatch):
    def is_full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "routes.json"
    engine = RoutedEngine(NumpyEngine(), file=file)
    engine.set_draining(True)
    monkeypatch.setattr("os.fsync", is_full)
    with pytest.raises(OSError, match="No space left"):
        engine.set_draining(False)
    assert (list(tmp_path.iterdir()), engine.routes.draining) == ([file], True)


@pytest.mark.parametrize(
    "path",
    ["/admin/models/..%2f..%2fetc/labels/x", "/admin/models/a%00/labels/x", "/admin/models/%2e",
     "/admin/models/m/labels/a%2fb", "/admin//models", "/admin/models/m:Reload",
     "/admin/upstreams/a%00:drain", "/admin/upstreams/u:Drain", "/admin/gateway:x"],
)  # fmt: skip
def test_names_in_admin_paths_are_plain(keys, path):
    ring, values = keys
    app = admin_app(RoutedEngine(NumpyEngine()), ring)
    method = "PUT" if "labels" in path else "POST"
    assert admin(app, method, path, {"version": 3}, values["admin"]).status == 400


async def test_a_client_beyond_its_rate_gets_429_until_time_has_passed():
    now = 0.0
    settings = load_settings(model_dir="x", rate_per_second="1")
    plane = DataPlane(NumpyEngine(), settings, clock=lambda: now)
    app = make_app(plane.engine, plane=plane)

    async def ask_as(*clients):
        replies = [await send(at(app, client), *PREDICT) for client in clients]
        assert {reply.headers["retry-after"] for reply in replies if reply.status == 429} <= {"1"}
        return [reply.status for reply in replies]

    assert await ask_as(*"aaaab") == [200, 200, 429, 429, 200]
    now = 1.0
    assert await ask_as(*"aa") == [200, 429]


def at(app, address):
    """Returns an application whose requests come from an address."""
    return lambda scope, *channel: app({**scope, "client": (address, 1)}, *channel)


@pytest.mark.parametrize(
    ("flag", "clients", "told"),
    [("max_in_flight", "abcde", "requests are"), ("client_in_flight", "aaaaa", "requests of one")],
)
@in_virtual_time
async def test_requests_beyond_the_places_are_refused(flag, clients, told):
    app = make_app(NumpyEngine(seconds=0.05), **{flag: "2"})
    replies = await asyncio.gather(*(send(at(app, client), *PREDICT) for client in clients))
    later = await send(at(app, "a"), *PREDICT)
    assert sorted(reply.status for reply in replies) == [200, 200, 429, 429, 429]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.headers["retry-after"] == "1"
    assert refused.error.startswith(f"At most 2 {told} ")
    assert later.status == 200


@in_virtual_time
async def test_a_busy_model_leaves_room_for_other_models():
    engine = NumpyEngine(seconds=0.05)
    settings = load_settings(model_dir="x", model_in_flight="2", model_rate_per_second="2")
    plane = DataPlane(engine, settings, clock=lambda: 0.0)
    app = make_app(engine, plane=plane)
    at_once = await asyncio.gather(*(send(app, *PREDICT) for _ in range(3)))
    later = [await send(app, *PREDICT) for _ in range(3)]
    other = await send(app, "GET", "/v1/models/other")
    assert sorted(reply.status for reply in at_once) == [200, 200, 429]
    refused = next(reply for reply in at_once if reply.status == 429)
    assert refused.error.startswith("At most 2 requests to one model are answered at once.")
    assert [reply.status for reply in later][-1] == 429
    assert later[-1].error.startswith("At most 2 requests per second are allowed to one model.")
    assert other.status == 404


@contextlib.asynccontextmanager
async def trickling(app, addresses, part, headers=None):
    """Each of the addresses sends a part of a body, and leaves at the end."""
    asked = [send(at(app, each), *PREDICT[:2], [part, None], headers) for each in addresses]
    tasks = [asyncio.create_task(each) for each in asked]
    await asyncio.sleep(1)  # in virtual time: all parts have arrived
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@in_virtual_time
async def test_bodies_that_trickle_hold_no_places():
    app = make_app(client_in_flight="2", max_in_flight="2")
    async with trickling(app, ["10.0.0.1"] * 2, b"{"):
        for each in ("10.0.0.1", "10.0.0.2"):
            assert (await send(at(app, each), *PREDICT)).status == 200


# Eight clients hold one body of the largest size each, or one client holds four.
holders = pytest.mark.parametrize(
    ("clients", "told", "others"),
    [
        (range(8), "At most {all} bytes of requests may be in memory.", 429),
        ([1] * 4, "At most {half} bytes of requests of one client may be in memory.", 200),
    ],
)


async def check_bound(app, told, others):
    """Checks what the bound on memory tells the client 10.0.0.1, and the status for others."""
    refused = await send(at(app, "10.0.0.1"), *PREDICT)
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert refused.error.startswith(told)
    assert (await send(app, *PREDICT)).status == others


@holders
@in_virtual_time
async def test_the_bodies_in_memory_have_a_bound_and_each_client_half_of_it(clients, told, others):
    app = make_app(max_decompressed_bytes="100")
    part = gzip.compress(b" " * 100)[:-8]
    addresses = [f"10.0.0.{number}" for number in clients]
    async with trickling(app, addresses, part, {"content-encoding": "gzip"}):
        await check_bound(app, told.format(all=800, half=400), others)
    assert (await send(app, *PREDICT)).status == 200


@holders
async def test_large_answers_count_as_memory_until_their_clients_take_them(clients, told, others):
    app = make_app(max_decompressed_bytes="300000", max_in_flight="1")
    count = 33_500
    ids, headers = bytes(8 * count), {"content-type": RAW, "accept": RAW}
    asked = ("POST", "/v1/models/m:lookup?table=user", ids, headers)
    begun, taken = asyncio.Semaphore(0), asyncio.Event()

    async def take():
        begun.release()
        await taken.wait()

    tasks = []
    for number in clients:
        tasks.append(asyncio.create_task(send(at(app, f"10.0.0.{number}"), *asked, take=take)))
        await begun.acquire()
    try:
        await check_bound(app, told.format(all=2_400_000, half=1_200_000), others)
    finally:
        taken.set()
    replies = await asyncio.gather(*tasks)
    assert {(reply.status, len(reply.body)) for reply in replies} == {(200, 9 * count)}
    assert (await send(app, *PREDICT)).status == 200


def test_what_a_client_holds_beyond_its_share_takes_nothing_from_others():
    shares = Shares(5, "bytes", 10, "bytes in all")
    for _ in range(4):
        shares.add("a", 5)
    shares.take("b", 5)
    with pytest.raises(ServingError, match="At most 10"):
        shares.take("c", 1)
    for _ in range(3):
        shares.give("a", 5)
    with pytest.raises(ServingError, match="At most 10"):
        shares.take("c", 1)
    shares.give("a", 5)
    shares.take("c", 5)


async def test_forwarded_addresses_are_trusted_only_from_trusted_proxies():
    seen = []

    async def app(scope, _receive, _send):
        seen.append((scope["client"][0], scope["scheme"]))

    async def run(trusted, peer):
        settings = load_settings(model_dir="x", trusted_proxies=trusted)
        config = uvicorn_config(app, settings, "off")
        config.load()
        headers = [(b"x-forwarded-for", b"6.6.6.6, 9.9.9.9"), (b"x-forwarded-proto", b"https")]
        scope = {"type": "http", "scheme": "http", "client": (peer, 1), "headers": headers}
        await config.loaded_app({**scope, "asgi": {}}, None, None)

    for trusted, peer in (
        ("", "127.0.0.1"),
        ("10.0.0.5, 10.1.0.0/16", "127.0.0.1"),
        ("10.0.0.5, 10.1.0.0/16", "10.1.2.3"),
    ):
        await run(trusted, peer)
    assert seen == [("127.0.0.1", "http"), ("127.0.0.1", "http"), ("9.9.9.9", "https")]
    with pytest.raises(StartError, match="--trusted-proxies"):
        load_settings(model_dir="x", trusted_proxies="proxy.example")


async def test_answers_close_connections_once_the_gateway_drains():
    app = make_app(max_header_bytes="1000")
    open_ = [await send(app, *PREDICT), await send(app, "GET", "/livez")]
    app.state.plane.lifecycle.draining = True
    closing = [
        await send(app, *PREDICT),
        await send(app, "GET", "/livez"),
        await send(app, *PREDICT, headers={"x": "a" * 1001}),
        await send(create_admin_app(app.state.plane), "GET", "/admin/models"),
        await send(app, "GET", "/readyz"),
    ]
    assert [reply.headers.get("connection") for reply in open_] == [None] * 2
    assert [reply.headers.get("connection") for reply in closing] == ["close"] * 5
    assert (closing[0].status, closing[-1].status) == (200, 503)
    assert closing[-1].error == "Draining: the gateway is about to stop"


def test_a_large_head_is_refused():
    app = make_app(max_header_bytes="1000")
    assert ask(app, *PREDICT, headers={"x": "a" * 900}).status == 200
    reply = ask(app, *PREDICT, headers={"x": "a" * 1001})
    assert (reply.status, reply.error) == (431, "Request head exceeds 1000 bytes")
    assert ask(app, "GET", "/v1/models/" + "a" * 1001).status == 431
