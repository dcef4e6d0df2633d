"""Tokens as credentials: valid ones grant their scopes, all others grant nothing."""

import base64
import hmac
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from server.errors import StartError
from server.keys import KeyRing, Tokens, keys_of
from server.settings import load_settings
from tests.server.support.asgi import LOOKUP, PREDICT, ask, make_app

ISSUER, AUDIENCE = "https://issuer.example", "gateway"
ALGORITHMS = {
    "ES256": (jwt.algorithms.ECAlgorithm, lambda: ec.generate_private_key(ec.SECP256R1())),
    "RS256": (jwt.algorithms.RSAAlgorithm, lambda: rsa.generate_private_key(65537, 2048)),
    "EdDSA": (jwt.algorithms.OKPAlgorithm, ed25519.Ed25519PrivateKey.generate),
}


def public(algorithm, key, kid):
    made = ALGORITHMS[algorithm][0].to_jwk(key.public_key(), as_dict=True)
    return {**made, "kid": kid, "alg": algorithm}


@pytest.fixture(scope="module")
def private():
    return {algorithm: make() for algorithm, (_, make) in ALGORITHMS.items()}


@pytest.fixture
def file(tmp_path, private):
    path = tmp_path / "keys.json"
    keys = [public(algorithm, key, algorithm) for algorithm, key in private.items()]
    path.write_text(json.dumps({"keys": keys}))
    return path


def token(private, algorithm="ES256", kid="", **changes):
    claims = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "shop", "exp": time.time() + 60,
        "scope": "predict", **changes,
    }  # fmt: skip
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, private[algorithm], algorithm, headers={"kid": kid or algorithm})


def app_of(file):
    return make_app(keys=KeyRing(None, Tokens(file, ISSUER, AUDIENCE)))


def status(app, text, request=PREDICT):
    return ask(app, *request, headers={"authorization": f"Bearer {text}"}).status


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_opens_its_scopes_and_no_others(file, private, algorithm):
    app = app_of(file)
    assert status(app, token(private, algorithm)) == 200
    assert status(app, token(private, algorithm), LOOKUP) == 403
    both = token(private, algorithm, scope=None, scp=["predict", "lookup"])
    assert status(app, both, LOOKUP) == 200


@pytest.mark.parametrize(
    "changes",
    [{"exp": 1}, {"exp": None}, {"nbf": 2**33}, {"aud": "other"}, {"iss": "other"}, {"sub": None},
     {"aud": None}, {"kid": "unknown"}, {"kid": "RS256"}, {"scope": 7}, {"scope": ["predict", 7]},
     {"scope": {"predict": 1}}, {"scope": True}, {"exp": [1]}, {"exp": float("inf")},
     {"exp": 10**400}, {"nbf": float("inf")}],
)  # fmt: skip
def test_an_invalid_token_grants_nothing(file, private, changes):
    assert status(app_of(file), token(private, **changes)) == 401


def by_shared_secret(claims, private):
    """Signs with a public key as if it were a shared secret. A careless verifier accepts this."""
    secret = (
        private["RS256"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"RS256"}').decode().rstrip("=")
    digest = hmac.digest(secret, f"{head}.{claims}".encode(), "sha256")
    return f"{head}.{claims}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def test_forged_tokens_open_nothing(file, private):
    app = app_of(file)
    good = token(private)
    head, claims, _ = good.split(".")
    other = token({"ES256": ALGORITHMS["ES256"][1]()})
    unsigned = jwt.encode(jwt.decode(good, options={"verify_signature": False}), None, "none")
    deep = base64.urlsafe_b64encode(b"[" * 15_000).decode()
    texts = [
        f"{deep}.{claims}.x",
        "a.b.c",
        "...",
        ".",
        "\xff.\xff.\xff",
        f"{head}.{claims}.",
        good[:-4],
    ]
    for text in (other, unsigned, by_shared_secret(claims, private), *texts):
        assert status(app, text) == 401
    assert status(app, good) == 200


def test_a_token_is_valid_until_it_expires(file, private):
    now = time.time()
    tokens = Tokens(file, ISSUER, AUDIENCE, clock=lambda: now)
    text = token(private, exp=now + 30)
    assert tokens.owner(text) == ("shop", frozenset({"predict"}))
    now += 31 + 10
    assert tokens.owner(text) is None


def test_keys_are_rotated_by_writing_the_file(file, private):
    now = time.time()
    tokens = Tokens(file, ISSUER, AUDIENCE, clock=lambda: now)
    text = token(private)
    assert tokens.owner(text)
    new = ALGORITHMS["ES256"][1]()
    file.write_text(json.dumps({"keys": [public("ES256", new, "new")]}))
    now += 2
    assert tokens.owner(text) is None
    assert tokens.owner(token({"ES256": new}, kid="new"))


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"keys": 3}', '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'],
)
def test_a_file_without_a_set_of_public_keys_is_refused(file, content):
    file.write_text(content)
    with pytest.raises(StartError, match="Received: --jwt-keys-file="):
        Tokens(file, ISSUER, AUDIENCE)


def test_private_keys_have_no_place_on_a_gateway(file, private):
    key = ALGORITHMS["ES256"][0].to_jwk(private["ES256"], as_dict=True)
    file.write_text(json.dumps({"keys": [key]}))
    with pytest.raises(StartError, match="private keys"):
        Tokens(file, ISSUER, AUDIENCE)


def test_the_error_at_the_start_names_missing_settings_of_tokens(file):
    with pytest.raises(StartError, match="--jwt-issuer and --jwt-audience"):
        keys_of(load_settings(model_dir="x", jwt_keys_file=str(file)))
    for name in ("jwt_issuer", "jwt_audience"):
        with pytest.raises(StartError, match=r"Tokens need --jwt-keys-file .*=https://us"):
            keys_of(load_settings(model_dir="x", **{name: "https://us"}))
