"""Bodies of `:predict`: accepted forms, and the error message for others; and answers."""

import numpy as np
import orjson
import pytest

from server.errors import Code, ServingError
from server.limits import Limits
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire.predict import decode_predict, encode_predict
from server.wire.tensor_bytes import bytes_array

LIMITS = Limits()


def signature(**inputs: str) -> dict[str, SignatureSpec]:
    specs = {name: TensorSpec(name, dtype_of_name(dtype), None) for name, dtype in inputs.items()}
    return {"serving_default": SignatureSpec("serving_default", specs, {})}


def refused(body: str | bytes, signatures: dict, limits: Limits = LIMITS) -> ServingError:
    text = body.encode() if isinstance(body, str) else body
    with pytest.raises(ServingError) as caught:
        decode_predict(text, signatures, limits)
    return caught.value


INT = signature(x="int64")
TWO = signature(a="int32", b="string")
WRONG_TYPE = "JSON Value: {} Type: {} is not of expected type: {}"
UNEVEN = "Encountered list at unexpected "
OTHER_FORM = "Expecting {} but got {} at item 1 of input list"


@pytest.mark.parametrize(
    ("body", "spec", "message"),
    [
        ('{"inputs": [true]}', INT, WRONG_TYPE.format("true", "True", "int64")),
        ('{"inputs": [300]}', signature(x="uint8"), WRONG_TYPE.format("300", "Number", "uint8")),
        ('{"inputs": [-1]}', signature(x="uint64"), WRONG_TYPE.format("-1", "Number", "uint64")),
        ('{"inputs": [[1, 2], [3]]}', INT, UNEVEN + "size: 1 at level: 1 expected size: 2"),
        ('{"inputs": [1, [2]]}', INT, UNEVEN + "level: 1 expected < 1"),
        (
            '{"inputs": [[1], 2]}',
            INT,
            "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        ),
        (
            '{"instances": [[[1, 2]], [[3], [4]]]}',
            INT,
            "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
            "Expecting shape [1,2] but got: [2,1]",
        ),
        ('{"instances": [{"a": 1, "b": "x"}, [1]]}', TWO, OTHER_FORM.format("object", "list")),
        ('{"instances": [1, {"x": 1}]}', INT, OTHER_FORM.format("value/list", "object")),
        (
            '{"inputs": [1]}',
            TWO,
            "inputs is a plain value/list, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map",
        ),
        ('{"inputs": {"a": 1}}', TWO, "Missing named input: b in 'inputs' object."),
        ('{"inputs": {"b64": "!"}}', signature(x="string"), "Unable to base64 decode"),
    ],
)
def test_refusal_says_what_and_where(body, spec, message):
    error = refused(body, spec)
    assert (error.code, error.message) == (Code.INVALID_ARGUMENT, message)


@pytest.mark.parametrize("dtype", ["complex64", "variant", "qint8"])
def test_types_json_cannot_carry_are_unimplemented_as_columns_and_invalid_as_rows(dtype):
    error = refused('{"inputs": [1]}', signature(x=dtype))
    assert error.code is Code.UNIMPLEMENTED
    assert error.message == f"Conversion of JSON Value: 1 to type: {dtype}"
    assert refused('{"inputs": []}', signature(x=dtype)).code is Code.UNIMPLEMENTED
    rows = refused('{"instances": [1]}', signature(x=dtype))
    assert rows.code is Code.INVALID_ARGUMENT
    assert rows.message.endswith(f"Error: UNIMPLEMENTED: {error.message}")


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "float", "double"])
def test_every_float_type_takes_integers_and_decimals(dtype):
    request = decode_predict(b'{"inputs": [1, 2.5]}', signature(x=dtype), Limits())
    array = request.inputs["x"]
    assert array.dtype == dtype_of_name(dtype).numpy
    assert array.astype(float).tolist() == [1.0, 2.5]


ANY_NAME = {'a"b': "int64", "c\\d": "int64"}
BYTES = '{"instances": [{"b64": "dGY="}, "plain"]}'


