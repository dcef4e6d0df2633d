"""Redis settings and the layout of rows, with the names that `tfra.dynamic_embedding` uses."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from de_core.base.checks import received
from de_core.base.keras import keras

CLUSTER, SENTINEL, STANDALONE = 0, 1, 2
#: Number of hash slots of a Cluster.
SLOTS = 16384


@dataclasses.dataclass(frozen=True)
class Settings:
    """The parameters of a configuration.

    Times are in milliseconds unless the name says otherwise.
    """

    redis_connection_mode: int = SENTINEL  #: 0 Cluster, 1 Sentinel, 2 standalone.
    redis_master_name: str = "master"  #: The master's name in Sentinel.
    redis_host_ip: tuple[str, ...] = ("127.0.0.1",)  #: Hosts of nodes, Sentinels or the server.
    redis_host_port: tuple[int, ...] = (6379,)  #: One port per host.
    redis_user: str = "default"
    redis_password: str = ""
    redis_db: int = 0  #: Must be 0 in a Cluster.
    redis_read_access_slave: bool = False  #: Ignored: replicas lag behind, so we never read them.
    redis_connect_keep_alive: bool = False
    redis_connect_timeout: int = 1000
    redis_socket_timeout: int = 1000  #: Timeout per answer.
    redis_conn_pool_size: int = 20
    redis_wait_timeout: int = 100000000  #: Timeout of waiting for a free pooled connection.
    redis_sentinel_user: str = "default"
    redis_sentinel_password: str = ""
    redis_sentinel_connect_timeout: int = 1000
    redis_sentinel_socket_timeout: int = 1000
    redis_retries: int = 3  #: Attempts after the first. A broken connection is replaced.
    redis_use_tls: bool = False
    redis_tls_ca_file: str = ""  #: File of trusted certificates; empty for the system's.
    redis_tls_cert_file: str = ""  #: Client certificate, if the server requires one.
    redis_tls_key_file: str = ""
    storage_slice: int = 0  #: Number of slices of a table's keys; 0: 32 in a Cluster, else 1.
    redis_hash_tags_runtime: tuple[str, ...] = ()  #: Hash tags of the slices; computed if empty.
    keys_sending_size: int = 1024  #: Most keys per command.
    using_md5_prefix_name: bool = False  #: True to use the MD5 of table names in Redis names.
    model_tag_runtime: str = "test"  #: Prefix of all names in Redis.
    table_store_mode: int = 2  #: Must be 2: rows only in Redis.
    allow_empty: bool = False  #: True to continue without rows if Redis lost them.

    @property
    def slices(self) -> int:
        """Number of slices of a table's keys."""
        if self.redis_hash_tags_runtime:
            return len(self.redis_hash_tags_runtime)
        return self.storage_slice or (32 if self.redis_connection_mode == CLUSTER else 1)

    @classmethod
    def checked(cls, parameters: Mapping[str, Any]) -> Settings:
        """Makes settings from a configuration.

        Raises:
            TypeError: A parameter has a wrong type.
            ValueError: A name is unknown, or a parameter is out of range.
        """
        known = {field.name: field for field in dataclasses.fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in parameters.items():
            name = _OLDER.get(name, name)
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"Did you mean {close[0]!r}?" if close else f"Known are {sorted(known)}."
                raise ValueError(
                    "A Redis configuration must have only known parameters. "
                    f"{received(**{name: value})} {hint}"
                )
            default: Any = known[name].default
            kind, is_right = type(default).__name__, True
            if isinstance(default, tuple):
                element = int if name == "redis_host_port" else str
                kind = f"list of {element.__name__}"
                if isinstance(value, (list, tuple)):
                    value = tuple(value)
                    is_right = all(type(each) is element for each in value)
            if isinstance(default, bool) and value in (0, 1):
                value = bool(value)
            if type(value) is not type(default) or not is_right:
                raise TypeError(f"`{name}` must be a {kind}. {received(**{name: value})}")
            chosen[name] = value
        settings = cls(**chosen)
        settings._check()
        return settings

    def _check(self) -> None:
        for name, allowed in (
            ("redis_connection_mode", (CLUSTER, SENTINEL, STANDALONE)),
            ("table_store_mode", (2,)),
            ("redis_read_access_slave", (False,)),
        ):
            if getattr(self, name) not in allowed:
                values = ", ".join(map(str, allowed))
                raise ValueError(
                    f"`{name}` must be one of {values}. " + received(**{name: getattr(self, name)})
                )
        if self.storage_slice > SLOTS:
            raise ValueError(
                f"`storage_slice` must be at most {SLOTS}, the number of slots of a Cluster. "
                + received(storage_slice=self.storage_slice)
            )
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"`{name}` must be at least {least}. {received(**{name: value})}")
        ports = [port for port in self.redis_host_port if 0 < port < 2**16]
        if not ports or not len(ports) == len(self.redis_host_port) == len(self.redis_host_ip):
            raise ValueError(
                "There must be one `redis_host_port`, from 1 to 65535, for each `redis_host_ip`. "
                + received(redis_host_ip=self.redis_host_ip, redis_host_port=self.redis_host_port)
            )
        tags = self.redis_hash_tags_runtime
        if len({*tags}) < len(tags):
            raise ValueError(
                "Each slice must have a hash tag of its own, or slices share their rows. "
                + received(redis_hash_tags_runtime=tags)
            )
        if self.redis_connection_mode == CLUSTER and self.redis_db != 0:
            raise ValueError(f"A Cluster has only `redis_db` 0. {received(redis_db=self.redis_db)}")


