"""The channel to a model server: a gRPC server in this process fails as each test says."""

import asyncio
import contextlib

import grpc
import numpy as np
import pytest

from server.engines.base import ModelSpec
from server.engines.routed import RoutedEngine, Routes
from server.engines.upstream.endpoint import Endpoint
from server.engines.upstream.engine import TfServingEngine
from server.errors import Code, ServingError
from server.observability.metrics import Metrics
from server.protos.modules import MODEL_SERVICE, PREDICTION_SERVICE
from server.protos.tensors import fill_proto, fill_signature
from server.settings import load_settings
from server.wire.codec import Codec
from tests.server.support.eventually import PATIENCE_S, eventually
from tests.server.support.gateway_process import tls_files
from tests.server.support.grpc_port import PROTOS, methods_of
from tests.server.support.light_upstream import front
from tests.server.support.numpy_engine import FUNCTIONS, signature, tensor

STATS = signature("de_stats", [], [tensor("stats", "string")])


class ModelServer:
    """A model server with one version of model `m`."""

    version = 3
    output = "y"  # the name of its output
    rows = 1  # the size of its output
    names_version = True  # whether its answers name the version
    polls = 0  # number of polls that it was asked
    refuses_polls = None  # the error of every poll; None to answer

    def __init__(self):
        self.calls = []  # versions of the calls to Predict; 0 for the newest
        self.errors = []  # of the next calls to Predict, first one first
        # Calls to Predict, and polls, wait while their event is not set.
        self.answers_calls, self.answers_polls = asyncio.Event(), asyncio.Event()
        self.answers_calls.set()
        self.answers_polls.set()

    async def check_serves(self, request, context):
        wanted = request.model_spec.version.value
        if wanted not in (0, self.version):
            text = f"Servable not found for request: Specific(m, {wanted})"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)

    async def Predict(self, request, context):  # noqa: N802
        self.metadata = dict(context.invocation_metadata())
        wanted = request.model_spec.version.value
        self.calls.append(wanted)
        await self.answers_calls.wait()
        if self.errors:
            await context.abort(*self.errors.pop(0))
        await self.check_serves(request, context)
        answer = PROTOS.PredictResponse()
        if self.names_version:
            answer.model_spec.version.value = self.version
        fill_proto(answer.outputs[self.output], np.zeros(self.rows, np.float32))
        return answer

    async def GetModelMetadata(self, request, context):  # noqa: N802
        await self.check_serves(request, context)
        answer = PROTOS.GetModelMetadataResponse(model_spec=request.model_spec)
        answer.model_spec.version.value = self.version
        signatures = PROTOS.SignatureDefMap()
        for each in (FUNCTIONS["serving_default"][0], STATS):
            fill_signature(signatures.signature_def[each.name], each)
        answer.metadata["signature_def"].Pack(signatures)
        return answer

    async def GetModelStatus(self, _, context):  # noqa: N802
        self.polls += 1
        await self.answers_polls.wait()
        if self.refuses_polls is not None:
            await context.abort(self.refuses_polls, "no")
        answer = PROTOS.GetModelStatusResponse()
        answer.model_version_status.add(version=self.version, state=30)
        return answer


@contextlib.asynccontextmanager
async def serving(tls=None):
    service = ModelServer()
    server = grpc.aio.server()
    for each in (PREDICTION_SERVICE, MODEL_SERVICE):
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(
                getattr(service, method), request.FromString, response.SerializeToString
            )
            for method, (request, response) in methods_of(each).items()
            if hasattr(service, method)
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(each, handlers),))
    if tls is None:
        service.port = server.add_insecure_port("127.0.0.1:0")
    else:
        certificate, key = (path.read_bytes() for path in tls)
        credentials = grpc.ssl_server_credentials([(key, certificate)], certificate, True)
        service.port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield service
    finally:
        service.answers_polls.set()
        await server.stop(0)


def settings_of(service, **more):
    to = {"engine": "tfserving", "upstreams": f"u=127.0.0.1:{service.port}", "models": "m"}
    return load_settings(**to, poll_seconds="1000", **more)


