"""A real gateway process with a real SavedModel.

`test_beside_tensorflow_serving.py` compares more requests with a recorded server.
"""

import pytest

MODEL = "/v1/models/ranker"


def predict(gateway, value):
    return gateway.ask("POST", f"{MODEL}:predict", value)


def test_tables_are_described(gateway):
    table = {"table": "user", "rows": 4, "dim": 4, "key_dtype": "int64"}
    assert gateway.ask("GET", f"{MODEL}/tables").json()["tables"][0] == table
    assert gateway.ask("GET", f"{MODEL}/versions/1/tables/user").json() == table


@pytest.mark.parametrize("size", [1_000_001, 5_000_000])
def test_long_bodies_are_a_413_that_arrives(gateway, size):
    reply = predict(gateway, b" " * size)
    assert (reply.status, reply.error) == (413, "Request body exceeds 1000000 bytes")
    chunked = [b" " * 50_000] * (size // 50_000 + 1)
    assert predict(gateway, chunked).status == 413


def test_an_endless_run_ends_at_its_deadline(gateway):
    forever, short = ({"signature_name": "slow", "inputs": n} for n in (2_000_000_000, 1))
    headers = {"X-Request-Timeout-Ms": "300"}
    reply = gateway.ask("POST", f"{MODEL}:predict", forever, headers)
    assert (reply.status, reply.error) == (504, "Deadline exceeded")
    gateway.wait_in_flight(0)
    assert predict(gateway, short).json() == {"outputs": 1}


def test_the_version_of_tensorflow_is_told(gateway):
    assert "tensorflow" in "".join(gateway.ask("GET", "/version").json())
