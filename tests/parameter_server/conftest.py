"""The fixture that starts clusters."""

from tests.distributed.conftest import cluster

__all__ = ["cluster"]
