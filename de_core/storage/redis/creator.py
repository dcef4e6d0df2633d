"""The `kv_creator` that stores rows in Redis."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.base.keras import keras
from de_core.storage.creator import KVCreator
from de_core.storage.redis.config import RedisTableConfig
from de_core.storage.row_store import RowStore


@keras.saving.register_keras_serializable(package="de_core")
class RedisTableCreator(KVCreator):
    """Stores a Variable's rows in Redis. All processes that use the same name share the rows.

    Needs `pip install "redis[hiredis]"`. Rows stay in Redis when the process ends. `clear` removes
    them. A failed read or write raises an error that tells how many keys it affects.

    Args:
        config: The connection to Redis.
        saver: Ignored. Kept for compatibility.

    Raises:
        TypeError: `config` is not a `RedisTableConfig`.

    Example:
    >>> import de_core as de
    >>> config = de.RedisTableConfig(params={"redis_connection_mode": 2})
    >>> users = de.Variable(dim=16, name="users",
    ...                     kv_creator=de.RedisTableCreator(config))  # doctest: +SKIP
    """

    def __init__(self, config: RedisTableConfig | None = None, saver: object = None) -> None:
        if not isinstance(config, RedisTableConfig):
            raise TypeError(f"`config` must be a de.RedisTableConfig. {received(config=config)}")
        super().__init__(config, saver)

    def create(
        self,
        key_dtype: tf.DType | None = None,
        value_dtype: tf.DType | None = None,
        default_value: None = None,
        name: str | None = None,
        checkpoint: None = None,
        init_size: int | None = None,
        config: RedisTableConfig | None = None,
        device: str | None = None,
    ) -> RowStore:
        """Opens the rows of one table; see `KVCreator.create`."""
        del key_dtype, value_dtype, default_value, checkpoint, init_size, config, device
        try:
            from de_core.storage.redis.store import RedisStore
        except ImportError as error:
            raise ImportError(
                "Rows in Redis need its Python client. Install it: pip install 'redis[hiredis]'. "
                f"Received: {error}."
            ) from error
        return RedisStore(str(name), self.config.settings)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments that have an effect."""
        return {"config": self.config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RedisTableCreator:
        """Makes a creator from the result of `get_config`, also from Keras's JSON of it."""
        given = config["config"]
        if isinstance(given, dict):
            given = keras.saving.deserialize_keras_object(given)
        return cls(given)