@contextlib.asynccontextmanager
async def connected(service, token="", **files):
    endpoint = Endpoint("u", f"127.0.0.1:{service.port}")
    endpoint.open(settings_of(service, **files), token)
    try:
        yield endpoint
    finally:
        await endpoint.close()


@pytest.fixture
async def service():
    async with serving() as service:
        yield service


@pytest.fixture
async def endpoint(service):
    async with connected(service) as endpoint:
        yield endpoint


@pytest.fixture
async def engine(service):
    engine = TfServingEngine(settings_of(service), Codec().run, Metrics())
    await engine.start()
    try:
        await eventually(engine.ready)
        yield engine
    finally:
        await engine.close()


async def test_messages_may_be_larger_than_the_largest_body_of_a_request(service):
    service.rows = 1000
    request = PROTOS.PredictRequest()
    fill_proto(request.inputs["x"], np.zeros(1000, np.float32))
    async with connected(service, max_decompressed_bytes=1000) as endpoint:
        assert len(await endpoint.call("Predict", request.SerializeToString(), PATIENCE_S)) > 4000


FULL = (grpc.StatusCode.UNAVAILABLE, "full")


async def test_a_server_that_is_unavailable_twice_is_asked_three_times(service, endpoint):
    service.errors = [FULL] * 2
    await endpoint.call("Predict", b"", PATIENCE_S)
    assert service.calls == [0] * 3


async def test_few_requests_to_a_failing_server_are_retried(service, endpoint):
    """Retrying every request would give a failing model server several times the load."""
    service.errors = [FULL] * 1000
    for _ in range(200):
        with pytest.raises(ServingError, match="cannot be reached"):
            await endpoint.call("Predict", b"", PATIENCE_S)
    assert 200 < len(service.calls) <= 200 + 10
    assert endpoint.missed == 0  # the server is connected, so the polls decide


@pytest.mark.parametrize(
    "code",
    ["NOT_FOUND", "FAILED_PRECONDITION", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "INTERNAL"],
)
@pytest.mark.parametrize("spec", [ModelSpec("m"), ModelSpec("m", 3)])
async def test_an_error_of_the_model_passes_word_for_word_without_a_poll_or_a_retry(
    service, engine, code, spec
):
    said = "every key must be in the table: use another key. Received: key=99" + 9999 * ", key=99"
    service.errors = [(grpc.StatusCode[code], said)]
    servable = await engine.lease(spec)
    with pytest.raises(ServingError) as caught:
        await servable.run("serving_default", {})
    assert (caught.value.code, caught.value.message) == (Code[code], said)
    assert (service.calls, service.polls) == ([3], 1)


@pytest.mark.parametrize(
    ("code", "serves"),
    [
        ("RESOURCE_EXHAUSTED", [True, True, True]),
        ("INTERNAL", [False, False, False]),
        ("NOT_FOUND", [False, False, False]),
    ],
)
async def test_a_server_that_refuses_polls_serves_on_unless_the_error_says_more(
    service, engine, code, serves
):
    service.refuses_polls = grpc.StatusCode[code]
    for each in serves:
        await engine.reload()
        assert engine.ready() is each
    service.refuses_polls = None
    await engine.reload()
    assert engine.ready()


async def test_a_trace_header_that_grpc_cannot_carry_is_not_forwarded(service, tmp_path):
    def ask():
        with front(tmp_path, service) as gateway:
            gateway.wait_ready()
            for value in ("00-ab-cd-01", "caf\xe9", "a\tb", "x" * 9000, ""):
                headers = {"traceparent": value, "tracestate": value}
                reply = gateway.ask("POST", "/v1/models/m:predict", {"instances": [1.0]}, headers)
                assert reply.status == 200, (value, reply)
                forwarded = value if value == "00-ab-cd-01" else None
                assert service.metadata.get("traceparent") == forwarded
                assert service.metadata.get("tracestate") == forwarded

    await asyncio.to_thread(ask)


