"""Writes small files with the real tfra, and `expected.json`: their rows, slots and next losses.

Needs an environment that `tests/tfra/wheel.py` describes.

Run: python tests/tfra_files/data/make_artefacts.py FOLDER [FORM ...]

Without a form it writes all, except `old_adam`. Write that form in the environment of tfra 0.6.0,
which wrote its committed files.
"""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

# The TensorFlow of tfra 0.7.2 has Keras 2 itself, without the package tf_keras.
os.environ["TF_USE_LEGACY_KERAS"] = str(int(importlib.util.find_spec("tf_keras") is not None))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from made_up_log import OPTIMIZERS, TF1_OPTIMIZERS, batches
from tensorflow_recommenders_addons import dynamic_embedding as de

tf_keras = tf.keras
CPU = "/CPU:0"
STEPS_BEFORE, STEPS_AFTER = 12, 100
OLD = "old_adam"
EXPECTED: dict[str, Any] = {}
NEW = tf_keras.optimizers
LEGACY = getattr(NEW, "legacy", NEW)  # the only ones, by this name, for tfra 0.6.0
POLICIES = {"user": de.FrequencyRestrictPolicy, "item": de.TimestampRestrictPolicy}


def model(shards: int = 1, policies: bool = False, **options: Any) -> tf_keras.Model:
    """Returns a model with the tables `user-parameter` and `item-parameter`.

    `options` are further arguments of the layers. tfra 0.6.0 does not know all of them.
    """
    initial = tf_keras.initializers.Constant
    inputs = {
        name: tf_keras.Input([], dtype=tf.int64, name=f"{name}_id") for name in ("user", "item")
    }
    rows = [
        de.keras.layers.Embedding(
            dim,
            name=name,
            devices=[CPU] * count,
            initializer=initial(value),
            **options,
            **({"restrict_policy": POLICIES[name]} if policies else {}),
        )(inputs[name])
        for name, dim, count, value in (("user", 3, shards, 0.5), ("item", 2, 1, -0.25))
    ]
    head = tf_keras.layers.Dense(1, kernel_initializer=initial(0.2), name="head")
    return tf_keras.Model(list(inputs.values()), head(tf.concat(rows, 1)))


def trained(optimizer: Any, **options: Any) -> tuple[tf_keras.Model, Any]:
    """Returns a model after some steps, and its optimizer."""
    made = model(**options)
    optimizer = de.DynamicEmbeddingOptimizer(optimizer)
    made.compile(optimizer, "mse", run_eagerly=True)
    losses(made, 0, STEPS_BEFORE)
    return made, optimizer


def losses(made: tf_keras.Model, first: int, count: int) -> list[float]:
    """Trains some steps and returns their losses."""
    made.reset_metrics()
    return [
        float(made.train_on_batch(*batch, reset_metrics=True)) for batch in batches(first, count)
    ]


def plain(array: np.ndarray) -> Any:
    """Returns numbers that JSON keeps exactly, or strings."""
    if array.dtype == object:
        return [each.decode() for each in array]
    whole = np.issubdtype(array.dtype, np.integer)
    return (array if whole else array.astype(np.float64)).tolist()


def rows(table: Any, read: Any = lambda tensors: [each.numpy() for each in tensors]) -> Any:
    """Returns what a table holds."""
    keys, values = read(table.export())
    order = np.argsort(keys)
    return {
        "key_dtype": tf.as_dtype(table.key_dtype).name,
        "value_dtype": tf.as_dtype(table.value_dtype).name,
        "dim": int(table.dim),
        "shards": int(table.shard_num),
        "keys": plain(keys[order]),
        "values": plain(values[order]),
    }


def columns(table: Any, **options: Any) -> dict[str, Any]:
    """Returns what the restrict policy of a table counts."""
    policy = table.restrict_policy
    if policy is None:
        return {}
    name = "uses" if isinstance(policy, de.FrequencyRestrictPolicy) else "time"
    return {"columns": {name: rows(policy.status, **options)}}


def note_model(form: str, made: tf_keras.Model, optimizer: Any, count: int) -> None:
    """Notes the tables with their slots, and the losses of the steps that follow."""
    tables = {}
    for layer in made.layers:
        if isinstance(layer, de.keras.layers.Embedding):
            slots = {each.name.rpartition("/")[2]: rows(each) for each in layer.optimizer_vars}
            table = layer.params
            tables[table.name] = {**rows(table), "slots": slots, **columns(table)}
    weights = made.get_layer("head").get_weights()
    EXPECTED[form] = {
        "tables": tables,
        "iterations": int(optimizer.iterations),
        "weights": [plain(each) for each in weights],
        "losses": losses(made, STEPS_BEFORE, count),
    }


