"""After an import, training continues as it would have continued with tfra."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.tfra_files import import_checkpoint
from tests.tfra_files.artefacts import DATA, assert_rows, expected
from tests.tfra_files.data.made_up_log import OPTIMIZERS, TF1_OPTIMIZERS, batches

PROGRAM = Path(__file__).with_name("continued_training.py")
#: 100 steps of Adam, and 20 of the others.
QUICK = ("new_adam", "legacy_sgd", "weights", "beside")
SLOW = sorted({f"{kind}_{name}" for kind in ("new", "legacy") for name in OPTIMIZERS} - {*QUICK})
SLOW += ["old_adam", "policies"]
TF1 = ["beside_saver_adam", *(f"saver_{name}" for name in TF1_OPTIMIZERS)]
#: Names of slots here, by those in the files.
SLOTS = {
    "saver_ftrl": {"accumulator": "accum"},
    "saver_adadelta": {"accum_grad": "accum", "accum_var": "accum_update"},
}


def differences(forks, data: Path, forms) -> dict[str, float]:
    """Runs the program on tf_keras and returns what it prints."""
    path = os.pathsep.join([str(PROGRAM.parents[2]), str(PROGRAM.parent / "data")])
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": path}
    done = forks.file(PROGRAM, data, *forms, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


def test_the_next_losses_are_those_of_tfra(forks):
    found = differences(forks, DATA, QUICK)
    assert sorted(found) == sorted(QUICK)
    assert max(found.values()) < 1e-5, found


def test_a_legacy_optimizer_refuses_the_state_of_a_new_one(forks, tmp_path):
    noted = json.loads((DATA / "expected.json").read_text())["new_adam"]
    (tmp_path / "expected.json").write_text(json.dumps({"legacy_adam": noted}))
    (tmp_path / "legacy_adam").symlink_to(DATA / "new_adam")
    with pytest.raises(AssertionError, match=r"must be of the same kind.*Received: optimizer="):
        differences(forks, tmp_path, ["legacy_adam"])


@pytest.mark.slow
def test_the_next_losses_are_those_of_tfra_under_every_optimizer(forks):
    found = differences(forks, DATA, SLOW)
    assert max(found.values()) < 1e-5, found


@pytest.mark.parametrize("form", TF1)
def test_a_graph_continues_with_the_rows_of_a_saver(form):
    saved = expected()[form]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with tf.compat.v1.variable_scope("deep"):
            table = de.get_variable("users", dim=2, devices=["/CPU:0"] * 3, initializer=0.5)
            weight = tf.compat.v1.get_variable("weight", [2, 1])
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        labels = tf.compat.v1.placeholder(tf.float32, [None, 1])
        loss = tf.reduce_mean((tf.matmul(table.lookup(ids), weight) - labels) ** 2)
        optimizer = de.DynamicEmbeddingOptimizer(TF1_OPTIMIZERS[form.rpartition("_")[2]]())
        step = tf.compat.v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, step, [weight, table])
        session.run(tf.compat.v1.global_variables_initializer())
        import_checkpoint(
            DATA / form / "model.ckpt-12",
            table,
            optimizer=optimizer,
            session=session,
            tables="deep_users",
        )
        wanted = saved["tables"]["deep_users"]
        assert_rows(table, wanted, session.run)
        slots = table.get_slot_variables(optimizer)
        assert len(slots) == len(wanted["slots"])
        for slot in slots:
            name = SLOTS.get(form, {}).get(slot.slot_name, slot.slot_name)
            assert_rows(slot, wanted["slots"][name], session.run)
        np.testing.assert_array_equal(session.run(weight), np.float32(saved["weights"][0]))
        assert session.run(step) == saved["iterations"]
        losses = [
            session.run([loss, train], {ids: batch["user_id"], labels: answers})[0]
            for batch, answers in batches(saved["iterations"], len(saved["losses"]))
        ]
        np.testing.assert_allclose(losses, saved["losses"], rtol=1e-5)


def test_a_graph_needs_a_session():
    with tf.Graph().as_default():
        table = de.get_variable("users", dim=2)
        with pytest.raises(RuntimeError, match="a session must write the rows"):
            import_checkpoint(DATA / "saver_adam/model.ckpt-12", table, slots=False)
