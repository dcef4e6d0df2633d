"""Connects to Redis and pipelines commands."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import redis
import tensorflow as tf
from redis.backoff import ExponentialBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import RedisClusterException
from redis.retry import Retry
from redis.sentinel import Sentinel

from de_core.storage.redis.config import CLUSTER, SENTINEL, Settings

# Exceptions that a command may fail with.
_FAILURES = (redis.RedisError, RedisClusterException, OSError)
_Command = tuple[Any, ...]
_UNREACHABLE = (redis.ConnectionError, redis.TimeoutError, RedisClusterException, OSError)
_POLICY = re.compile(rb"maxmemory_policy:(\S+)")


class CheckError(redis.RedisError):
    """A server must not be used. Redis's client closes a connection whose start raises it."""


class Connection:
    """A client for a standalone Redis, Sentinel or a Cluster.

    Args:
        settings: The connection settings.
        questions: Commands that each new connection runs first.
        check: Takes the answers to `questions`, each an answer or an error. Raises a `CheckError`
            if this client must not use the server.
    """

    def __init__(
        self,
        settings: Settings,
        questions: Sequence[_Command],
        check: Callable[[Sequence[Any]], None],
    ) -> None:
        self._settings = settings
        self._questions = questions
        self._check = check
        self._client: Any = None

    def run(self, commands: Sequence[_Command]) -> list[Any]:
        """Runs commands, pipelined per server. Returns an answer or a failure per command.

        A failed command is retried `redis_retries` times. A retry uses a new connection, or in a
        Cluster the node that holds the key now. If the retries fail because the server is
        unreachable, its other failed commands are not retried. A server that has no rows for a
        command is checked again.

        Args:
            commands: The commands: a name, the key that selects the server, further arguments.

        Raises:
            CheckError: The check of a server failed.
        """
        answers: list[Any] = [None] * len(commands)
        for numbers in self._by_server(commands):
            self._run_together(commands, numbers, answers)
        return answers

    def _run_together(
        self, commands: Sequence[_Command], numbers: list[int], out: list[Any]
    ) -> None:
        try:
            client = self._connected()
            if self._settings.redis_connection_mode == CLUSTER:
                node = client.get_node_from_key(_key(commands[numbers[0]]))
                client = client.get_redis_connection(node)
            asked = [commands[number] for number in numbers]
            found = _pipelined(client, asked)
            if any(map(_has_no_rows, asked, found)):
                self._check(_pipelined(client, self._questions))
        except _FAILURES as error:
            found = [_unless_checked(error)] * len(numbers)
        lost: BaseException | None = None
        for number, answer in zip(numbers, found, strict=True):
            if isinstance(answer, _FAILURES) and lost is None:
                try:
                    answer = self._connected().execute_command(*commands[number])
                except _FAILURES as error:
                    answer = _unless_checked(error)
                    lost = error if isinstance(error, _UNREACHABLE) else None
            out[number] = answer if lost is None or not isinstance(answer, _FAILURES) else lost

    def _by_server(self, commands: Sequence[_Command]) -> list[list[int]]:
        if self._settings.redis_connection_mode != CLUSTER:
            return [[*range(len(commands))]] if commands else []
        groups = collections.defaultdict(list)
        for number, command in enumerate(commands):
            try:
                groups[self._connected().get_node_from_key(_key(command)).name].append(number)
            except _FAILURES as error:
                _unless_checked(error)
                groups[""].append(number)
        return list(groups.values())

    def _connected(self) -> Any:
        if self._client is None:

            def greet(connection: Any) -> None:
                connection.on_connect()
                self._check(_exchanged(connection, self._questions))

            self._client = _client(self._settings, greet)
        return self._client


def _pipelined(client: Any, commands: Sequence[_Command]) -> list[Any]:
    """Runs commands on one server in one pipeline. Returns an answer or an error per command.

    Sends each command as soon as it is packed. So the server works while the client packs the next
    command. redis-py's own pipelines pack all commands first.
    """
    pool = client.connection_pool
    connection = pool.get_connection()
    try:
        return _exchanged(connection, commands)
    except BaseException:
        connection.disconnect()  # Otherwise the next user would read the remaining answers.
        raise
    finally:
        pool.release(connection)


def _exchanged(connection: Any, commands: Sequence[_Command]) -> list[Any]:
    for command in commands:
        connection.send_packed_command([hiredis.pack_command(command)])
    answers: list[Any] = []
    for _ in commands:
        try:
            answers.append(connection.read_response(disable_decoding=True))
        except redis.ResponseError as error:
            answers.append(error)
    return answers


def _has_no_rows(command: _Command, answer: Any) -> bool:
    """Returns whether a hash that was read has no rows."""
    if command[0] == "EVAL" and isinstance(answer, list):  # a script that reads several hashes
        answer = answer[0]
    if command[0] in ("HMGET", "EVAL"):
        return isinstance(answer, list) and not any(row is not None for row in answer)
    return (command[0] == "HLEN" and answer == 0) or (
        command[0] == "HSCAN" and isinstance(answer, list) and not answer[1]
    )


