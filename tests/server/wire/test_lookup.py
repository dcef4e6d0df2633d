"""Bodies and answers of `:lookup`: integer and string ids, bags, pooling, missing ids, bytes."""

import base64
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.errors import ServingError
from server.limits import Limits
from server.tensors import dtype_of_name
from server.wire.lookup import (
    LookupBody,
    combined,
    decode_ids,
    decode_lookup,
    encode_lookup,
)
from server.wire.paths import RAW
from tests.server.support.asgi import ask


def ids(text: str, dtype: str = "int64", **limits: int):
    request = decode_lookup(f'{{"ids": {text}}}'.encode(), Limits(**limits))
    return decode_ids(request.ids, dtype_of_name(dtype), Limits(**limits))


@pytest.mark.parametrize(
    ("text", "flat", "lengths"),
    [
        ("[1, -1, 0]", [1, -1, 0], None),
        ('["9223372036854775807", -9223372036854775808]', [2**63 - 1, -(2**63)], None),
        ("[]", [], None),
        ("[[1, 2], [], [3]]", [1, 2, 3], [2, 0, 1]),
        ('[["1", 2], []]', [1, 2], [2, 0]),
        ("[[]]", [], [0]),
    ],
)
def test_integer_ids(text, flat, lengths):
    decoded = ids(text)
    assert decoded.flat.dtype == np.int64
    assert decoded.flat.tolist() == flat
    assert decoded.lengths == lengths


def test_string_ids():
    decoded = ids('[["a", {"b64": "/w=="}], ["é"]]', "string")
    assert decoded.flat.tolist() == [b"a", b"\xff", "é".encode()]
    assert decoded.lengths == [2, 1]


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("[1, 2.0]", "int64", "An id must be an integer, or a string of decimal digits."),
        ("[true]", "int64", "Received: id number 0: true (of type True)"),
        ('["1_0"]', "int64", "decimal digits"),
        ('[" 1"]', "int64", "decimal digits"),
        ('["\u0661"]', "int64", "decimal digits"),
        ("[[[1]]]", "int64", "id number 0: [1] (of type Array)"),
        ("[1, [2]]", "int64", "not a mix. Received: ids[0]=1"),
        ("[NaN]", "int64", "JSON Parse error"),
        ("5", "int64", "must be a list of ids"),
        ('{"a": 1}', "int64", "must be a list of ids"),
        ("[9223372036854775808]", "int64", "must fit int64. Received: 9223372036854775808"),
        ('["99999999999999999999"]', "int64", "must fit int64. Received: 99999999999999999999"),
        ("[2147483648]", "int32", "must fit int32. Received: 2147483648"),
        ("[1]", "string", "An id must be a string, as the keys of this table are strings."),
        ('[{"b64": "!"}]', "string", "Unable to base64 decode"),
    ],
)
def test_invalid_ids_are_named_in_the_error(text, dtype, message):
    with pytest.raises(ServingError) as caught:
        ids(text, dtype)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "what"), [("[[1, 2], [3, 4]]", "ids"), ("[[], [1], [], []]", "bags")]
)
def test_more_ids_or_bags_than_the_limit_are_refused(text, what):
    with pytest.raises(ServingError, match=f"at most 3 {what}: .* Received: 4 {what}"):
        ids(text, max_ids=3)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b"{", "JSON Parse error: Missing a name for object member."),
        (b"[]", "A lookup must be an object"),
        (b"{}", "missing required field `ids`"),
        (b'{"ids": [], "combiner": "max"}', "Invalid enum value 'max' - at `$.combiner`"),
        (b'{"ids": [], "combine": "sum"}', "unknown field `combine`"),
        (b'{"ids": [], "missing": 1}', "Expected `str`, got `int` - at `$.missing`"),
        (b'{"ids": ' + b"[" * 500_000, "nested too deeply"),
    ],
)
def test_bodies_that_are_no_lookup_are_refused(body, message):
    with pytest.raises(ServingError) as caught:
        decode_lookup(body, Limits())
    assert message in caught.value.message


bags = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6)


@settings(max_examples=300, deadline=None)
@given(bags, st.sampled_from(["sum", "mean", "sqrtn"]), st.sets(st.integers(0, 9)))
def test_pooling_matches_numpy(chosen, combiner, absent):
    table = np.arange(30, dtype=np.float64).reshape(10, 3)
    flat = [i for bag in chosen for i in bag]
    counted = np.array([i not in absent for i in flat], bool)
    lengths = [len(bag) for bag in chosen]
    pooled, found, _ = combined(table[flat], counted, lengths, combiner, nullable=True)
    assert pooled.shape == (len(chosen), 3)
    assert found is None or not found.all()
    found = [True] * len(chosen) if found is None else found.tolist()
    for got, bag in zip(pooled, chosen, strict=True):
        rows = [table[i] for i in bag if i not in absent]
        total = np.sum(rows, axis=0) if rows else np.full(3, np.nan)
        count = max(1, len(rows))
        divisor = {"sum": 1, "mean": count, "sqrtn": count**0.5}[combiner]
        np.testing.assert_allclose(got, total / divisor)
    assert found == [any(i not in absent for i in bag) for bag in chosen]


