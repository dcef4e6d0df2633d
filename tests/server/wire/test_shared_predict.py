"""Bodies of `:predict` whose shared inputs have one row per user."""

import numpy as np
import orjson
import pytest

from server.errors import ServingError
from server.limits import Limits
from server.tensors import SignatureSpec, TensorSpec, dtype_of_name
from server.wire.predict import Format, decode_predict


def spec(name, dtype, *inner):
    return TensorSpec(name, dtype_of_name(dtype), (None, *inner))


INPUTS = [
    spec("user", "string"), spec("history", "int64", 2), spec("item", "int64"),
    spec("price", "float"), spec("row_splits", "int64"),
]  # fmt: skip
SIGNATURES = {"serving_default": SignatureSpec("serving_default", {s.name: s for s in INPUTS}, {})}
ANN, BOB = {"user": "ann", "history": [1, 2]}, {"user": "bob", "history": [3, 4]}
ITEMS = [{"item": n, "price": n / 2} for n in range(3)]


def decode(**document):
    return decode_predict(orjson.dumps(document), SIGNATURES, Limits())


@pytest.mark.parametrize(
    ("shared", "given", "splits"),
    [(ANN, {}, [0, 3]), ([ANN], {}, [0, 3]), ([ANN, BOB], {"row_splits": [0, 1, 3]}, [0, 1, 3])],
)
def test_a_user_is_sent_once_and_an_item_per_instance(shared, given, splits):
    request = decode(shared=shared, instances=ITEMS, **given)
    users = shared if isinstance(shared, list) else [shared]
    assert request.format is Format.ROW
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
def test_wrong_bodies_name_what_is_wrong(document, message):
    with pytest.raises(ServingError, match=message) as caught:
        decode(**document)
    assert caught.value.code.name == "INVALID_ARGUMENT"


def test_other_signatures_ignore_the_key_as_tensorflow_serving_does():
    plain = {"serving_default": SignatureSpec("serving_default", {"item": INPUTS[2]}, {})}
    body = orjson.dumps({"shared": ANN, "instances": [1, 2]})
    assert decode_predict(body, plain, Limits()).inputs["item"].tolist() == [1, 2]
