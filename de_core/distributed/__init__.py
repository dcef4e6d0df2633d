"""Training on several processes: synchronous workers that own shards, or parameter servers."""

from de_core.distributed.server_watch import ServerWatch

__all__ = ["ServerWatch"]
