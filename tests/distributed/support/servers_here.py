"""A cluster of TensorFlow servers in this process: no port is chosen before a server has it."""

import tensorflow as tf


def cluster_here(**jobs: int) -> tuple[tf.train.ClusterSpec, list[tf.distribute.Server]]:
    """Starts servers in threads. Returns the cluster's addresses and the servers.

    The chief sends each server the addresses of all others, so a server starts without them.
    """
    # On few cores, TensorFlow's default is too low: a step's ops would wait for each other.
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
    addresses: dict[str, list[str]] = {}
    servers = []
    for job, count in jobs.items():
        for task in range(count):
            own = tf.train.ClusterSpec({job: {task: "127.0.0.1:0"}})
            servers.append(tf.distribute.Server(own, job, task, "grpc", config))
            port = servers[-1].target.rpartition(":")[2]
            addresses.setdefault(job, []).append(f"127.0.0.1:{port}")
    return tf.train.ClusterSpec(addresses), servers
