"""Tests valid and invalid request paths."""

import pytest

from server.errors import Code, ServingError
from server.wire.paths import Route, parse_path

M = {"model": "m"}


@pytest.mark.parametrize(
    ("method", "path", "verb", "parameters"),
    [
        ("POST", "/V1/MODELS/M:predict", "predict", {"model": "M"}),
        ("POST", "/v1/models/m/versions/7:classify", "classify", {**M, "version": 7}),
        ("POST", "/v1/models/m/labels/stable:lookup", "lookup", {**M, "label": "stable"}),
        ("POST", "/v1/models/a%2Fb%3Ac:predict", "predict", {"model": "a/b:c"}),
        ("POST", "/v1/models/%C3%A9t%C3%A9:predict", "predict", {"model": "été"}),
        ("GET", "/v1/models/m/versions/9223372036854775807", "status", {**M, "version": 2**63 - 1}),
        ("GET", f"/v1/models/m/versions/{'0' * 6000}7", "status", {**M, "version": 7}),
        ("GET", "/v1/models/metadata", "status", {"model": "metadata"}),
        ("GET", "/v1/models/m/labels/l%3A/metadata", "metadata", {**M, "label": "l:"}),
        ("GET", "/v1/models/m/tables", "tables", M),
        ("GET", "/v1/models/tables", "status", {"model": "tables"}),
        (
            "GET",
            "/v1/models/m/versions/2/tables/u%2Fv",
            "tables",
            {**M, "version": 2, "table": "u/v"},
        ),
    ],
)
def test_paths_are_parsed(method, path, verb, parameters):
    assert parse_path(method, path.encode()) == Route(verb, parameters)


MALFORMED = "Malformed request: {method} {path}"


@pytest.mark.parametrize(
    ("method", "path", "error"),
    [
        ("GET", "/v1/foo", MALFORMED),
        ("POST", "/v1/models", MALFORMED),
        ("POST", "/v1/models/a:b:predict", MALFORMED),
        ("POST", "/v1/models/m:predict\n", MALFORMED),
        ("POST", "/v1/models/m%00:predict", MALFORMED),
        ("POST", "/v1/models/m%0A:predict", MALFORMED),
        ("POST", "/v1/models/m%FF:predict", MALFORMED),
        ("POST", "/v1/models/m/tables", MALFORMED),
        ("PUT", "/v1/models/m:predict", MALFORMED),
        ("POST", "/v1/models/m:Predict", MALFORMED),
        ("GET", "/v1/models", "Missing model name in request."),
        *(
            ("GET", f"/v1/models/m/versions/{n}", f"Failed to convert version: {n} to numeric.")
            for n in ("9223372036854775808", "18446744073709551615", "9" * 10_000)
        ),
    ],
)
def test_a_path_that_means_nothing_is_refused(method, path, error):
    with pytest.raises(ServingError) as caught:
        parse_path(method, path.encode())
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == error.format(method=method, path=path)
