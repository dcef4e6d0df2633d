"""Telling tables from the slots and counts that belong to them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.tfra_files import import_checkpoint
from tests.tfra_files.artefacts import DATA, assert_rows, expected

PATHS = {
    "names_saver": "names_saver/model.ckpt-2",
    "names_beside": "names_beside/model.ckpt-2",
    "policies": "policies/ckpt",
}
POLICIES = {"uses": de.FrequencyRestrictPolicy, "time": de.TimestampRestrictPolicy}


def variables_for(form):
    made = {}
    for name, saved in expected()[form]["tables"].items():
        policy = next((POLICIES[each] for each in saved.get("columns", ())), None)
        made[name] = de.Variable(dim=saved["dim"], name=name, restrict_policy=policy)
    return made


def assert_whole(table, optimizer, saved):
    assert_rows(table, saved)
    slots = table.get_slot_variables(optimizer)
    assert sorted(each.slot_name for each in slots) == ["m", "v"]
    for slot in slots:
        assert_rows(slot, saved["slots"][slot.slot_name])
    for column, counts in saved.get("columns", {}).items():
        factor = 10**6 if column == "time" else 1
        wanted = {**counts, "value_dtype": "int64"}
        wanted["values"] = [[each * factor for each in row] for row in counts["values"]]
        assert_rows(table.restrict_policy.status, wanted)


@pytest.mark.parametrize("form", PATHS)
def test_each_table_receives_its_own_slots_and_counts(form):
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))
    tables = variables_for(form)
    found = import_checkpoint(DATA / PATHS[form], tables, optimizer=optimizer)
    for name, table in tables.items():
        assert_whole(table, optimizer, expected()[form]["tables"][name])
    assert [each.policies for each in found.values()].count(()) == (form != "policies") * 2
    assert int(optimizer.iterations) == (12 if form == "policies" else 2)


def test_one_table_alone_receives_its_own_slots():
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))
    table = variables_for("names_saver")["user"]
    import_checkpoint(DATA / PATHS["names_saver"], table, optimizer=optimizer, tables="user")
    assert_whole(table, optimizer, expected()["names_saver"]["tables"]["user"])


def test_a_folder_of_key_value_files_tells_the_same():
    found = import_checkpoint(DATA / "names_beside/TFRADynamicEmbedding-2", dry_run=True)
    assert {name: (each.slots, each.policies) for name, each in found.items()} == {
        "user": (("m", "v"), ("FrequencyRestrictPolicy",)),
        "user_city": (("m", "v"), ()),
        "user_linear": (("m", "v"), ()),
    }


def test_counts_need_the_policy_that_they_are_of():
    path, tables = DATA / PATHS["names_saver"], "user"
    table = de.Variable(dim=2, restrict_policy=de.TimestampRestrictPolicy)
    optimizer = de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))
    with pytest.raises(ValueError, match=r"policy that its files have.*FrequencyRestrictPolicy"):
        import_checkpoint(path, table, tables=tables, optimizer=optimizer)
    assert int(table.size()) == 0
    import_checkpoint(path, table, tables=tables, slots=False)
    assert int(table.size()) == 3


def write(folder, name, rows, dim=1, dtype=np.float32):
    for part, numbers in (("keys", np.arange(rows)), ("values", np.ones([rows, dim], dtype))):
        (folder / f"{name}_mht_1of1-{part}").write_bytes(numbers.tobytes())


def test_a_slot_needs_the_shape_of_its_table_and_the_other_slots(tmp_path):
    write(tmp_path, "user", 3, dim=2)
    write(tmp_path, "user_linear", 3, dim=2)  # Ftrl has an accumulator too
    write(tmp_path, "user_m", 3, dim=1)
    write(tmp_path, "user_v", 3, dim=1)
    write(tmp_path, "user_frequency", 3, dim=2, dtype=np.float64)
    found = import_checkpoint(tmp_path, dry_run=True)
    assert sorted(found) == ["user", "user_frequency", "user_linear", "user_m", "user_v"]
    assert not any(each.slots or each.policies or each.left_out for each in found.values())


@pytest.mark.parametrize(("name", "dtype"), [("user_m", np.float32), ("user_frequency", np.int32)])
def test_what_the_files_do_not_tell_is_for_the_caller(tmp_path, name, dtype):
    write(tmp_path, "user", 3)
    write(tmp_path, name, 2, dtype=dtype)
    options = {"value_dtype": tf.float32, "dim": 1}
    listed = import_checkpoint(tmp_path, dry_run=True)
    assert "may be" in listed[name].left_out
    with pytest.raises(ValueError, match=rf"'{name}' is a table, or .*tables='user\|{name}'"):
        import_checkpoint(tmp_path, **options)
    assert sorted(import_checkpoint(tmp_path, tables=f"user|{name}", **options)) == ["user", name]
    alone = import_checkpoint(tmp_path, tables="user", slots=False, **options)
    assert alone["user"].slots + alone["user"].policies != ()
    named = {each: de.Variable(dim=1, name=each) for each in ("user", name)}
    import_checkpoint(tmp_path, named)
    assert [int(each.size()) for each in named.values()] == [3, 2]
