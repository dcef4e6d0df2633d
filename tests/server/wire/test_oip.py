"""Requests and answers of the Open Inference Protocol, in JSON and as bytes."""

import json
import struct

import numpy as np
import pytest

from server.limits import Limits
from server.tensors import dtype_of_name
from server.wire.oip import decode_infer
from server.wire.tensor_bytes import array_of_bytes, octets
from tests.server.support.asgi import ask, make_app
from tests.server.support.numpy_engine import FUNCTIONS, NumpyEngine, signature, tensor

INFER = "/v2/models/m/infer"
LENGTH = "inference-header-content-length"


STRING = [tensor("x", "string", None)]
ECHO = {"echo string": (signature("echo string", STRING, STRING), lambda x: {"x": x})}


@pytest.fixture
def app():
    return make_app(NumpyEngine({**FUNCTIONS, **ECHO}), max_elements=1000)


def infer(app, value, path=INFER):
    return ask(app, "POST", path, value)


def input_(name="x", datatype="FP32", shape=(2,), data=(1, 2)):
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def test_infer_with_flat_and_nested_data(app):
    reply = infer(app, {"id": "7", "inputs": [input_()]})
    assert reply.json() == {
        "model_name": "m", "model_version": "3", "id": "7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.0]}],
    }  # fmt: skip
    nested = infer(app, {"inputs": [input_(shape=(1, 2), data=[[1, 2]])]})
    assert nested.json()["outputs"][0]["shape"] == [1, 2]
    assert infer(app, {"inputs": [input_()]}, "/v2/models/m/versions/3/infer").status == 200


def test_bytes_parameters_and_chosen_outputs(app):
    value = {
        "parameters": {"signature_name": "both", "other": 1},
        "inputs": [input_("a", "INT64", (1,), [2**53 + 1]), input_("s", "BYTES", (1,), ["é"])],
        "outputs": [{"name": "a"}],
    }
    assert infer(app, value).json()["outputs"] == [
        {"name": "a", "datatype": "INT64", "shape": [1], "data": [2**53 + 1]}
    ]
    value["outputs"] = [{"name": "s_bytes"}]
    (strings,) = infer(app, value).json()["outputs"]
    assert (strings["datatype"], strings["data"]) == ("BYTES", ["é"])


def test_infinities_are_taken_as_predict_takes_them(app):
    body = json.dumps({"inputs": [input_(data=[1, 2])]}).replace("[1, 2]", "[NaN, -Infinity]")
    assert b'"data":[NaN,-Infinity]' in infer(app, body.encode()).body


def test_health_metadata_and_readiness(app):
    assert ask(app, "GET", "/v2").json()["name"] == "embedding-gateway"
    assert ask(app, "GET", "/v2/health/live").json() == {"live": True}
    assert ask(make_app(), "GET", "/v2/health/ready").json() == {"ready": True}
    assert ask(app, "GET", "/v2/models/m/ready").json() == {"name": "m", "ready": True}
    described = ask(app, "GET", "/v2/models/m").json()
    assert described["versions"] == ["3"]
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    assert ask(app, "GET", "/v2/models/no/ready").status == 404


@pytest.mark.parametrize(
    ("value", "status", "error"),
    [
        (b"{", 400, "JSON Parse error"),
        (b"[1]", 400, "Is not object"),
        ({}, 400, "must be an object with `inputs`"),
        ({"inputs": [{"name": "x"}]}, 400, "must be an object with `inputs`"),
        ({"inputs": [input_("y")]}, 400, "inputs must be x, each once. Received: y"),
        ({"inputs": [input_(), input_()]}, 400, "Received twice: x"),
        ({"inputs": [input_(datatype="INT64")]}, 400, "must have datatype FP32"),
        ({"inputs": [input_(shape=(3,))]}, 400, "must have 3 values for its shape"),
        ({"inputs": [input_(shape=(-2,))]}, 400, "Received: shape=[-2]"),
        ({"inputs": [input_(shape=(2**40, 2**40))]}, 400, "values. Received: shape="),
        ({"inputs": [input_(shape=(1001,))]}, 400, "of at most 1000 values"),
        ({"inputs": [input_(shape=(0, 2**62), data=[])]}, 400, "Received: shape=[0, 46116"),
        ({"inputs": [input_(shape=[1] * 9)]}, 400, "at most 8 dimensions"),
        ({"inputs": [input_(data=[1, "a"])]}, 400, "Input x: JSON Value"),
        ({"inputs": [input_()], "outputs": [{"name": "z"}]}, 400, "outputs must be of y"),
        ({"inputs": [input_()], "parameters": {"signature_name": "no"}}, 400, "not found in sig"),
        (b'{"inputs": ' + b"[" * 500_000, 400, ""),
    ],
)
def test_invalid_input_is_named_in_the_error(app, value, status, error):
    reply = infer(app, value)
    assert reply.status == status
    assert error in reply.error


def given(name, datatype, shape, content, **parameters):
    told = {"binary_data_size": len(content), **parameters}
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": told}, content


