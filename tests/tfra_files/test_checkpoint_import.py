"""Importing the files that the real tfra wrote: rows and slots, bit by bit."""

import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.tfra_files import import_checkpoint
from tests.support.models import rows_of
from tests.tfra_files.artefacts import DATA, TRAINED, assert_rows, expected

DTYPES = {"plain": 1, "narrow": 2, "words": 2, "halves": 1, "counts": 1, "empty": 2}
FILES = ("plain", "narrow", "halves")


def variable_for(saved, name="any", shards=1):
    return de.Variable(
        saved["key_dtype"], saved["value_dtype"], saved["dim"], ["/CPU:0"] * shards, name=name
    )


def variables_for(form, shards=1):
    return {
        name: variable_for(saved, name.removesuffix("-parameter"), shards)
        for name, saved in expected()[form]["tables"].items()
    }


def adam():
    return de.DynamicEmbeddingOptimizer(keras.optimizers.Adam(0.01))


@pytest.fixture
def copied(tmp_path):
    """Copies an artefact, so that a test can damage it."""

    def copy(name):
        return shutil.copytree(DATA / name, tmp_path / name)

    return copy


@pytest.mark.parametrize("form", TRAINED)
@pytest.mark.parametrize("shards", [1, 3])
def test_rows_slots_and_steps_are_those_that_were_saved(form, shards):
    tables, optimizer = variables_for(form, shards), adam()
    found = import_checkpoint(DATA / TRAINED[form], tables, optimizer=optimizer)
    saved = expected()[form]
    assert sorted(found) == sorted(tables) == ["item-parameter", "user-parameter"]
    for name, table in tables.items():
        wanted = saved["tables"][name]
        assert_rows(table, wanted)
        assert found[name].rows == len(wanted["keys"])
        assert found[name].shards == wanted["shards"]
        assert found[name].slots == ("m", "v")
        for slot in table.get_slot_variables(optimizer):
            assert_rows(slot, wanted["slots"][slot.slot_name])
    assert int(optimizer.iterations) == saved["iterations"] > 0


@pytest.mark.parametrize("name", ["item-parameter", "user-parameter"])
def test_a_table_with_its_own_optimizer_receives_slots_and_steps(name):
    saved = expected()["new_adam"]
    wanted = saved["tables"][name]
    table = de.Variable(dim=wanted["dim"], optimizer=keras.optimizers.Adam(0.01))
    import_checkpoint(DATA / "new_adam/ckpt", table, optimizer=table.optimizer, tables=name)
    assert_rows(table, wanted)
    for slot in table.get_slot_variables(table.optimizer):
        assert_rows(slot, wanted["slots"][slot.slot_name])
    assert int(table.optimizer.iterations) == saved["iterations"] > 0


def test_tables_of_every_dtype_are_made_from_a_checkpoint():
    found = import_checkpoint(DATA / "dtypes" / "ckpt")
    assert {name: each.shards for name, each in found.items()} == {
        f"scope/{name}": shards for name, shards in DTYPES.items()
    }
    for name, saved in expected()["dtypes"]["tables"].items():
        variable = found[name].variable
        assert variable.name == name
        assert (found[name].key_dtype, found[name].value_dtype) == (
            variable.key_dtype,
            variable.value_dtype,
        )
        assert_rows(variable, saved)


def test_a_checkpoint_tells_the_dtype_of_its_keys():
    path, saved = DATA / "new_adam/ckpt", expected()["new_adam"]["tables"]["user-parameter"]
    options = {"tables": "user.*", "slots": False}
    for target in (None, variable_for(saved)):
        with pytest.raises(ValueError, match=r"dtype of the saved keys.*int64 -> float32\[3\]"):
            import_checkpoint(path, target, key_dtype=tf.int32, **options)
        found = import_checkpoint(path, target, key_dtype=tf.int64, **options)["user-parameter"]
        assert_rows(target or found.variable, saved)


@pytest.mark.parametrize("form", ["module_saved_model", "builder_saved_model"])
def test_saved_models_of_modules_and_of_the_builder(form):
    [[name, saved]] = expected()[form]["tables"].items()
    [[found, table]] = import_checkpoint(DATA / form).items()
    assert (found, table.shards) == (name, 2)
    assert_rows(table.variable, saved)


def test_an_optimizer_without_state_in_the_checkpoint_stays_as_it_is():
    saved, optimizer = expected()["dtypes"]["tables"]["scope/plain"], adam()
    table = variable_for(saved)
    import_checkpoint(DATA / "dtypes" / "ckpt", table, optimizer=optimizer, tables="scope/plain")
    assert_rows(table, saved)
    assert int(optimizer.iterations) == 0


@pytest.mark.parametrize("name", FILES)
def test_key_value_files_take_their_dtypes_from_the_target_or_the_arguments(name):
    path, flat = DATA / f"files_{name}", f"scope_{name}"
    saved = expected()[f"files_{name}"]["tables"][flat]
    target = variable_for(saved)
    import_checkpoint(path, target)
    assert_rows(target, saved)
    options = {each: saved[each] for each in ("key_dtype", "value_dtype", "dim")}
    assert_rows(import_checkpoint(path, **options)[flat].variable, saved)
    with pytest.raises(ValueError, match=r"do not contain their dtypes.*Pass `value_dtype`"):
        import_checkpoint(path)


