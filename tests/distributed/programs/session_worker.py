"""A worker of TensorFlow 1: trains asynchronously in a MonitoredTrainingSession.

Arguments: task, checkpoint folder, steps, a file, and the seconds that a server may be silent, 100
by default. With 0 steps the worker trains until the file exists, and prints its state after each
step.
"""

import json
import os
import pathlib
import sys
import time

import tensorflow as tf

import de_core as de

tf1 = tf.compat.v1
task, folder, steps, awaited = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
patience = float([*sys.argv, 100][5])
jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
server = tf1.train.Server(tf.train.ClusterSpec(jobs), job_name="worker", task_index=task)
servers = len(jobs["ps"])
setter = tf1.train.replica_device_setter(
    cluster=tf.train.ClusterSpec(jobs), worker_device=f"/job:worker/task:{task}"
)
watch = de.distributed.ServerWatch(jobs, seconds=patience)
with watch, tf.Graph().as_default(), tf1.device(setter):
    step = tf1.train.get_or_create_global_step()
    table = de.get_variable(
        "users",
        dim=2,
        devices=[f"/job:ps/replica:0/task:{index}/device:CPU:0" for index in range(servers)],
        bp_v2=True,
        initializer=0.5,
    )
    ids = tf.constant([*range(40), 1, 2, 1], tf.int64)
    loss = tf.reduce_sum(de.embedding_lookup(table, ids))
    optimizer = de.DynamicEmbeddingOptimizer(tf1.train.GradientDescentOptimizer(1.0))
    train = optimizer.minimize(loss, global_step=step)
    rows, sizes = table.lookup(range(40)), [table.size(index) for index in range(servers)]
    with tf1.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=task == 0,
        checkpoint_dir=folder if task == 0 else None,
        # Without these filters a session would wait for workers that do not run.
        config=tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task}"]),
        save_checkpoint_secs=None,
        save_checkpoint_steps=5,
        save_summaries_steps=None,
        save_summaries_secs=None,
    ) as session:
        while steps == 0 and not pathlib.Path(awaited).exists():
            session.run(train)
            seen = session.run({"step": step, "rows": rows})
            print("STEP", time.monotonic(), seen["step"], seen["rows"].max(), flush=True)
            time.sleep(0.05)
        for _ in range(steps):
            session.run(train)
        while steps and session.run(step) < steps * len(jobs["worker"]):
            time.sleep(0.1)
        found = session.run({"rows": rows, "sizes": sizes, "step": step})
        result = {
            "rows": found["rows"].tolist(),
            "sizes": [int(each) for each in found["sizes"]],
            "step": int(found["step"]),
        }
        print("RESULT", json.dumps(result), flush=True)
