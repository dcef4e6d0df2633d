"""Redis servers for this folder's tests."""

import pytest

from tests.storage import servers
from tests.storage.servers import creator_for


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Redis server."""
    server = servers.Server(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The three nodes of a Redis Cluster."""
    nodes = servers.cluster(tmp_path_factory.mktemp("cluster"))
    yield nodes
    for node in nodes:
        node.stop()


@pytest.fixture(params=["standalone", "cluster"])
def creator(request):
    """A `kv_creator` for each kind of Redis, with a new model tag."""
    if request.param == "standalone":
        yield creator_for([request.getfixturevalue("server")])
    else:
        yield creator_for(request.getfixturevalue("cluster"))
