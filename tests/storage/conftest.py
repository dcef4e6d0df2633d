"""Redis servers for this folder's tests."""

import pytest

from tests.storage import servers
from tests.storage.servers import creator_for


@pytest.fixture
def start(tmp_path):
    """Starts Redis servers that a test may kill."""
    with servers.started(tmp_path) as start:
        yield start


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A Redis server."""
    with servers.started(tmp_path_factory.mktemp("redis")) as start:
        yield start()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The three nodes of a Redis Cluster."""
    with servers.started(tmp_path_factory.mktemp("cluster")) as start:
        yield servers.cluster(start)


@pytest.fixture(params=["standalone", "cluster"])
def creator(request):
    """A `kv_creator` for each kind of Redis, with a new model tag."""
    if request.param == "standalone":
        return creator_for([request.getfixturevalue("server")])
    return creator_for(request.getfixturevalue("cluster"))
