"""Tables whose rows are divided among processes, and what these processes need besides."""

from de_core.distributed.server_watch import ServerWatch

__all__ = ["ServerWatch"]
