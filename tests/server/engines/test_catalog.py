"""Which endpoints the catalog gives requests to, by the answers of their last polls."""

from __future__ import annotations

import asyncio

from server.engines.upstream.catalog import Catalog
from server.engines.upstream.endpoint import Endpoint, UpstreamAddress
from server.engines.upstream.pool import UpstreamPool
from server.errors import Code, ServingError
from server.protos.modules import load_protos

PROTOS = load_protos()


class FakeEndpoint(Endpoint):
    """Serves one version. While `error` is set, polls of it fail so."""

    def __init__(self, name: str, version: int) -> None:
        super().__init__(UpstreamAddress(name, ""))
        self.version = version
        self.error: Code | None = None

    async def call(self, *_: object) -> bytes:
        if self.error is not None:
            raise ServingError(self.error, "no answer")
        status = PROTOS.status.GetModelStatusResponse()
        status.model_version_status.add(version=self.version, state=30)
        return bytes(status.SerializeToString())


def polled(*endpoints: FakeEndpoint) -> Catalog:
    """Returns a catalog of model `m` after one poll."""
    catalog = Catalog(["m"], UpstreamPool(list(endpoints)), PROTOS)
    asyncio.run(catalog.refresh())
    return catalog


def test_an_endpoint_that_misses_two_polls_is_out_of_service_until_it_answers() -> None:
    old, new = FakeEndpoint("old", 3), FakeEndpoint("new", 4)
    new.drained = True
    catalog = polled(old, new)
    assert catalog.latest("m") == 3
    old.error = Code.DEADLINE_EXCEEDED
    asyncio.run(catalog.refresh())
    assert (catalog.endpoints_of("m", 3), catalog.latest("m")) == (["old"], 3)
    asyncio.run(catalog.refresh())
    assert catalog.latest("m") == 4  # only the drained endpoint is left
    assert not catalog.serves("m")
    assert [status.version for status in catalog.statuses("m")] == [4]
    old.error = None
    asyncio.run(catalog.refresh())
    assert (catalog.endpoints_of("m", 3), catalog.latest("m")) == (["old"], 3)


def test_a_late_endpoint_gets_no_request_that_another_can_answer() -> None:
    one, two = FakeEndpoint("one", 3), FakeEndpoint("two", 3)
    catalog = polled(one, two)
    assert catalog.endpoints_of("m", 3) == ["one", "two"]
    one.error = Code.DEADLINE_EXCEEDED
    asyncio.run(catalog.refresh())
    assert catalog.endpoints_of("m", 3) == ["two"]


def test_an_endpoint_that_cannot_be_reached_serves_nothing() -> None:
    endpoint = FakeEndpoint("u", 3)
    catalog = polled(endpoint)
    endpoint.error = Code.UNAVAILABLE
    asyncio.run(catalog.refresh())
    assert catalog.latest("m") is None