def test_a_missing_row_that_is_not_finite_does_not_spoil_its_bag():
    rows = np.array([[1.0], [np.nan]], np.float32)
    assert combined(rows, np.array([True, False]), [2], "sum", True)[0].tolist() == [[1.0]]


def test_integer_rows_stay_integers_only_where_they_can():
    rows = np.array([[1], [2]], np.int32)
    both = np.array([True, True])
    assert combined(rows, both, [2], "sum", False)[0].tolist() == [[3]]
    assert combined(rows, both, [2], "mean", False)[0].tolist() == [[1.5]]


@pytest.mark.parametrize(("dtype", "pooled"), [("int8", "int64"), ("uint8", "uint64")])
def test_the_sum_of_narrow_integers_does_not_wrap(dtype, pooled):
    total = combined(np.full((3, 1), 100, dtype), np.ones(3, bool), [3], "sum", False)[0]
    assert (total.tolist(), total.dtype.name) == ([[300]], pooled)


def test_rows_of_strings_are_bytes_with_their_lengths_and_have_no_sum():
    rows, found = np.array([[b"ab"], [b"c"]], object), np.array([True, False])
    request = LookupBody(None, format="b64", missing="null")
    told = json.loads(encode_lookup(request, None, rows, found))["embeddings"]
    assert base64.b64decode(told["b64"]) == b"\x02\0\0\0ab\0\0\0\0"
    assert (told["dtype"], told["shape"]) == ("string", [2, 1])
    with pytest.raises(ServingError, match="Received: combiner sum for strings"):
        combined(rows, found, [2], "sum", True)


def test_an_unknown_id_is_false_in_rows_of_booleans():
    rows, found = np.array([[True], [True]]), np.array([True, False])
    assert combined(rows, found, None, "none", True)[0].tolist() == [[True], [False]]


def test_embeddings_as_bytes():
    rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)

    def encoded(lengths, *found, missing="default"):
        request = LookupBody(None, format="b64", missing=missing)
        told = json.loads(encode_lookup(request, lengths, rows, np.array(found)))["embeddings"]
        values = np.frombuffer(base64.b64decode(told["b64"]), "<f4").tolist()
        return told["dtype"], told["shape"], values

    assert encoded(None, True, False) == ("float32", [2, 2], [1, 2, 3, 4])
    assert encoded([1, 1], True, True)[1] == [2, 1, 2]
    assert encoded([2, 0], True, True)[1] == [2, 2]
    values = encoded(None, True, False, missing="null")[2]
    np.testing.assert_array_equal(values, [1, 2, np.nan, np.nan])
    assert rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]


LOOKUP = "/v1/models/m:lookup?table=user"
BYTES = {"content-type": RAW}


def test_lookup_in_bytes_says_what_json_says(app):
    ids = np.array([7, 2**53 + 1, 1], "<i8")
    reply = ask(app, "POST", LOOKUP, ids.tobytes(), {**BYTES, "accept": RAW})
    shape = tuple(map(int, reply.headers["x-embeddings-shape"].split(",")))
    dtype = np.dtype(reply.headers["x-embeddings-dtype"])
    split = dtype.itemsize * shape[0] * shape[1]
    rows = np.frombuffer(reply.body[:split], dtype).reshape(shape)
    found = np.frombuffer(reply.body[split:], np.uint8)
    same = ask(app, "POST", LOOKUP, {"table": "user", "ids": ids.tolist()})
    assert rows.tolist() == same.json()["embeddings"]
    assert found.astype(bool).tolist() == same.json()["found"]
    assert reply.headers["x-model-version"] == "3"


def test_the_answer_alone_may_be_bytes_and_the_request_too(app):
    body = {"table": "user", "ids": [7]}
    mixed = f"application/json;q=0.1,\t{RAW};q=0.9"
    for accept in (f"text/x, {RAW}", "Application/Octet-Stream,*/*;q=0.1", f"{RAW};q=1.0", mixed):
        reply = ask(app, "POST", "/v1/models/m:lookup", body, headers={"accept": accept})
        assert np.frombuffer(reply.body[:8], "<f4").tolist() == [1, 2]
    for accept in (f"{RAW};q=0", f"application/json, {RAW}; q=0.1"):
        reply = ask(app, "POST", "/v1/models/m:lookup", body, headers={"accept": accept})
        assert reply.json()["found"] == [True]
    plain = ask(app, "POST", LOOKUP, np.array([7], "<i8").tobytes(), BYTES)
    assert plain.json() == {"embeddings": [[1.0, 2.0]], "found": [True]}


@pytest.mark.parametrize(
    ("path", "body", "error"),
    [
        (LOOKUP, b"1234567", "ids of 8 bytes each"),
        ("/v1/models/m:lookup?table=item", b"", "bytes by the Open Inference Protocol"),
        (f"{LOOKUP}&combiner=max", b"", "combiner must be one of none, sum, mean, sqrtn"),
        (f"{LOOKUP}&combiner=sum", bytes(8), "needs `ids` to be a list of lists"),
    ],
)
def test_invalid_bytes_are_named_in_the_error(app, path, body, error):
    reply = ask(app, "POST", path, body, BYTES)
    assert reply.status == 400
    assert error in reply.error
