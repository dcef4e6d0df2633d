"""The gateway decompresses and limits request bodies, and refuses wrong headers of bodies."""

import gzip
import zlib

import pytest

from tests.server.support.asgi import ask, make_app

PATH = "/v1/models/m:predict"
BODY = b'{"instances": [1, 2, 5]}'
ANSWER = b'{"predictions":[2.5,3.0,4.5]}'


@pytest.fixture(scope="module")
def app():
    return make_app(max_body_bytes=1000, max_decompressed_bytes=2000)


def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not(app):
    assert ask(app, "POST", PATH, BODY.ljust(1000)).status == 200
    reply = ask(app, "POST", PATH, BODY.ljust(1001))
    assert (reply.status, reply.error) == (413, "Request body exceeds 1000 bytes")
    assert reply.headers["connection"] == "close"


@pytest.mark.parametrize("size", [301, 999])
def test_a_body_beyond_the_limit_after_decompression_is_refused_uncompressed_too(size):
    app = make_app(max_body_bytes=1000, max_decompressed_bytes=100)
    reply = ask(app, "POST", PATH, BODY.ljust(size))
    assert (reply.status, reply.error) == (413, "Request body exceeds 100 bytes")


def test_a_declared_length_over_the_limit_is_refused_unread(app):
    for length in ("1001", "9" * 30):
        reply = ask(app, "POST", PATH, BODY, {"content-length": length})
        assert reply.status == 413


def test_pieces_are_counted_whatever_length_was_declared(app):
    pieces = [b" " * 400] * 3
    assert ask(app, "POST", PATH, pieces).status == 413
    assert ask(app, "POST", PATH, pieces, {"content-length": "10"}).status == 413
    assert ask(app, "POST", PATH, [BODY[:5], b"", BODY[5:]]).body == ANSWER


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZIP", "identity"])
def test_gzip_and_identity_are_understood(app, encoding):
    body = BODY if encoding == "identity" else gzip.compress(BODY)
    headers = {"content-encoding": encoding}
    assert ask(app, "POST", PATH, body, headers).body == ANSWER
    single_bytes = [body[i : i + 1] for i in range(len(body))]
    assert ask(app, "POST", PATH, single_bytes, headers).body == ANSWER


def test_a_gzip_bomb_is_refused_at_the_limit(app):
    bomb = gzip.compress(BODY.ljust(500_000))
    assert len(bomb) < 1000
    reply = ask(app, "POST", PATH, bomb, {"content-encoding": "gzip"})
    assert reply.status == 413
    assert reply.error == "Request body exceeds 2000 bytes after decompression"
    fits = gzip.compress(BODY.ljust(2000))
    assert ask(app, "POST", PATH, fits, {"content-encoding": "gzip"}).status == 200


def test_gzip_of_several_members_is_one_body_but_endless_empty_members_are_refused():
    app = make_app()
    headers = {"content-encoding": "gzip"}
    members = gzip.compress(b"") * 40
    several = gzip.compress(BODY[:9]) + members + gzip.compress(BODY[9:])
    assert ask(app, "POST", PATH, several, headers).body == ANSWER
    reply = ask(app, "POST", PATH, [members, members], headers)
    assert (reply.status, reply.error) == (400, "Request body must be at most 64 gzip members")


@pytest.mark.parametrize(
    "body",
    [BODY, b"", gzip.compress(BODY)[:-4], zlib.compress(BODY), gzip.compress(BODY) + b"x"],
    ids=["plain", "empty", "cut", "zlib", "followed"],  # gzip's own bytes contain the time
)
def test_a_body_that_is_not_gzip_is_refused(app, body):
    reply = ask(app, "POST", PATH, body, {"content-encoding": "gzip"})
    assert reply.status == 400
    assert "gzip" in reply.error


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip", "zstd"])
def test_other_encodings_are_unsupported(app, encoding):
    reply = ask(app, "POST", PATH, BODY, {"content-encoding": encoding})
    assert reply.status == 415
    assert reply.error.endswith(f"Received: {encoding}")
