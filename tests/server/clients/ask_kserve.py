"""KServe's clients against a gateway with the model `ranker` of `make_models.py`.

Usage: `python ask_kserve.py HTTP_PORT GRPC_PORT`, in an environment with `kserve`.
"""

import asyncio
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig


def request(binary):
    """Returns a request for the score of one user and item."""
    user = InferInput("user", [1], "INT64")
    user.set_data_from_numpy(np.array([7]), binary_data=binary)
    item = InferInput("item", [1], "BYTES")
    item.set_data_from_numpy(np.array([b"lamp"], np.object_), binary_data=binary)
    return InferRequest("ranker", [user, item], parameters={"binary_data_output": binary})


def scores(answer):
    """Returns the scores in an answer."""
    return {output.name: output.as_numpy().tolist() for output in answer.outputs}["score"]


async def ask(http, grpc):
    """Sends requests over all three protocols."""
    base = f"http://127.0.0.1:{http}"
    first = InferenceRESTClient(RESTConfig(protocol="v1"))
    assert await first.is_server_live(base)
    answer = await first.infer(base, {"instances": [{"user": 7, "item": "lamp"}]}, "ranker")
    assert answer["predictions"] == [{"score": 7.5, "user": 7, "version": 1}]
    second = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await second.is_server_live(base)
    assert await second.is_server_ready(base)
    assert await second.is_model_ready(base, "ranker")
    assert not await second.is_model_ready(base, "no")
    for binary in (True, False):
        assert scores(await second.infer(base, request(binary), "ranker")) == [7.5]
    async with InferenceGRPCClient(f"127.0.0.1:{grpc}") as third:
        assert await third.is_server_live()
        assert await third.is_server_ready()
        assert await third.is_model_ready("ranker")
        assert scores(await third.infer(request(True))) == [7.5]
    await first.close()
    await second.close()


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1], sys.argv[2]))
    print("asked")
