"""Training on several processes: workers with tables of their own, and parameter servers."""

from de_core.distributed.server_watch import ServerWatch

__all__ = ["ServerWatch"]
