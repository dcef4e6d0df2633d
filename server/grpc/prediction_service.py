"""TensorFlow Serving's PredictionService and ModelService, for unchanged clients."""

from functools import partial

from ..dependencies import RUN_SCOPES, DataPlane, Lease, permit_signature
from ..engines.base import STATE_NUMBERS
from ..errors import Code, failed_precondition, invalid, unimplemented
from ..protos.modules import MODEL_SERVICE, PREDICTION_SERVICE, load_protos, parse
from ..protos.requests import (
    fill_target,
    read_examples,
    read_predict,
    target_of,
    write_examples,
    write_predict,
)
from ..protos.tensors import fill_signature
from ..request import Request
from ..services.examples import EXAMPLES_WORK, run_examples
from ..services.predict import rows_of
from ..tensors import TENSOR_WORK, dtype_of_numpy
from .exchange import service

_SIGNATURES = "signature_def"
# TensorFlow Serving and gRPC number the codes in the order of their declaration.
_NUMBERS = {code: number for number, code in enumerate(Code)}


class TensorFlowServing:
    """The methods of both services, but models cannot be configured over gRPC."""

    def __init__(self, plane: DataPlane) -> None:
        """Creates the services of a data plane."""
        self._plane = plane
        self._protos = load_protos()
        multi_inference = partial(self._examples, "MultiInference")
        predictions = service(
            plane,
            PREDICTION_SERVICE,
            Predict=("predict", RUN_SCOPES, self._predict),
            Classify=("classify", RUN_SCOPES, partial(self._examples, "Classification")),
            Regress=("regress", RUN_SCOPES, partial(self._examples, "Regression")),
            MultiInference=("multi_inference", RUN_SCOPES, multi_inference),
            GetModelMetadata=("metadata", ("predict",), self._metadata),
        )
        models = service(
            plane,
            MODEL_SERVICE,
            GetModelStatus=("status", ("predict",), self._status),
            HandleReloadConfigRequest=("reload", ("predict",), self._reload),
        )
        self.handlers = (predictions, models)

    async def _predict(self, request: Request, body: bytes) -> bytes:
        codec = self._plane.codec
        size = len(body) // TENSOR_WORK
        target, inputs, names = await codec.run(
            size, "decode", read_predict, body, self._plane.limits
        )
        request.model = target.name
        permit_signature(target.signature)
        async with Lease(self._plane, target) as servable:
            signature = servable.signatures.get(target.signature)
            if signature is None:
                raise failed_precondition(f'Serving signature key "{target.signature}" not found.')
            if inputs.keys() != signature.inputs.keys():
                raise invalid(
                    "input tensor alias not found in signature, or missing: inputs expected to be "
                    f"in the set {{{','.join(sorted(signature.inputs))}}}. "
                    f"Received: {{{','.join(sorted(inputs))}}}"
                )
            for name, spec in signature.inputs.items():
                number = dtype_of_numpy(inputs[name].dtype).number
                if number != spec.dtype.number:
                    raise invalid(
                        f"Expects arg[{name}] to be {spec.dtype.name}. Received: dtype={number}"
                    )
            request.rows = rows_of(inputs)
            outputs = await self._plane.run(servable, signature.name, inputs)
        wanted = {}
        for name in names or outputs:
            if name not in outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {name} Outputs expected to be "
                    f"in the set {{{','.join(sorted(outputs))}}}."
                )
            wanted[name] = outputs[name]
        size = sum(array.nbytes for array in wanted.values())
        return await codec.run(size, "encode", write_predict, target, servable.version, wanted)

    async def _examples(self, kind: str, request: Request, body: bytes) -> bytes:
        codec = self._plane.codec
        targets, examples = await codec.run(
            len(body) * TENSOR_WORK, "decode", read_examples, kind, body, self._plane.limits
        )
        request.rows = len(examples)
        if not targets:
            raise invalid("A MultiInferenceRequest must have at least one task")
        request.model = targets[0].name
        if len({target.name for target in targets}) > 1:
            raise invalid(
                "All ModelSpecs in a MultiInferenceRequest must access the same model name."
            )
        names = [target.signature for target in targets]
        for name in names:
            if names.count(name) > 1:
                raise invalid(f"Duplicate evaluation of signature: {name}")
        # One version answers all tasks, even if a newer one arrives meanwhile.
        async with Lease(self._plane, targets[0]) as servable:
            results = []
            for each in targets:
                name, method = each.signature, each.method_name
                found = await run_examples(self._plane, servable, name, method, examples)
                results.append((each, servable.version, found))  # the run may change the version
        size = EXAMPLES_WORK * len(examples) * len(results)
        return await codec.run(size, "encode", write_examples, kind, results)

    async def _metadata(self, request: Request, body: bytes) -> bytes:
        message = parse(self._protos.GetModelMetadataRequest, body)
        target = target_of(message.model_spec)
        request.model = target.name
        fields = list(message.metadata_field)
        if not fields:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        for field in fields:
            if field != _SIGNATURES:
                raise invalid(f"Metadata field {field} is not supported")
        response = self._protos.GetModelMetadataResponse()
        definitions = self._protos.SignatureDefMap()
        async with Lease(self._plane, target) as servable:
            for signature in servable.described:
                fill_signature(definitions.signature_def[signature.name], signature)
            fill_target(response.model_spec, target, servable.version)
        response.model_spec.signature_name = ""
        response.metadata[_SIGNATURES].Pack(definitions)
        return bytes(response.SerializeToString())

    async def _status(self, request: Request, body: bytes) -> bytes:
        target = target_of(parse(self._protos.GetModelStatusRequest, body).model_spec)
        request.model = target.name
        response = self._protos.GetModelStatusResponse()
        for status in await self._plane.engine.status(target):
            entry = response.model_version_status.add()
            entry.version = status.version
            entry.state = STATE_NUMBERS[status.state]
            entry.status.error_code = _NUMBERS[status.code]
            entry.status.error_message = status.message
        return bytes(response.SerializeToString())

    async def _reload(self, _: Request, __: bytes) -> bytes:
        raise unimplemented(
            "The model folder decides what is served: write a version there, or use the admin API"
        )
