"""TensorFlow Serving's gRPC services over any engine: its clients work with them unchanged."""

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from server.call import Call, begin_call
from server.dataplane.keys import KeyRing, key_of_headers
from server.dataplane.throttle import Throttle
from server.engines.base import CLASSIFY_METHOD, REGRESS_METHOD, Engine, ModelSpec, Servable
from server.errors import HTTP_STATUS, PRIVATE_CODES, Code, ServingError, invalid
from server.observability.metrics import Metrics
from server.protos.examples import read_input
from server.protos.modules import Protos
from server.protos.tensors import fill_proto, fill_signature, to_array
from server.tensors import DEFAULT_SIGNATURE, Array, SignatureSpec, Tensors, dtype_of_name

T = TypeVar("T")

_LOG = logging.getLogger("server.grpc")
_SIGNATURES = "signature_def"
_LOOKUPS = "de_lookup/"
# TensorFlow Serving and gRPC number the codes in the order of their declaration.
_NUMBERS = {code: number for number, code in enumerate(Code)}
_STATES = {"START": 10, "LOADING": 20, "AVAILABLE": 30, "UNLOADING": 40, "END": 50}


class _Service:
    """What both services share: keys, deadlines, and errors by code."""

    def __init__(
        self,
        engine: Engine,
        protos: Protos,
        keys: KeyRing | None,
        most: float,
        metrics: Metrics | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        """Makes the service.

        Args:
            engine: What answers.
            protos: The messages.
            keys: The keys that open it; None if everyone may ask.
            most: Longest time for an answer, in seconds.
            metrics: Where requests are counted.
            throttle: How many are taken; no bound if not given.
        """
        self._metrics = metrics
        self._throttle = throttle
        self._engine = engine
        self._protos = protos
        self._keys = keys
        self._most = most

    async def _answer(self, context: Any, request: Any, work: Callable[[Any], Awaitable[T]]) -> T:
        begun = time.perf_counter()
        code = Code.CANCELLED
        try:
            self._begin(context, request)
            with self._place(request):
                answer = await work(request)
            code = Code.OK
            return answer
        except ServingError as error:
            failure = error
            code = error.code
        except Exception:
            _LOG.exception("a gRPC request failed")
            failure = ServingError(Code.INTERNAL, "")
            code = Code.INTERNAL
        finally:
            self._count(_model_of(request), code, time.perf_counter() - begun)
        if failure.code in PRIVATE_CODES:
            if failure.message:
                _LOG.error("%s", failure.message)
            failure = ServingError(failure.code, "Internal error")
        import grpc

        await context.abort(getattr(grpc.StatusCode, failure.code.value), failure.message)
        raise AssertionError("abort raises")

    def _begin(self, context: Any, request: Any) -> None:
        client = _address_of(str(context.peer()))
        if self._keys is not None:
            metadata = dict(context.invocation_metadata() or ())
            sent = [metadata.get(name) for name in ("authorization", "x-api-key")]
            headers = [v.encode() if isinstance(v, str) else v for v in sent]
            client = f"key {self._keys.check(key_of_headers(*headers), _scope_of(request))}"
        if self._throttle is not None:
            self._throttle.admit(client)
        given = context.time_remaining()
        seconds = self._most if given is None else min(given, self._most)
        begin_call(Call(deadline=time.monotonic() + seconds))

    def _place(self, request: Any) -> AbstractContextManager[None]:
        if self._throttle is None:
            return nullcontext()
        model = _model_of(request)
        # Names that nobody has are not remembered.
        return self._throttle.place(model if model in self._engine.model_names() else "")

    def _count(self, model: str, code: Code, seconds: float) -> None:
        if self._metrics is not None:
            known = model if model in self._engine.model_names() else "unknown"
            self._metrics.observe(known, "grpc", HTTP_STATUS[code], seconds)

    def _fill_spec(self, target: Any, spec: ModelSpec, version: int, signature: str) -> None:
        target.name = spec.name
        target.version.value = version
        target.signature_name = signature


def spec_of(message: Any) -> ModelSpec:
    """Returns the model, and the choice of its version, that a ModelSpec message names."""
    if not message.name:
        raise invalid("Missing ModelSpec")
    choice = message.WhichOneof("version_choice")
    return ModelSpec(
        message.name,
        message.version.value if choice == "version" else None,
        message.version_label if choice == "version_label" else None,
    )


class PredictionService(_Service):
    """Predict, Classify, Regress, MultiInference, GetModelMetadata."""

    async def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Runs a signature."""
        return await self._answer(context, request, self._predict)

    async def Classify(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Classifies examples."""
        return await self._answer(context, request, self._classify)

    async def Regress(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Gives examples values."""
        return await self._answer(context, request, self._regress)

    async def MultiInference(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Classifies examples and gives them values in one request."""
        return await self._answer(context, request, self._multi_inference)

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Tells a model's signatures."""
        return await self._answer(context, request, self._metadata)

    async def _predict(self, request: Any) -> Any:
        spec = spec_of(request.model_spec)
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        response = self._protos.predict.PredictResponse()
        async with self._engine.lease(spec) as servable:
            signature = _signature(servable, name)
            inputs = _inputs(request, signature)
            outputs = await servable.run(name, inputs)
            self._fill_spec(response.model_spec, spec, servable.version, name)
        wanted = list(request.output_filter) or list(outputs)
        for key in wanted:
            if key not in outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {key} Outputs expected to be in "
                    f"the set {{{','.join(sorted(outputs))}}}."
                )
            spec_out = signature.outputs.get(key)
            dtype = spec_out.dtype if spec_out else dtype_of_name(_dtype_name(outputs[key]))
            fill_proto(response.outputs[key], outputs[key], dtype)
        return response

    async def _classify(self, request: Any) -> Any:
        response = self._protos.classification.ClassificationResponse()
        async with self._engine.lease(spec_of(request.model_spec)) as servable:
            await self._fill_classes(servable, request.model_spec, request.input, response)
        return response

    async def _regress(self, request: Any) -> Any:
        response = self._protos.regression.RegressionResponse()
        async with self._engine.lease(spec_of(request.model_spec)) as servable:
            await self._fill_values(servable, request.model_spec, request.input, response)
        return response

    async def _multi_inference(self, request: Any) -> Any:
        response = self._protos.inference.MultiInferenceResponse()
        if not request.tasks:
            raise invalid("A MultiInferenceRequest must have at least one task")
        if len({task.model_spec.name for task in request.tasks}) > 1:
            raise invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        names = [task.model_spec.signature_name or DEFAULT_SIGNATURE for task in request.tasks]
        for name in names:
            if names.count(name) > 1:
                raise invalid(f"Duplicate evaluation of signature: {name}")
        # One version answers all tasks, whatever comes meanwhile.
        async with self._engine.lease(spec_of(request.tasks[0].model_spec)) as servable:
            for task in request.tasks:
                result = response.results.add()
                if task.method_name == CLASSIFY_METHOD:
                    filled = self._protos.classification.ClassificationResponse()
                    await self._fill_classes(servable, task.model_spec, request.input, filled)
                    result.classification_result.CopyFrom(filled.result)
                elif task.method_name == REGRESS_METHOD:
                    filled = self._protos.regression.RegressionResponse()
                    await self._fill_values(servable, task.model_spec, request.input, filled)
                    result.regression_result.CopyFrom(filled.result)
                else:
                    raise ServingError(
                        Code.UNIMPLEMENTED, f"Unsupported signature method_name: {task.method_name}"
                    )
                result.model_spec.CopyFrom(filled.model_spec)
        return response

    async def _fill_classes(
        self, servable: Servable, model: Any, examples_message: Any, response: Any
    ) -> None:
        name = model.signature_name or DEFAULT_SIGNATURE
        examples, shared = read_input(examples_message)
        _check_examples(servable, name, CLASSIFY_METHOD, "classification", len(examples))
        result = await servable.classify(name, examples, shared)
        self._fill_spec(response.model_spec, spec_of(model), servable.version, name)
        labels = result.classes.tolist() if result.classes is not None else None
        scores = result.scores.tolist() if result.scores is not None else None
        for row in range(len(examples)):
            classes = response.result.classifications.add().classes
            for column in range(len((labels or scores or [[]])[row])):
                entry = classes.add()
                if labels is not None:
                    entry.label = labels[row][column].decode(errors="replace")
                if scores is not None:
                    entry.score = scores[row][column]

    async def _fill_values(
        self, servable: Servable, model: Any, examples_message: Any, response: Any
    ) -> None:
        name = model.signature_name or DEFAULT_SIGNATURE
        examples, shared = read_input(examples_message)
        _check_examples(servable, name, REGRESS_METHOD, "regression", len(examples))
        values = await servable.regress(name, examples, shared)
        self._fill_spec(response.model_spec, spec_of(model), servable.version, name)
        for value in values.tolist():
            response.result.regressions.add().value = value

    async def _metadata(self, request: Any) -> Any:
        spec = spec_of(request.model_spec)
        fields = list(request.metadata_field)
        if not fields:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in fields:
            if field != _SIGNATURES:
                raise invalid(f"Metadata field {field} is not supported")
        response = self._protos.metadata.GetModelMetadataResponse()
        definitions = self._protos.metadata.SignatureDefMap()
        async with self._engine.lease(spec) as servable:
            for signature in servable.described:
                fill_signature(definitions.signature_def[signature.name], signature)
            self._fill_spec(response.model_spec, spec, servable.version, "")
        response.metadata[_SIGNATURES].Pack(definitions)
        return response


class ModelService(_Service):
    """GetModelStatus; the configuration of models is not changed through gRPC."""

    async def GetModelStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Tells the state of a model's versions."""
        return await self._answer(context, request, self._status)

    async def HandleReloadConfigRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Refuses: the folder of models and the admin port say what is served."""
        return await self._answer(context, request, self._reload)

    async def _status(self, request: Any) -> Any:
        spec = spec_of(request.model_spec)
        response = self._protos.status.GetModelStatusResponse()
        for status in await self._engine.status(spec):
            entry = response.model_version_status.add()
            entry.version = status.version
            entry.state = _STATES[status.state.value]
            entry.status.error_code = _NUMBERS[status.code]
            entry.status.error_message = status.message
        return response

    async def _reload(self, _: Any) -> Any:
        raise ServingError(
            Code.UNIMPLEMENTED,
            "The folder of models says what is served: write a version there, or use the admin API",
        )


def _model_of(request: Any) -> str:
    """Returns the name of the model that a request is for; empty if it names none."""
    for message in (request, *getattr(request, "tasks", ())):
        if hasattr(message, "model_spec"):
            return str(message.model_spec.name)
    return ""


def _address_of(peer: str) -> str:
    """Returns the address of `ipv4:ADDRESS:PORT`, so that it is REST's client of that address."""
    _, _, address = peer.partition(":")
    return address.rpartition(":")[0] or address


def _scope_of(request: Any) -> str:
    """Returns what a key must open for a request: rows of a table are looked up as through REST."""
    signature = request.model_spec.signature_name if hasattr(request, "model_spec") else ""
    return "lookup" if signature.startswith(_LOOKUPS) else "predict"


def _signature(servable: Servable, name: str) -> SignatureSpec:
    signature = servable.signatures.get(name)
    if signature is None:
        raise ServingError(
            Code.FAILED_PRECONDITION,
            f'Serving signature key "{name}" not found.',
        )
    return signature


def _inputs(request: Any, signature: SignatureSpec) -> Tensors:
    if request.inputs.keys() != signature.inputs.keys():
        raise invalid(
            "input tensor alias not found in signature, or missing: inputs expected to be in the "
            f"set {{{','.join(sorted(signature.inputs))}}}. "
            f"Received: {{{','.join(sorted(request.inputs))}}}"
        )
    arrays: dict[str, Array] = {}
    for name, spec in signature.inputs.items():
        proto = request.inputs[name]
        if proto.dtype != spec.dtype.number:
            raise invalid(
                f"Expects arg[{name}] to be {spec.dtype.name}. Received: dtype={proto.dtype}"
            )
        arrays[name] = to_array(proto)
    return arrays


def _check_examples(servable: Servable, name: str, method: str, kind: str, count: int) -> None:
    signature = servable.signatures.get(name)
    if signature is None:
        raise invalid(f"No signature was found with the name: {name}")
    if signature.method_name != method:
        raise invalid(
            f"Expected {kind} signature method_name to be {method}. Was: {signature.method_name}"
        )
    if not count:
        raise invalid("Input is empty.")


def _dtype_name(array: Array) -> str:
    return {"float32": "float", "float64": "double", "object": "string"}.get(
        array.dtype.name, array.dtype.name
    )
