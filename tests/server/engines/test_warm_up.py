"""Tests which signatures a version runs before it takes traffic."""

from server.engines.embedded.warm_up import warm_up
from tests.server.support.numpy_engine import signature, tensor


class Model:
    """A model that records the signatures that run."""

    def __init__(self, *signatures):
        self.signatures = {each.name: each for each in signatures}
        self.ran = []

    def run(self, name, _inputs, _seconds):
        self.ran.append(name)


def test_a_signature_too_large_to_make_up_keeps_no_other_from_its_warm_up(tmp_path):
    large = signature("large", [tensor("x", "float", 2_000_000)], [])
    small = signature("small", [tensor("x", "float", None)], [])
    model = Model(large, small)
    assert warm_up(model, tmp_path) == 1
    assert model.ran == ["small"]