def test_files_of_several_processes_and_of_one_shard():
    found = import_checkpoint(DATA / "files_of_two", value_dtype="float32", dim=2)
    assert rows_of(found["user"].variable) == {key: [key % 2] * 2 for key in range(4)}
    with pytest.raises(
        ValueError, match=r"All 2 shards of table 'scope_narrow'.*no keys of shard 2"
    ):
        import_checkpoint(DATA / "files_of_one_shard", value_dtype="float64", dim=3)


def test_string_files_are_refused_because_they_hold_addresses():
    words = de.Variable(tf.string, tf.float32, 2)
    with pytest.raises(ValueError, match="addresses of strings"):
        import_checkpoint(DATA / "string_files", words)
    assert int(words.size()) == 0


def test_a_dry_run_lists_the_tables_and_changes_nothing():
    tables = variables_for("new_adam")
    found = import_checkpoint(DATA / "new_adam/ckpt", tables, dry_run=True)
    user = expected()["new_adam"]["tables"]["user-parameter"]
    assert found["user-parameter"] == (
        tf.int64,
        tf.float32,
        3,
        len(user["keys"]),
        3,
        ("m", "v"),
        None,
        (),
        "",
    )
    assert [int(each.size()) for each in tables.values()] == [0, 0]
    unknown = import_checkpoint(DATA / "files_of_two", dry_run=True)["user"]
    assert unknown == (None, None, None, None, 2, (), None, (), "")


def test_a_directory_means_its_newest_checkpoint(copied):
    folder = copied("beside_numbered")
    with pytest.raises(ValueError, match=r"name its newest one.*ckpt-1.index.*Pass the prefix"):
        import_checkpoint(folder, dry_run=True)
    (folder / "checkpoint").write_text('model_checkpoint_path: "ckpt-2"\n')
    tables = variables_for("beside_numbered-2")
    import_checkpoint(folder, tables, slots=False)
    for name, saved in expected()["beside_numbered-2"]["tables"].items():
        assert_rows(tables[name], saved)
    assert tables["user-parameter"].slot_owners() == []


def test_the_folder_beside_holds_only_the_newest_rows(copied):
    folder = copied("beside")
    (folder / "checkpoint").write_text('model_checkpoint_path: "newer"\n')
    for suffix in (".index", ".data-00000-of-00001"):  # TensorFlow ignores a state without files
        shutil.copy(folder / f"ckpt{suffix}", folder / f"newer{suffix}")
    tables = variables_for("beside")
    with pytest.raises(ValueError, match=r"rows of the newest checkpoint only.*newer"):
        import_checkpoint(folder / "ckpt", tables, slots=False)
    import_checkpoint(folder / "TFRADynamicEmbedding", tables, slots=False)
    assert_rows(tables["user-parameter"], expected()["beside"]["tables"]["user-parameter"])
    shutil.rmtree(folder / "TFRADynamicEmbedding")
    for name in ("checkpoint", "newer.index"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=r"folder with the rows beside it.*Copy the folder"):
        import_checkpoint(folder / "ckpt", tables, slots=False)


def test_slots_need_an_optimizer_that_keeps_them():
    path, tables = DATA / "new_adam/ckpt", variables_for("new_adam")
    with pytest.raises(ValueError, match=r"slots must go to an optimizer.*slots=False"):
        import_checkpoint(path, tables)
    other = de.DynamicEmbeddingOptimizer(keras.optimizers.Adagrad())
    with pytest.raises(ValueError, match=r"keep the slots.*\['m', 'v'\].*\['accumulator'\]"):
        import_checkpoint(path, tables, optimizer=other)
    assert [int(each.size()) for each in tables.values()] == [0, 0]


def test_names_are_matched_and_chosen():
    path, saved = DATA / "new_adam/ckpt", expected()["new_adam"]["tables"]
    user, item = (variable_for(saved[f"{name}-parameter"], name) for name in ("user", "item"))
    import_checkpoint(path, [user, item], slots=False)
    assert_rows(item, saved["item-parameter"])
    one = variable_for(saved["user-parameter"], "other")
    import_checkpoint(path, one, tables="user.*", slots=False)
    assert_rows(one, saved["user-parameter"])
    with pytest.raises(ValueError, match=r"tables \['item-parameter'\] without a Variable"):
        import_checkpoint(path, {"user": user}, slots=False)
    with pytest.raises(ValueError, match=r"Variables \['more'\] without a table"):
        import_checkpoint(path, {"user": user, "item": item, "more": one}, slots=False)
    with pytest.raises(ValueError, match=r"must have its dtypes and dim, int64 -> float32\[2\]"):
        import_checkpoint(path, {"user": item, "item": user}, slots=False)
    with pytest.raises(ValueError, match=r"whose names `tables` matches"):
        import_checkpoint(path, tables="nothing")
    with pytest.raises(ValueError, match="must be a regular expression"):
        import_checkpoint(path, tables="(")
    with pytest.raises(tf.errors.NotFoundError, match=r"must be a checkpoint's prefix"):
        import_checkpoint("/nowhere")
    with pytest.raises(ValueError, match=r"tfra writes no rows into files.*Pass a checkpoint"):
        import_checkpoint(DATA / "no_rows.weights.h5")