def checkpoint(folder: Path, form: str, optimizer: Any, count: int = 20, **options: Any) -> None:
    """Writes a `tf.train.Checkpoint` of a model and its optimizer."""
    made, optimizer = trained(optimizer, **options)
    tf.train.Checkpoint(model=made, optimizer=optimizer).write(str(folder / form / "ckpt"))
    note_model(form, made, optimizer, count)


def keras_files(folder: Path) -> None:
    """Writes the checkpoint of `save_weights`, a SavedModel, and a file without rows."""
    made, optimizer = trained(NEW.Adam(0.01), shards=2, short_file_name=True)
    made.save_weights(folder / "weights" / "model")
    options = tf.saved_model.SaveOptions(namespace_whitelist=["TFRA"])
    made.save(folder / "saved_model", options=options, save_traces=False)
    made.save_weights(folder / "no_rows.weights.h5")
    note_model("weights", made, optimizer, 20)
    EXPECTED["saved_model"] = EXPECTED["weights"]


def file_systems(folder: Path) -> None:
    """Writes checkpoints whose rows lie in a folder beside them."""
    creator = de.CuckooHashTableCreator(saver=de.FileSystemSaver())
    made, optimizer = trained(NEW.Adam(0.01), shards=2, kv_creator=creator)
    tf.train.Checkpoint(model=made, optimizer=optimizer).write(str(folder / "beside" / "ckpt"))
    de.keras.models.de_save_model(made, str(folder / "beside_saved_model"))
    numbered = de.train.DECheckpoint(model=made, optimizer=optimizer)
    numbered.save(str(folder / "beside_numbered" / "ckpt"))
    note_model("beside", made, optimizer, 20)
    EXPECTED["beside_saved_model"] = EXPECTED["beside_numbered-1"] = EXPECTED["beside"]
    numbered.save(str(folder / "beside_numbered" / "ckpt"))
    note_model("beside_numbered-2", made, optimizer, 0)


def patched_saver() -> Any:
    """Returns the Saver that tfra changes. It forgets tf.compat.v1.train.Saver."""
    from tensorflow_recommenders_addons.dynamic_embedding.python.ops import tf_save_restore_patch

    return tf_save_restore_patch.saver.Saver()


def tf1_savers(folder: Path, name: str, in_files: bool = False) -> None:
    """Writes the checkpoint of a TensorFlow 1 Saver."""
    form = f"beside_saver_{name}" if in_files else f"saver_{name}"
    count = STEPS_AFTER if name == "adam" else 20
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        creator = de.CuckooHashTableCreator(saver=de.FileSystemSaver() if in_files else None)
        with tf.compat.v1.variable_scope("deep"):
            table = de.get_variable(
                "users", dim=2, devices=[CPU, CPU], initializer=0.5, kv_creator=creator
            )
            ids = tf.compat.v1.placeholder(tf.int64, [None])
            labels = tf.compat.v1.placeholder(tf.float32, [None, 1])
            # The ids of a batch are distinct: here tfra loses the gradients of equal ids.
            found, wrapper = de.embedding_lookup(table, ids, name="found", return_trainable=True)
            weight = tf.compat.v1.get_variable(
                "weight", [2, 1], initializer=tf.compat.v1.constant_initializer(0.2)
            )
        loss = tf.reduce_mean((tf.matmul(found, weight) - labels) ** 2)
        optimizer = de.DynamicEmbeddingOptimizer(TF1_OPTIMIZERS[name]())
        step = tf.compat.v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, step, [weight, wrapper])
        saver = patched_saver()
        session.run(tf.compat.v1.global_variables_initializer())

        def run(first: int, count: int) -> list[float]:
            return [
                float(session.run([loss, train], {ids: batch["user_id"], labels: answers})[0])
                for batch, answers in batches(first, count)
            ]

        run(0, STEPS_BEFORE)
        (folder / form).mkdir(parents=True)
        saver.save(session, str(folder / form / "model.ckpt"), step, write_meta_graph=False)
        slots = {
            each: optimizer.get_slot(wrapper, each).params for each in optimizer.get_slot_names()
        }
        EXPECTED[form] = {
            "tables": {
                "deep_users": {
                    **rows(table, session.run),
                    "slots": {each: rows(slot, session.run) for each, slot in slots.items()},
                }
            },
            "iterations": STEPS_BEFORE,
            "weights": [plain(session.run(weight))],
            "losses": run(STEPS_BEFORE, count),
        }


