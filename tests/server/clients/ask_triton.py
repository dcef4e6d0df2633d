"""Triton's clients against a gateway with the model `ranker` of `make_models.py`.

Usage: `python ask_triton.py HTTP_PORT [GRPC_PORT]`, in an environment with `tritonclient`.
"""

import sys

import numpy as np

ROWS = {7: [0.5, 1.5, 2.5, 3.5], 0: [3.5, 4.5, 5.5, 6.5]}
UNKNOWN = [-1.0] * 4


class Asked:
    """A Triton client over HTTP or gRPC, with checks that work for both protocols."""

    def __init__(self, module, client, form=None):
        """Creates the client; `form` chooses bytes or JSON, if there is a choice."""
        self.module, self.client = module, client
        self.form = {} if form is None else {"binary_data": form}

    def infer(self, arrays, outputs=None, signature="", **more):
        inputs = []
        for name, array in arrays.items():
            datatype = "BYTES" if array.dtype == np.object_ else f"INT{array.itemsize * 8}"
            datatype = "FP32" if array.dtype == np.float32 else datatype
            inputs.append(self.module.InferInput(name, list(array.shape), datatype))
            inputs[-1].set_data_from_numpy(array, **self.form)
        wanted = [self.module.InferRequestedOutput(name, **self.form) for name in outputs or ()]
        parameters = {**more.pop("parameters", {})}
        if signature:
            parameters["signature_name"] = signature
        return self.client.infer(
            "ranker", inputs, outputs=wanted or None, parameters=parameters or None, **more
        )

    def check_tensors(self):
        items = np.array([b"lamp", "é".encode()], np.object_)
        arrays = {"user": np.array([7, 2**53 + 1]), "item": items}
        answer = self.infer(arrays, ["score", "user", "version"], request_id="7")
        assert answer.as_numpy("score").tolist() == [7.5, np.float32((2**53 + 1) / 2 + 2)]
        assert answer.as_numpy("user").tolist() == [7, 2**53 + 1]
        assert answer.as_numpy("version").dtype == np.int32
        x = np.array([[1.0], [2.5]], np.float32)
        halves = self.infer({"x": x}, ["y"], "half_plus_two").as_numpy("y")
        assert halves.tolist() == [[2.5], [3.25]]

    def check_lookups(self):
        ids = {"ids": np.array([[7, 0], [1, 7]])}
        named = ["embeddings", "found"]
        answer = self.infer(ids, named, "de_lookup/user")
        want = [[ROWS[7], ROWS[0]], [UNKNOWN, ROWS[7]]]
        assert answer.as_numpy("embeddings").tolist() == want
        assert answer.as_numpy("found").tolist() == [[True, True], [False, True]]
        bags = {"ids": np.array([7, 0, 1]), "lengths": np.array([2, 0, 1], np.int32)}
        pooled = {"combiner": "sum", "missing": "null"}
        answer = self.infer(bags, named, "de_lookup/user", parameters=pooled)
        summed = np.add(ROWS[7], ROWS[0])
        np.testing.assert_array_equal(answer.as_numpy("embeddings")[0], summed)
        assert np.isnan(answer.as_numpy("embeddings")[1:]).all()
        strings = {"ids": np.array([b"lamp", b"\xff\x00", b"?"], np.object_)}
        if self.form.get("binary_data") is not False:
            answer = self.infer(strings, named, "de_lookup/item")
            assert answer.as_numpy("found").tolist() == [True, True, False]

    def check_errors(self):
        from tritonclient.utils import InferenceServerException

        for arrays, words in (
            ({"x": np.array([1.0], np.float32)}, "inputs must be item, user"),
            ({"user": np.array([1]), "item": np.array([1])}, "must have datatype BYTES"),
        ):
            said = ""
            try:
                self.infer(arrays)
            except InferenceServerException as error:
                said = error.message()
            assert words in said, said

    def check_server(self, as_dict):
        client = self.client
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("ranker")
        assert client.is_model_ready("ranker", "1")
        assert not client.is_model_ready("no")
        assert "binary_tensor_data" in as_dict(client.get_server_metadata())["extensions"]
        told = as_dict(client.get_model_metadata("ranker"))
        assert {each["name"]: each["datatype"] for each in told["inputs"]} == {
            "user": "INT64",
            "item": "BYTES",
        }


def ask_http(port):
    """Sends requests over HTTP: in bytes, which is the default, in JSON, and compressed."""
    import tritonclient.http as module

    client = module.InferenceServerClient(f"127.0.0.1:{port}")
    for form in (True, False):
        asked = Asked(module, client, form)
        asked.check_server(dict)
        asked.check_tensors()
        asked.check_lookups()
        asked.check_errors()
    asked = Asked(module, client)
    for algorithm in ("gzip", "deflate"):
        arrays = {"x": np.ones((1, 1), np.float32)}
        named = {"request_compression_algorithm": algorithm}
        answer = asked.infer(arrays, None, "half_plus_two", **named)
        assert answer.as_numpy("y").tolist() == [[2.5]]
    config = client.get_model_config("ranker")
    assert {each["name"]: each["data_type"] for each in config["input"]} == {
        "user": "TYPE_INT64",
        "item": "TYPE_STRING",
    }
    (listed,) = client.get_model_repository_index()
    assert (listed["name"], listed["version"], listed["state"]) == ("ranker", "1", "READY")
    client.close()


def ask_grpc(port):
    """Sends requests over gRPC."""
    import tritonclient.grpc as module
    from google.protobuf.json_format import MessageToDict

    client = module.InferenceServerClient(f"127.0.0.1:{port}")
    asked = Asked(module, client)
    asked.check_server(lambda message: MessageToDict(message))
    asked.check_tensors()
    asked.check_lookups()
    asked.check_errors()
    assert client.get_model_config("ranker").config.max_batch_size == 0
    (listed,) = client.get_model_repository_index().models
    assert (listed.name, listed.version, listed.state) == ("ranker", "1", "READY")
    client.close()


if __name__ == "__main__":
    ask_http(sys.argv[1])
    if len(sys.argv) > 2:
        ask_grpc(sys.argv[2])
    print("asked")
