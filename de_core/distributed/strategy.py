"""Adapts a Variable's table to the `tf.distribute` strategy of the current scope."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from de_core.base.checks import received
from de_core.distributed.workers import DTYPES, Workers
from de_core.tables.spec import TableSpec

_found: weakref.WeakKeyDictionary[Any, Workers] = weakref.WeakKeyDictionary()


def workers_of_the_scope() -> Workers | None:
    """Returns the processes that share a new table's keys, or None if there is only this process.

    All workers must call it at the same point of their programs, when they create variables.
    """
    strategy = tf.distribute.get_strategy()
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return None
    here = len(strategy.extended.worker_devices)
    if here != 1:
        raise NotImplementedError(
            "Under MultiWorkerMirroredStrategy each worker must have one replica. "
            f"{received(replicas_of_this_worker=here)} Start one process per device."
        )
    if strategy.num_replicas_in_sync == 1:
        return None
    if strategy not in _found:
        with tf.init_scope():
            if not tf.executing_eagerly():
                raise NotImplementedError(
                    "Tables under MultiWorkerMirroredStrategy must be made in eager mode, not in "
                    f"a graph of TensorFlow 1. {received(executing_eagerly=False)}"
                )
            _found[strategy] = Workers(strategy.num_replicas_in_sync)
    return _found[strategy]


def check_spec(spec: TableSpec, creator: object) -> None:
    """Raises unless a table with this spec can be divided among workers.

    Raises:
        NotImplementedError: TensorFlow's collectives do not support the dtype, or the rows are in a
            storage. Workers can share a storage without a strategy.
        ValueError: There is more than one device.
    """
    if creator is not None:
        raise NotImplementedError(
            "Under MultiWorkerMirroredStrategy tables must be in main memory. "
            + received(kv_creator=creator)
        )
    if spec.value_dtype not in DTYPES:
        raise NotImplementedError(
            "Under MultiWorkerMirroredStrategy values must have one of the dtypes "
            f"{', '.join(dtype.name for dtype in DTYPES)}. "
            f"Received: value_dtype={spec.value_dtype.name}."
        )
    if len(spec.devices) != 1:
        raise ValueError(
            "Under MultiWorkerMirroredStrategy each worker must have one shard of a table. "
            + received(devices=list(spec.devices))
            + " Leave `devices` None."
        )


def mirrors_replicas() -> bool:
    """Returns whether the current strategy trains with synchronous replicas."""
    kinds = (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy)
    return isinstance(tf.distribute.get_strategy(), kinds)


def devices_of_the_scope() -> Sequence[str] | None:
    """Returns the devices of a new table's shards; None for one shard in this process.

    A table gets a shard per parameter server, or per CPU device with a replica.
    """
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        # The strategy names no cluster, but it connected this process to the servers.
        names = [device.name for device in tf.config.list_logical_devices("CPU")]
        servers = {tf.DeviceSpec.from_string(name).task for name in names if "/job:ps/" in name}
        return [f"/job:ps/replica:0/task:{task}/device:CPU:0" for task in sorted(servers)]
    if not isinstance(strategy, tf.distribute.MirroredStrategy):
        return None
    devices = strategy.extended.worker_devices
    return devices if all("CPU" in device for device in devices) else None