def names(folder: Path, in_files: bool = False) -> None:
    """Writes tables whose names begin or end like those of others, with slots and counts."""
    form = "names_beside" if in_files else "names_saver"
    creator = de.CuckooHashTableCreator(saver=de.FileSystemSaver() if in_files else None)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ids, loss, wrappers, tables = tf.range(1, 4, dtype=tf.int64), 0.0, {}, {}
        for rate, name in enumerate(("user", "user_city", "user_linear"), 1):
            policy = POLICIES["user"] if name == "user" else None
            tables[name] = de.get_variable(
                name, dim=2, initializer=0.5, kv_creator=creator, restrict_policy=policy
            )
            found, wrappers[name] = de.embedding_lookup(
                tables[name], ids, name=f"found_{name}", return_trainable=True
            )
            loss += rate * tf.reduce_sum(found**2)
        optimizer = de.DynamicEmbeddingOptimizer(TF1_OPTIMIZERS["adam"]())
        step = tf.compat.v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, step, list(wrappers.values()))
        saver = patched_saver()
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(2):
            session.run(train)
        (folder / form).mkdir(parents=True)
        saver.save(session, str(folder / form / "model.ckpt"), step, write_meta_graph=False)
        read = session.run
        EXPECTED[form] = {
            "tables": {
                name: {
                    **rows(table, read),
                    "slots": {
                        slot: rows(optimizer.get_slot(wrappers[name], slot).params, read)
                        for slot in optimizer.get_slot_names()
                    },
                    **columns(table, read=read),
                }
                for name, table in tables.items()
            }
        }


def other_dtypes(folder: Path) -> None:
    """Writes checkpoints and key-value files of untrained tables with several dtypes."""
    kinds = [
        ("plain", tf.int64, tf.float32, 2, 1),
        ("narrow", tf.int32, tf.float64, 3, 2),
        ("words", tf.string, tf.float32, 2, 2),
        ("halves", tf.int64, tf.half, 4, 1),
        ("counts", tf.string, tf.int64, 1, 1),
        ("empty", tf.int64, tf.float32, 2, 2),
    ]
    tables = {}
    for name, key_dtype, value_dtype, dim, shards in kinds:
        initial = np.zeros(dim, value_dtype.as_numpy_dtype)
        options = {"partitioner": by_length} if key_dtype == tf.string else {}
        table = de.get_variable(
            f"scope/{name}",
            key_dtype,
            value_dtype,
            dim,
            devices=[CPU] * shards,
            initializer=tf.constant(initial),
            **options,
        )
        count = 0 if name == "empty" else 7
        numbers = np.arange(count) ** 3 - 20
        keys = np.array([f"word {each}" for each in numbers]) if key_dtype == tf.string else numbers
        values = np.arange(count * dim).reshape(count, dim) / (4 if value_dtype.is_floating else 1)
        if count:
            table.upsert(tf.constant(keys, key_dtype), tf.cast(tf.constant(values), value_dtype))
        tables[name] = table
    tf.train.Checkpoint(tables=tables).write(str(folder / "dtypes" / "ckpt"))
    EXPECTED["dtypes"] = {"tables": {each.name: rows(each) for each in tables.values()}}
    for name, table in tables.items():
        save = table.save_to_file_system
        if name == "words":
            save(str(folder / "string_files"))
        elif name not in ("counts", "empty"):
            save(str(folder / f"files_{name}"))
            EXPECTED[f"files_{name}"] = {"tables": {f"scope_{name}": rows(table)}}
    short = de.get_variable("scope/short", tf.int32, tf.float32, 2)
    short.upsert(tf.range(1, 24, 3), tf.reshape(tf.range(16.0), [8, 2]))
    short.save_to_file_system(str(folder / "files_short"))
    EXPECTED["files_short"] = {"tables": {"scope_short": rows(short)}}
    for rank in range(2):  # two processes with their own rows, as under Horovod
        part = de.get_variable(f"part_{rank}", dim=2)
        part.upsert(tf.constant([rank, rank + 2], tf.int64), tf.fill([2, 2], float(rank)))
        name = [f"user_mht_1of1_rank{rank}_size2"]
        part.save_to_file_system(str(folder / "files_of_two"), 2, rank, name)
    tables["narrow"].tables[0].save_to_file_system(str(folder / "files_of_one_shard"))


