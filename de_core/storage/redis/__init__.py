"""Rows in Redis: standalone, behind Sentinel, or a Cluster."""

from __future__ import annotations

from de_core.storage.redis.config import RedisTableConfig
from de_core.storage.redis.creator import RedisTableCreator

__all__ = ["RedisTableConfig", "RedisTableCreator"]