def _unless_checked(error: Exception) -> Exception:
    """Returns an error of Redis. Raises it if a check failed, also inside a `RedisCluster`."""
    for each in (error, error.__cause__):
        if isinstance(each, CheckError):
            raise each from None
    return error


def _key(command: _Command) -> Any:
    return command[3] if command[0] == "EVAL" else command[1]


def _client(settings: Settings, greet: Callable[[Any], None]) -> Any:
    hosts = [*zip(settings.redis_host_ip, settings.redis_host_port, strict=True)]
    common: dict[str, Any] = {
        "username": settings.redis_user if settings.redis_password else None,
        "password": settings.redis_password or None,
        "socket_connect_timeout": settings.redis_connect_timeout / 1000,
        "socket_timeout": settings.redis_socket_timeout / 1000,
        "socket_keepalive": settings.redis_connect_keep_alive,
        "protocol": 2,
        "redis_connect_func": greet,
        **_tls(settings),
    }
    if settings.redis_connection_mode == CLUSTER:
        return RedisCluster(
            startup_nodes=[ClusterNode(*host) for host in hosts],
            max_connections=settings.redis_conn_pool_size,
            retry=_retry(settings),
            **common,
        )
    common["retry"] = _retry(settings)
    common["retry_on_error"] = [redis.ConnectionError, redis.TimeoutError]
    if settings.redis_connection_mode == SENTINEL:
        sentinel = Sentinel(
            hosts,
            sentinel_kwargs={
                "username": settings.redis_sentinel_user
                if settings.redis_sentinel_password
                else None,
                "password": settings.redis_sentinel_password or None,
                "socket_connect_timeout": settings.redis_sentinel_connect_timeout / 1000,
                "socket_timeout": settings.redis_sentinel_socket_timeout / 1000,
                **_tls(settings),
            },
        )
        return sentinel.master_for(
            settings.redis_master_name,
            db=settings.redis_db,
            max_connections=settings.redis_conn_pool_size,
            **common,
        )
    kind = redis.SSLConnection if common.pop("ssl", False) else redis.Connection
    pool = redis.BlockingConnectionPool(
        connection_class=kind,
        max_connections=settings.redis_conn_pool_size,
        timeout=settings.redis_wait_timeout / 1000,
        host=hosts[0][0],
        port=hosts[0][1],
        db=settings.redis_db,
        **common,
    )
    return redis.Redis(connection_pool=pool)


def _retry(settings: Settings) -> Retry:
    return Retry(ExponentialBackoff(cap=0.5, base=0.02), settings.redis_retries)


def _tls(settings: Settings) -> dict[str, Any]:
    if not settings.redis_use_tls:
        return {}
    files = {
        "ssl_ca_certs": settings.redis_tls_ca_file,
        "ssl_certfile": settings.redis_tls_cert_file,
        "ssl_keyfile": settings.redis_tls_key_file,
    }
    return {"ssl": True, **{name: file for name, file in files.items() if file}}


class RowsLostError(tf.errors.DataLossError, CheckError):
    """Redis lost rows."""


class MayEvictError(tf.errors.FailedPreconditionError, CheckError):
    """Redis may evict rows."""


class Marks:
    """The marks of one table.

    Attributes:
        generation: The value that all marks must have; None to check no marks.
        questions: Commands for a server. `check` takes the answers.
    """

    def __init__(self, table: str, names: Sequence[str]) -> None:
        self._table = table
        self.names = names
        self.generation: bytes | None = None
        self.questions = [("INFO", "memory"), *(("GET", name) for name in names)]

    def check(self, answers: Sequence[Any]) -> None:
        """Raises if a server lost rows or may evict rows.

        Args:
            answers: The answers to `questions`. An error says nothing: in a Cluster, most slices
                are on other nodes, and a user may be forbidden to call INFO.

        Raises:
            RowsLostError: A mark is missing or has another generation.
            MayEvictError: The server evicts keys when its memory is full.
        """
        info, *marks = answers
        policy = _POLICY.search(info) if isinstance(info, bytes) else None
        if policy is not None and policy[1] != b"noeviction":
            raise MayEvictError(
                None,
                None,
                f"Redis must not evict rows of table {self._table!r}, because lost rows read as "
                f"new. Received: maxmemory-policy={policy[1].decode()!r}. Set it to 'noeviction'. "
                "If Redis evicted keys already, restore a checkpoint.",
            )
        if self.generation is not None:
            self.require(self.generation, marks)

    def require(self, generation: bytes, marks: Sequence[Any]) -> None:
        """Raises RowsLostError if a mark is missing or has another generation.

        Args:
            generation: The value that the marks must have.
            marks: The slices' marks, or errors.
        """
        known = [each for each in marks if not isinstance(each, Exception)]
        lost = sum(each != generation for each in known)
        if lost:
            raise RowsLostError(
                None,
                None,
                f"Redis must keep the rows of table {self._table!r}. Received: {lost} of "
                f"{len(known)} slices without the mark that they had, as after a restart without "
                "persistence. Restore a checkpoint, or set `allow_empty` in the Redis "
                "configuration to continue without these rows.",
            )