@pytest.mark.parametrize(
    ("body", "spec", "inputs"),
    [
        ('{"inputs": {"b64": "eA==", "n": 1}}', signature(b64="string", n="int64"),
         {"b64": b"eA==", "n": 1}),
        (BYTES, signature(x="string"), {"x": [b"tf", b"plain"]}),
        (r'{"instances": [{"a\"b": 1, "c\\d": 2}]}', signature(**ANY_NAME),
         {'a"b': [1], "c\\d": [2]}),
        ('{"inputs": {"a": 1, "b": {"b64": "eA=="}, "c": [[]]}}', TWO, {"a": 1, "b": b"x"}),
        ('{"extra": {"a": [1]}, "instances": [1]}', INT, {"x": [1]}),
        ('{"inputs": 18446744073709551615}', signature(x="uint64"), {"x": 2**64 - 1}),
        ('{"instances": [1e300, -1e300, 1e-300]}', signature(x="float"),
         {"x": [np.inf, -np.inf, 0.0]}),
    ],
    ids=["an input named b64 among others is an input", "base64 alone is a value",
         "names may hold any character", "another column is ignored", "another key is ignored",
         "uint64 is exact", "what overflows a float is infinite"],
)  # fmt: skip
def test_unusual_bodies_are_read(body, spec, inputs):
    request = decode_predict(body.encode(), spec, LIMITS)
    assert {name: array.tolist() for name, array in request.inputs.items()} == inputs


@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_rank_beyond_the_limit_is_refused(key):
    body = f'{{"{key}": {"[" * 9}1{"]" * 9}}}'
    assert "at most 8 dimensions" in refused(body, INT).message
    slow = f'{{"{key}": {"[" * 9}NaN{"]" * 9}}}'
    assert "at most 8 dimensions" in refused(slow, signature(x="float")).message


def test_more_elements_than_the_limit_are_refused():
    body = '{"instances": [' + ",".join("1" * 101) + "]}"
    limits = Limits(max_elements=100)
    assert refused(body, INT, limits).message.startswith("A request must hold at most 100 values")


def test_an_empty_signature_name_means_the_default():
    request = decode_predict(b'{"signature_name": "", "instances": [1]}', INT, Limits())
    assert request.signature is INT["serving_default"]


def rows(**outputs):
    return encode_predict(outputs, "predictions").decode()


def columns(**outputs):
    return encode_predict(outputs, "outputs").decode()


def strings(*values):
    return bytes_array(values, (len(values),))


FLOATS = np.array([0.2, 9e6, 3e-05, 1 / 3], np.float32)
BAD = np.array([[np.nan, 1.0], [np.inf, -np.inf]], np.float32)
A, B = np.array([1, 2]), np.array([[True], [False]])
TEXTS = strings(b"a\x00", "é".encode())


@pytest.mark.parametrize(
    ("encode", "outputs", "text"),
    [
        (rows, {"y": FLOATS}, '{"predictions":[0.2,9000000.0,0.00003,0.33333334]}'),
        (rows, {"y": BAD}, '{"predictions":[[NaN,1.0],[Infinity,-Infinity]]}'),
        (columns, {"y": BAD}, '{"outputs":[[NaN,1.0],[Infinity,-Infinity]]}'),
        (columns, {"y": np.array(np.nan)}, '{"outputs":NaN}'),
        (
            rows,
            {"a": strings(b"null", b"x"), "y": BAD[:, 0]},
            '{"predictions":[{"a":"null","y":NaN},{"a":"x","y":Infinity}]}',
        ),
        # One output is bare, and several are objects.
        (rows, {"a": A}, '{"predictions":[1,2]}'),
        (rows, {"b": B, "a": A}, '{"predictions":[{"a":1,"b":[true]},{"a":2,"b":[false]}]}'),
        (columns, {"b": B, "a": A}, '{"outputs":{"a":[1,2],"b":[[true],[false]]}}'),
        (rows, {"n": np.zeros((0, 2), np.int32), "f": np.zeros(0)}, '{"predictions":[]}'),
        # Strings are text or base64 by the output's name. Bytes that are no text are base64.
        (rows, {"s": TEXTS}, '{"predictions":["a\\u0000","é"]}'),
        (rows, {"s_bytes": TEXTS}, '{"predictions":[{"b64":"YQA="},{"b64":"w6k="}]}'),
        (rows, {"s": strings(b"ok", b"\xff")}, '{"predictions":["ok",{"b64":"/w=="}]}'),
        # Arrays need not be contiguous.
        (columns, {"y": np.arange(4.0).reshape(2, 2).T}, '{"outputs":[[0.0,2.0],[1.0,3.0]]}'),
    ],
)
def test_answers_are_written(encode, outputs, text):
    assert encode(**outputs) == text


def test_int64_as_strings():
    outputs = {"n": np.array([[2**53 + 1]]), "m": np.array([1], np.int32)}
    text = encode_predict(outputs, "predictions", int64_as_string=True)
    assert text == b'{"predictions":[{"m":1,"n":["9007199254740993"]}]}'