def infer_bytes(app, *inputs, signature_name="serving_default", header=None, tail=b"", **request):
    parameters = {"signature_name": signature_name, "binary_data_output": True}
    value = {
        "inputs": [described for described, _ in inputs],
        **request,
        "parameters": parameters | request.get("parameters", {}),
    }
    text = json.dumps(value).encode()
    body = b"".join([text, *(content for _, content in inputs), tail])
    return ask(app, "POST", INFER, body, headers={LENGTH: header or str(len(text))})


def outputs(reply):
    """Returns each tensor's bytes in an answer, by the sizes in its JSON."""
    assert reply.status == 200, reply.body
    length = int(reply.headers[LENGTH])
    assert reply.headers["content-type"] == "application/octet-stream"
    rest = reply.body[length:]
    found = {}
    for output in json.loads(reply.body[:length])["outputs"]:
        size = output["parameters"]["binary_data_size"]
        found[output["name"]] = (output["datatype"], output["shape"], rest[:size])
        rest = rest[size:]
    assert not rest
    return found


def test_strings_come_after_their_lengths(app):
    content = b"".join(struct.pack("<I", len(s)) + s for s in (b"", b"\xff\x00", b"lamp"))
    reply = infer_bytes(app, given("x", "BYTES", (3,), content), signature_name="echo string")
    assert outputs(reply)["x"] == ("BYTES", [3], content)


def test_inputs_and_outputs_choose_their_form_each(app):
    binary = given("a", "INT64", (2,), np.array([1, 2], "<i8").tobytes())
    text = {"name": "s", "datatype": "BYTES", "shape": [2], "data": ["x", "y"]}, b""
    reply = infer_bytes(
        app, text, binary, signature_name="both", id="7",
        outputs=[{"name": "a", "parameters": {"binary_data": False}}, {"name": "s_bytes"}],
    )  # fmt: skip
    length = int(reply.headers[LENGTH])
    answer = json.loads(reply.body[:length])
    assert answer["id"] == "7"
    assert answer["outputs"][0]["data"] == [1, 2]
    assert answer["outputs"][1]["parameters"] == {"binary_data_size": 10}
    assert reply.body[length:] == b"\1\0\0\0x\1\0\0\0y"


def test_without_binary_outputs_the_answer_is_json(app):
    one = given("x", "FP32", (1,), np.ones(1, "<f4").tobytes())
    reply = infer_bytes(app, one, parameters={"binary_data_output": False})
    assert LENGTH not in reply.headers
    assert reply.json()["outputs"][0]["data"] == [2.5]


def lookup(app, ids, lengths=None, **parameters):
    tensors = [given("ids", "INT64", ids.shape, ids.astype("<i8").tobytes())]
    if lengths is not None:
        sizes = np.array(lengths)
        kind, dtype = ("INT32", "<i4") if sizes.dtype.kind == "i" else ("FP32", "<f4")
        tensors.append(given("lengths", kind, sizes.shape, sizes.astype(dtype).tobytes()))
    return infer_bytes(app, *tensors, signature_name="de_lookup/user", parameters=parameters)


def rows(reply):
    _, shape, content = outputs(reply)["embeddings"]
    return np.frombuffer(content, "<f4").reshape(shape).tolist()


def test_lookups_of_any_shape_and_in_bags(app):
    reply = lookup(app, np.array([[7, 1], [8, 7]]))
    assert rows(reply) == [[[1, 2], [-1, -1]], [[3, 6], [1, 2]]]
    assert outputs(reply)["found"] == ("BOOL", [2, 2], b"\1\0\1\1")
    assert rows(lookup(app, np.array([[7, 8], [8, 7]]), combiner="sum")) == [[4, 8], [4, 8]]
    pooled = lookup(app, np.array([7, 8, 1]), [2, 0, 1], combiner="mean", missing="null")
    np.testing.assert_array_equal(rows(pooled), [[2, 4], [np.nan] * 2, [np.nan] * 2])
    assert np.isnan(rows(lookup(app, np.array([1]), missing="null"))).all()
    missing = lookup(app, np.array([7, 1]), missing="error")
    assert (missing.status, missing.error) == (404, "Ids not found in table user: 1 (1 of 2)")


FOUND = tensor("found", "bool", None)


@pytest.mark.parametrize(
    ("others", "outputs"),
    [
        ([], STRING),
        ([tensor("weights", "float", None)], [tensor("embeddings", "float", None, 2), FOUND]),
        ([], [tensor("embeddings", "float", None), FOUND]),
    ],
)
def test_a_user_s_signature_named_as_a_lookup_is_no_table(others, outputs):
    custom = signature("de_lookup/custom", [tensor("ids", "string", None), *others], outputs)
    assert not custom.is_table
    answer = {spec.name: np.ones([1, 2][: len(spec.shape)], "f4") for spec in outputs}
    app = make_app(NumpyEngine({"de_lookup/custom": (custom, lambda **_: answer)}))
    value = {
        "parameters": {"signature_name": "de_lookup/custom"},
        "inputs": [
            input_("ids", "BYTES", (1,), ["a"]),
            *(input_(spec.name, "FP32", (1,), [1.0]) for spec in others),
        ],
    }
    assert infer(app, value).status == 200


