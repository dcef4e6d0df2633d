"""TensorFlow Serving's ModelService: GetModelStatus."""

from ..engines.base import STATE_NUMBERS
from ..errors import Code, ServingError
from ..protos.modules import load_protos
from ..protos.requests import parse, target_of
from ..request import Request
from .exchange import GrpcEdge
from .prediction_service import spec_of

_NAME = "tensorflow.serving.ModelService"
# TensorFlow Serving and gRPC number the codes in the order of their declaration.
_NUMBERS = {code: number for number, code in enumerate(Code)}


class ModelService:
    """GetModelStatus. Models cannot be configured over gRPC."""

    def __init__(self, edge: GrpcEdge) -> None:
        """Creates the service on an edge."""
        self._plane = edge.plane
        self._protos = load_protos()
        self.handler = edge.service(
            _NAME,
            {
                "GetModelStatus": ("status", ("predict",), self._status),
                "HandleReloadConfigRequest": ("reload", ("predict",), self._reload),
            },
        )

    async def _status(self, request: Request, body: bytes) -> bytes:
        target = target_of(parse(self._protos.status.GetModelStatusRequest, body).model_spec)
        request.model = target.name
        response = self._protos.status.GetModelStatusResponse()
        for status in await self._plane.engine.status(spec_of(target)):
            entry = response.model_version_status.add()
            entry.version = status.version
            entry.state = STATE_NUMBERS[status.state]
            entry.status.error_code = _NUMBERS[status.code]
            entry.status.error_message = status.message
        return bytes(response.SerializeToString())

    async def _reload(self, _: Request, __: bytes) -> bytes:
        raise ServingError(
            Code.UNIMPLEMENTED,
            "The model folder decides what is served: write a version there, or use the admin API",
        )