def test_rows_of_no_shape_or_of_different_counts_are_refused():
    with pytest.raises(ServingError, match=r"^Tensor name: y has no shape information $"):
        rows(y=np.array(1))
    with pytest.raises(
        ServingError, match=r"^Tensor name: b has inconsistent batch size: 2 expecting: 1$"
    ):
        rows(a=np.array([1]), b=np.array([1, 2]))


def test_nothing_and_unwritable_types_are_refused():
    with pytest.raises(ServingError, match=r"^Cannot convert empty tensor map to JSON$"):
        rows()
    with pytest.raises(ServingError, match=r"^Failed to write JSON value for tensor type: complex"):
        columns(y=np.array([1j]))


OF_USERS = signature(
    user="string", history="int64", item="int64", price="float", row_splits="int64"
)
ANN, BOB = {"user": "ann", "history": [1, 2]}, {"user": "bob", "history": [3, 4]}
ITEMS = [{"item": n, "price": n / 2} for n in range(3)]


def decode_shared(**document):
    return decode_predict(orjson.dumps(document), OF_USERS, Limits())


@pytest.mark.parametrize(
    ("shared", "given", "splits"),
    [(ANN, {}, [0, 3]), ([ANN], {}, [0, 3]), ([ANN, BOB], {"row_splits": [0, 1, 3]}, [0, 1, 3])],
)
def test_a_user_is_sent_once_and_an_item_per_instance(shared, given, splits):
    request = decode_shared(shared=shared, instances=ITEMS, **given)
    users = shared if isinstance(shared, list) else [shared]
    assert request.key == "predictions"
    assert request.inputs["user"].tolist() == [each["user"].encode() for each in users]
    assert request.inputs["history"].tolist() == [each["history"] for each in users]
    np.testing.assert_array_equal(request.inputs["item"], [0, 1, 2])
    np.testing.assert_array_equal(request.inputs["price"], np.float32([0, 0.5, 1]))
    assert request.inputs["row_splits"].tolist() == splits
    assert request.inputs["row_splits"].dtype == np.int64


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"shared": 7, "instances": ITEMS}, "'shared' must be an object or a list of objects"),
        ({"shared": [], "instances": ITEMS}, "'shared' must be an object or a list of objects"),
        ({"shared": [ANN, BOB], "instances": ITEMS}, "'row_splits' must say which instances"),
        ({"shared": ANN}, "'shared' needs 'instances', a list, and no 'inputs'"),
        ({"shared": ANN, "inputs": {}}, "'shared' needs 'instances', a list, and no 'inputs'"),
        ({"shared": ANN, "instances": ITEMS, "inputs": {}}, "no 'inputs'"),
        ({"shared": {**ANN, "age": 7}, "instances": ITEMS}, "0 key: age of 'shared' list"),
        ({"shared": {**ANN, "user": 7}, "instances": ITEMS}, "0 key: user of 'shared' list"),
        (
            {"shared": [ANN, 7], "row_splits": [0, 1, 3], "instances": ITEMS},
            "but got list at item 1",
        ),
        ({"shared": {**ANN, **ITEMS[0]}, "instances": ITEMS}, "and 'instances' the others"),
        ({"shared": {"usr": "ann"}, "instances": ITEMS}, "Received: 'shared' with usr"),
        ({"shared": {**ANN, "row_splits": 3}, "instances": ITEMS}, "key: row_splits of 'shared'"),
        ({"shared": {"user": "ann"}, "instances": ITEMS}, "element: 0 of 'instances' list"),
        ({"shared": ANN, "instances": [{"item": 7}]}, "element: 0 of 'instances' list"),
        ({"shared": ANN, "instances": []}, "No values in 'instances' array"),
        ({"shared": ANN, "instances": ITEMS, "row_splits": ["a"]}, "not of expected type: int64"),
    ],
)
def test_wrong_bodies_with_shared_inputs_name_what_is_wrong(document, message):
    with pytest.raises(ServingError, match=message) as caught:
        decode_shared(**document)
    assert caught.value.code.name == "INVALID_ARGUMENT"


def test_other_signatures_ignore_the_key_as_tensorflow_serving_does():
    plain = signature(item="int64")
    body = orjson.dumps({"shared": ANN, "instances": [1, 2]})
    assert decode_predict(body, plain, Limits()).inputs["item"].tolist() == [1, 2]