_AT_LEAST = {
    "redis_db": 0,
    "redis_connect_timeout": 1,
    "redis_socket_timeout": 1,
    "redis_sentinel_connect_timeout": 1,
    "redis_sentinel_socket_timeout": 1,
    "redis_conn_pool_size": 1,
    "redis_wait_timeout": 1,
    "redis_retries": 0,
    "storage_slice": 0,
    "keys_sending_size": 1,
}
# Parameters that are never written into a model file.
_SECRET = ("redis_password", "redis_sentinel_password")
_OLDER = {"model_tag_new": "model_tag_runtime"}
#: Parameters of `tfra.dynamic_embedding` that have no effect here.
_IDLE = (
    "expire_model_tag_in_seconds",
    "expire_model_tag_import",
    "expire_model_tag_runtime",
    "model_lib_abs_dir",
    "model_tag_import",
    "model_tag_old",
    "redis_connection_lifetime",
    "redis_hash_tags_import",
    "storage_slice_import",
    "using_hash_storage_slice",
    "using_model_lib",
)


@keras.saving.register_keras_serializable(package="de_core")
class RedisTableConfig:
    """Configures the connection to Redis by a JSON file, an environment variable or a dict.

    A model file of Keras contains the arguments, but no password: a loaded or cloned model takes
    the passwords from the JSON file, so write them there, not into `params`.

    Args:
        redis_config_abs_dir: Path of a JSON file of parameters; see `Settings` in
            `de_core/storage/redis/config.py`.
        redis_config_abs_dir_env: Name of an environment variable that contains such a path. If the
            variable is set, it overrides `redis_config_abs_dir`.
        params: The parameters. They override the parameters in a file.

    Raises:
        FileNotFoundError: The file does not exist.
        TypeError: A parameter has a wrong type.
        ValueError: A name is unknown, a parameter is out of range, or no parameter is set.

    Example:
    >>> import de_core as de
    >>> config = de.RedisTableConfig(params={"redis_connection_mode": 2, "redis_host_port": [6380]})
    >>> config.settings.redis_host_port
    (6380,)
    """

    def __init__(
        self,
        redis_config_abs_dir: str | os.PathLike[str] | None = None,
        redis_config_abs_dir_env: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        path = None if redis_config_abs_dir is None else os.fspath(redis_config_abs_dir)
        if redis_config_abs_dir_env is not None:
            path = os.environ.get(redis_config_abs_dir_env, path)
        if path is None and params is None:
            raise ValueError(
                "A Redis configuration needs a file, the environment variable of one, or `params`. "
                + received(
                    redis_config_abs_dir=redis_config_abs_dir,
                    redis_config_abs_dir_env=redis_config_abs_dir_env,
                )
            )
        self.redis_config_abs_dir = path
        self.redis_config_abs_dir_env = redis_config_abs_dir_env
        self._params = None if params is None else dict(params)
        parameters = {**(_read(path) if path is not None else {}), **(params or {})}
        idle = [name for name in parameters if name in _IDLE]
        for name in idle:
            del parameters[name]
        if path is not None and parameters.get("table_store_mode") in (0, 1):
            del parameters["table_store_mode"]  # Modes 0 and 1 of tfra keep copies; we do not.
        self.settings = Settings.checked(parameters)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments for `from_config`, without the passwords in `params`."""
        params = self._params
        if params is not None:
            params = {
                name: list(value) if isinstance(value, tuple) else value
                for name, value in params.items()
                if name not in _SECRET
            }
        return {
            "redis_config_abs_dir": self.redis_config_abs_dir,
            "redis_config_abs_dir_env": self.redis_config_abs_dir_env,
            "params": params,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> RedisTableConfig:
        """Makes a configuration from the result of `get_config`."""
        return cls(**config)


def _read(path: str) -> dict[str, Any]:
    try:
        found = json.loads(pathlib.Path(path).read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"A Redis configuration must be JSON. Received: {path!r}, {error}."
        ) from error
    if not isinstance(found, dict):
        raise TypeError(f"A Redis configuration must be a JSON object. {received(found=found)}")
    return found