X = given("x", "FP32", (2,), bytes(8))
SHARED = given("x", "FP32", (1,), b"", shared_memory_region="r")


@pytest.mark.parametrize(
    ("inputs", "request_", "error"),
    [
        ([X], {"header": "9999"}, "must be the length of the body's JSON, at most"),
        ([X], {"header": "-1"}, "Received: -1"),
        ([X], {"header": "9" * 5000}, "at most"),
        ([X], {"header": "x"}, "Received: x"),
        ([X], {"header": "0"}, "JSON Parse error"),
        ([X], {"header": "10"}, "JSON Parse error"),
        ([X], {"tail": b"1"}, "Received: 1 bytes more"),
        ([given("x", "FP32", (2,), bytes(8), binary_data_size=9)], {}, "must be from 0 to 8"),
        ([given("x", "FP32", (2,), bytes(8), binary_data_size=-8)], {}, "must be from 0 to 8"),
        ([given("x", "FP32", (2,), bytes(8), binary_data_size=2**70)], {}, "must be from 0 to 8"),
        ([given("x", "FP32", (2,), bytes(8), binary_data_size=1.5)], {}, "binary_data_size"),
        ([given("x", "FP32", (3,), bytes(8))], {}, "must take 12 bytes. Received: 8 bytes"),
        ([given("x", "FP64", (1,), bytes(8))], {}, "must have datatype FP32. Received: datatype=F"),
        ([given("x", "FP99", (1,), bytes(8))], {}, "have a datatype of BF16, BOOL,"),
        ([({**X[0], "data": [1, 2]}, X[1])], {}, "either `data` or the parameter binary_data_size"),
        ([({**X[0], "parameters": {}}, b"")], {}, "Received: neither"),
        ([SHARED], {}, "shared memory is not supported"),
        ([X], {"outputs": [{"name": "y", "parameters": {"classification": 3}}]}, ":classify"),
        ([X], {"parameters": {"combiner": "sum"}}, "must come with a signature de_lookup/TABLE"),
        ([X], {"parameters": {"signature_name": 7}}, "signature_name"),
    ],
)
def test_invalid_bytes_are_named_in_the_error(app, inputs, request_, error):
    reply = infer_bytes(app, *inputs, **request_)
    assert reply.status in (400, 501)
    assert error in reply.error


@pytest.mark.parametrize(
    ("shape", "content"),
    [
        ((1,), b""),
        ((1,), b"\1\0\0"),
        ((1,), b"\2\0\0\0x"),
        ((1,), b"\xff\xff\xff\xffx"),
        ((2,), b"\1\0\0\0x\0\0\0"),
        ((1,), b"\1\0\0\0xy"),
        ((0,), b"\0"),
        ((1000,), b"\0\0\0\0"),
    ],
)
def test_strings_must_fill_their_bytes(app, shape, content):
    reply = infer_bytes(app, given("x", "BYTES", shape, content), signature_name="echo string")
    assert reply.status == 400
    assert f"must take all bytes. Received: {len(content)} bytes" in reply.error


@pytest.mark.parametrize(
    ("ids", "lengths"),
    [([7], [2]), ([7, 8], [3, -1]), ([[7]], [1]), ([7], [[1]]), ([7, 8], [1.0, 1.0])],
)
def test_lengths_must_be_those_of_the_ids(app, ids, lengths):
    reply = lookup(app, np.array(ids), lengths, combiner="sum")
    assert reply.status == 400
    assert "whose sum is the number of ids" in reply.error


@pytest.mark.parametrize(("ids", "lengths"), [(np.array([7]), [0, 1, 0]), (np.zeros((3, 0)), None)])
def test_more_bags_than_the_limit_are_refused(ids, lengths):
    reply = lookup(make_app(max_ids="2"), ids, lengths, combiner="sum")
    assert reply.status == 400
    assert reply.error == "A lookup must name at most 2 bags: send it in parts. Received: 3 bags"
    assert lookup(make_app(max_ids="3"), ids, lengths, combiner="sum").status == 200


def test_the_index_reads_no_more_values_than_the_limit(app):
    body = b'{"a":[' + b",".join([b"1"] * 1001) + b"]}"
    reply = ask(app, "POST", "/v2/repository/index", body)
    assert (reply.status, "at most 1000 values" in reply.error) == (400, True)


def test_flags_of_other_bytes_are_true():
    array = array_of_bytes(memoryview(b"\0\1\2\xff"), dtype_of_name("bool"), 4)
    assert octets(array).tobytes() == b"\0\1\1\1"


@pytest.mark.parametrize("spaces", range(8))
def test_numbers_are_aligned_wherever_the_json_ends(spaces):
    described, content = given("x", "INT64", (2,), np.array([1, 2], "<i8").tobytes())
    text = json.dumps({"inputs": [described]}).encode() + b" " * spaces
    request = decode_infer(text + content, str(len(text)).encode(), Limits())
    assert request.inputs["x"].flags.aligned
    assert request.inputs["x"].tolist() == [1, 2]
