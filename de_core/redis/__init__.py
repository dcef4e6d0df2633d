"""Rows in Redis: standalone, behind Sentinel, or a Cluster."""

from __future__ import annotations

from de_core.redis.config import RedisTableConfig
from de_core.redis.creator import RedisTableCreator

__all__ = ["RedisTableConfig", "RedisTableCreator"]