async def test_a_model_that_answers_nothing_but_data_loss_is_not_ready_and_the_log_says_why(
    service, tmp_path
):
    said = "the table user is damaged: bad checksum in slab 3"

    def ask():
        with front(tmp_path, service) as gateway:
            gateway.wait_ready()
            for errors, status in (([(grpc.StatusCode.DATA_LOSS, said)], 500), ([], 200)):
                service.errors = errors
                reply = gateway.ask("POST", "/v1/models/m:predict", {"instances": [1.0]})
                assert (reply.status, said in str(reply.body)) == (status, False)
                ready = 503 if status == 500 else 200
                gateway.wait_for("/readyz", lambda reply, wanted=ready: reply.status == wanted)
            return gateway.log()

    assert said in await asyncio.to_thread(ask)


async def test_an_answer_counts_though_a_poll_passed_meanwhile(service, engine):
    servable = await engine.lease(ModelSpec("m"))
    service.answers_calls.clear()
    service.errors = [(grpc.StatusCode.DATA_LOSS, "bad checksum")]
    asked = asyncio.ensure_future(servable.run("serving_default", {}))
    await eventually(lambda: service.calls)
    await engine.reload()
    service.answers_calls.set()
    with pytest.raises(ServingError, match="bad checksum"):
        await asked
    assert engine.ready()
    for _ in range(2):
        await engine.reload()
        assert not engine.ready()
        await servable.run("de_stats", {})  # tells nothing about the model's rows


@pytest.mark.parametrize("traffic", [{}, {"m": {"3": 1.0}}])
async def test_a_request_for_the_newest_version_follows_a_swap_without_waiting_for_a_poll(
    service, engine, traffic
):
    service.answers_polls.clear()
    servable = await RoutedEngine(engine, Routes(traffic=traffic)).lease(ModelSpec("m"))
    numbered = await engine.lease(ModelSpec("m", 3))
    service.version = 4
    await servable.run("serving_default", {})
    with pytest.raises(ServingError, match=r"Servable not found for request: Specific\(m, 3\)"):
        await numbered.run("serving_default", {})
    await eventually(lambda: service.polls == 2)  # asked for, and it waits
    service.answers_polls.set()
    await eventually(lambda: engine._catalog.latest("m") == 4)
    assert (servable.version, service.calls) == (4, [3, 0, 3])


async def test_a_version_that_nobody_requested_before_it_was_replaced_is_followed_too(
    service, engine
):
    service.answers_polls.clear()
    service.version = 4
    servable = await engine.lease(ModelSpec("m"))
    await servable.run("serving_default", {})
    assert (servable.version, service.calls) == (4, [4])
    with pytest.raises(ServingError, match=r"Servable not found for request: Specific\(m, 3\)"):
        await engine.lease(ModelSpec("m", 3))
    await eventually(lambda: service.polls == 2)


async def test_a_request_follows_a_swap_that_a_poll_found_while_it_ran(service, engine):
    servable = await engine.lease(ModelSpec("m"))
    service.answers_calls.clear()
    asked = asyncio.ensure_future(servable.run("serving_default", {}))
    await eventually(lambda: service.calls)
    service.version = 4
    await engine.reload()
    service.answers_calls.set()
    await asked
    assert (servable.version, service.calls) == (4, [3, 0])


async def test_a_version_with_other_outputs_does_not_answer_after_a_swap(service, engine):
    servable = await engine.lease(ModelSpec("m"))
    service.output = "z"
    for service.names_version in (False, True):
        assert (await servable.run("serving_default", {})).keys() == {"z"}  # no swap
        assert servable.version == 3
    service.version = 4
    with pytest.raises(ServingError, match="Version 4 of model m has just replaced") as caught:
        await servable.run("serving_default", {})
    assert (caught.value.code, caught.value.retry_after) == (Code.UNAVAILABLE, 1.0)


async def test_a_server_that_wants_a_certificate_and_a_token_gets_them(tmp_path):
    certificate, key = tls = tls_files(tmp_path)
    shown = {"upstream_ca": certificate, "upstream_cert": certificate, "upstream_key": key}
    async with serving(tls) as service:
        async with connected(service, "secret", **shown) as endpoint:
            await endpoint.call("Predict", b"", PATIENCE_S)
        assert service.metadata["authorization"] == "Bearer secret"
        async with connected(service, upstream_ca=certificate) as endpoint:
            with pytest.raises(ServingError) as caught:
                await endpoint.call("Predict", b"", PATIENCE_S)
        assert caught.value.code is Code.UNAVAILABLE