def modules(folder: Path) -> None:
    """Writes a SavedModel of `tf.saved_model.save`, and one of TensorFlow 1's builder."""
    numbers = tf.reshape(tf.range(10.0), [5, 2])
    module = tf.Module()
    module.table = de.get_variable("places", dim=2, devices=[CPU] * 2, initializer=0.5)
    module.table.upsert(tf.range(5, dtype=tf.int64), numbers)
    spec = tf.TensorSpec([None], tf.int64)
    module.look = tf.function(lambda ids: module.table.lookup(ids), input_signature=[spec])
    options = tf.saved_model.SaveOptions(namespace_whitelist=["TFRA"])
    tf.saved_model.save(module, str(folder / "module_saved_model"), options=options)
    EXPECTED["module_saved_model"] = {"tables": {"places": rows(module.table)}}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = de.get_variable("deep/places", dim=2, devices=[CPU] * 2, initializer=0.5)
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        found = table.lookup(ids)
        upsert = table.upsert(tf.range(5, dtype=tf.int64), tf.reshape(tf.range(10.0), [5, 2]))
        session.run(upsert)
        builder = tf.compat.v1.saved_model.Builder(str(folder / "builder_saved_model"))
        signature = tf.compat.v1.saved_model.predict_signature_def({"ids": ids}, {"rows": found})
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
        EXPECTED["builder_saved_model"] = {"tables": {"deep_places": rows(table, session.run)}}


def by_length(keys: tf.Tensor, shards: int) -> tf.Tensor:
    """Distributes strings. tfra's own function distributes only numbers."""
    return tf.strings.length(keys) % shards


def forms() -> dict[str, Any]:
    """Returns the functions that write, by a name for each."""
    made = {"keras": keras_files, "beside": file_systems, "dtypes": other_dtypes}
    made["modules"], made["names"] = modules, names
    made["names_beside"] = lambda folder: names(folder, in_files=True)
    made["policies"] = lambda folder: checkpoint(folder, "policies", NEW.Adam(0.01), policies=True)
    made[OLD] = lambda folder: checkpoint(folder, OLD, NEW.Adam(0.01))
    for name, make in OPTIMIZERS.items():
        options = {"count": STEPS_AFTER, "shards": 3} if name == "adam" else {}
        for form, kind in ((f"new_{name}", NEW), (f"legacy_{name}", LEGACY)):
            made[form] = lambda folder, f=form, m=make, k=kind, o=options: checkpoint(
                folder, f, m(k), **o
            )
    for name in TF1_OPTIMIZERS:
        made[f"saver_{name}"] = lambda folder, n=name: tf1_savers(folder, n)
    made["beside_saver"] = lambda folder: tf1_savers(folder, "adam", in_files=True)
    return made


def short(value: Any) -> Any:
    """Returns the value with numbers of float32 written with as few digits as they need."""
    if isinstance(value, dict):
        return {name: short(each) for name, each in value.items()}
    if isinstance(value, list):
        return [short(each) for each in value]
    if isinstance(value, float) and float(np.float32(value)) == value:
        return float(str(np.float32(value)))
    return value


def main(folder: Path, chosen: list[str]) -> None:
    """Writes the chosen forms, each in a process of its own, or all."""
    if len(chosen) == 2 and chosen[0] == "--only":
        forms()[chosen[1]](folder)
        (folder / f"{chosen[1]}.part").write_text(json.dumps(EXPECTED))
        return
    folder.mkdir(parents=True, exist_ok=True)
    # tfra keeps slots of equal names for all models of a process.
    for form in chosen or [each for each in forms() if each != OLD]:
        if os.spawnv(
            os.P_WAIT, sys.executable, [sys.executable, __file__, str(folder), "--only", form]
        ):
            raise SystemExit(f"{form} could not be written")
    known = folder / "expected.json"
    EXPECTED.update(json.loads(known.read_text()) if known.exists() else {})
    for part in sorted(folder.glob("*.part")):
        EXPECTED.update(short(json.loads(part.read_text())))
        part.unlink()
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(EXPECTED.items())]
    known.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for each in folder.glob("*saved_model"):  # the importer reads only the variables
        for name in ("saved_model.pb", "keras_metadata.pb", "fingerprint.pb"):
            (each / name).unlink(missing_ok=True)
        shutil.rmtree(each / "assets", ignore_errors=True)
    for each in folder.rglob("checkpoint"):
        each.unlink()  # it holds absolute paths


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2:])