@pytest.mark.parametrize("part", ["keys", "values"])
@pytest.mark.parametrize(
    "table", ["user-parameter", "item-parameter_DynamicEmbedding_item-shadow_v"]
)
def test_damaged_key_value_files_change_nothing(copied, part, table):
    folder = copied("beside")
    [path] = (folder / "TFRADynamicEmbedding").glob(f"{table}_mht_1of*-{part}")
    whole, tables = path.read_bytes(), variables_for("beside")
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"must have a row for each key.*copy the files again"):
        import_checkpoint(folder / "ckpt", tables, optimizer=adam())
    path.unlink()
    with pytest.raises(ValueError, match=f"must exist. Received: no {part} of shard 1"):
        import_checkpoint(folder / "ckpt", tables, optimizer=adam())
    assert [int(each.size()) for each in tables.values()] == [0, 0]


def test_a_damaged_checkpoint_changes_nothing(copied):
    folder = copied("new_adam")
    [data] = folder.glob("*.data-*")
    whole = data.read_bytes()
    key = np.int64(expected()["new_adam"]["tables"]["user-parameter"]["keys"][-1]).tobytes()
    places = [place for place in range(len(whole)) if whole.startswith(key, place)]
    assert len(places) == 3  # in the table and in two slots
    changed = [whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :] for place in places]
    shortened = [whole[:place] for place in (0, *places)]
    for damaged in changed + shortened:
        data.write_bytes(damaged)
        tables = variables_for("new_adam")
        with pytest.raises(tf.errors.OpError):
            import_checkpoint(folder / "ckpt", tables, optimizer=adam())
        assert [int(each.size()) for each in tables.values()] == [0, 0]
    data.unlink()
    with pytest.raises(tf.errors.OpError):
        import_checkpoint(folder / "ckpt", variables_for("new_adam"), optimizer=adam())
    [index] = folder.glob("*.index")
    index.write_bytes(index.read_bytes()[:100])
    with pytest.raises(tf.errors.OpError):
        import_checkpoint(folder / "ckpt", variables_for("new_adam"), optimizer=adam())


def test_two_saves_in_one_folder_are_refused(copied):
    folder = copied("files_plain")
    for part in ("keys", "values"):
        shutil.copy(
            folder / f"scope_plain_mht_1of1_rank0_size1-{part}",
            folder / f"scope_plain_mht_1of1-{part}",
        )
    with pytest.raises(ValueError, match=r"one save of table 'scope_plain'.*Move the older"):
        import_checkpoint(folder, value_dtype="float32", dim=2)


def test_keys_of_int32_are_not_read_as_int64():
    saved = expected()["files_short"]["tables"]["scope_short"]
    wide = de.Variable(tf.int64, dim=2 * saved["dim"])
    with pytest.raises(ValueError, match=r"int64 -> float32\[4\] or int32 -> float32\[2\].*key_dt"):
        import_checkpoint(DATA / "files_short", wide)
    assert int(wide.size()) == 0
    with pytest.raises(ValueError, match="must have its dtypes and dim"):
        import_checkpoint(DATA / "files_short", wide, key_dtype=tf.int32)
    narrow = de.Variable(tf.int32, dim=saved["dim"])
    import_checkpoint(DATA / "files_short", narrow, key_dtype=tf.int32)
    assert_rows(narrow, saved)


def test_keys_of_int64_are_not_read_as_int32(tmp_path):
    for part, numbers in (("keys", np.arange(3)), ("values", np.ones([3, 2], np.float32))):
        numbers.tofile(tmp_path / f"user_mht_1of1-{part}")
    narrow = de.Variable(tf.int32, dim=1)
    with pytest.raises(ValueError, match=r"shard of table 'user' must be distinct"):
        import_checkpoint(tmp_path, narrow, key_dtype=tf.int32)
    wide = de.Variable(tf.int64, dim=2)
    import_checkpoint(tmp_path, wide)
    assert int(wide.size()) == 3


def test_an_older_checkpoint_without_its_state_does_not_take_newer_rows(tmp_path):
    folder = shutil.copytree(DATA / "beside", tmp_path / "run")
    for suffix in (".index", ".data-00000-of-00001"):
        shutil.copy(folder / f"ckpt{suffix}", folder / f"ckpt-2{suffix}")
    with pytest.raises(ValueError, match=r"newest checkpoint only.*\['ckpt-2.index'\].*file `che"):
        import_checkpoint(folder / "ckpt", dry_run=True)
