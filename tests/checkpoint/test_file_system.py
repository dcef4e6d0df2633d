"""Tests `save_to_file_system` and `load_from_file_system` of a Variable."""

import functools
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base import paths

KEYS = np.arange(200, dtype=np.int64)


def make(shards=1, name="emb/users"):
    return de.Variable(dim=2, name=name, devices=["/CPU:0"] * shards)


def filled(shards=1, value=1.0, keys=KEYS):
    table = make(shards)
    table.upsert(keys, np.full([len(keys), 2], value, np.float32))
    return table


def rows_of(table):
    keys, values = table.export()
    return dict(zip(keys.numpy().tolist(), values.numpy()[:, 0].tolist(), strict=True))


@pytest.mark.parametrize(("saved", "loaded"), [(1, 1), (3, 2), (2, 3)])
def test_any_number_of_tables_reads_the_files_of_any_other(tmp_path, saved, loaded):
    table = filled(saved)
    table.save_to_file_system(str(tmp_path))
    names = [f"emb_users_mht_{index + 1}of{saved}.de" for index in range(saved)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    other = make(loaded)
    other.upsert([10**6], [[1.0, 1.0]])
    other.load_from_file_system(str(tmp_path))
    assert rows_of(other) == rows_of(table)
    other.upsert([10**6], [[5.0, 5.0]])
    other.load_from_file_system(str(tmp_path), merge=True)
    assert rows_of(other) == {**rows_of(table), 10**6: 5.0}


def test_saving_again_replaces_whatever_the_layout_was(tmp_path):
    filled(3, 1.0).save_to_file_system(str(tmp_path))
    filled(2, 2.0, KEYS[:50]).save_to_file_system(str(tmp_path))
    other = make()
    other.load_from_file_system(str(tmp_path))
    assert rows_of(other) == dict.fromkeys(range(50), 2.0)
    assert len(list(tmp_path.iterdir())) == 2


def test_appended_rows_come_on_top(tmp_path):
    filled(2, 1.0).save_to_file_system(str(tmp_path))
    filled(2, 2.0, KEYS[100:150]).save_to_file_system(str(tmp_path), append_to_file=True)
    filled(2, 3.0, np.arange(149, 160)).save_to_file_system(str(tmp_path), append_to_file=True)
    other = make()
    other.load_from_file_system(str(tmp_path))
    expected = dict.fromkeys(range(200), 1.0)
    expected |= dict.fromkeys(range(100, 149), 2.0) | dict.fromkeys(range(149, 160), 3.0)
    assert rows_of(other) == expected
    filled(2, 4.0, KEYS[:3]).save_to_file_system(str(tmp_path))
    other.load_from_file_system(str(tmp_path))
    assert rows_of(other) == dict.fromkeys(range(3), 4.0)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_save_deletes_the_parts_of_the_file_that_it_replaces(tmp_path):
    folder, name = str(tmp_path), {"file_name_list": ["a"]}
    for value in (1.0, 2.0, 3.0):
        filled(1, value).save_to_file_system(folder, append_to_file=value == 2.0, **name)
    other = make()
    other.load_from_file_system(folder, load_entire_dir=True)
    assert set(rows_of(other).values()) == {3.0}


def test_nobody_reads_the_parts_of_a_replaced_file(tmp_path, monkeypatch):
    for append in (False, True):
        filled(1, 2.0).save_to_file_system(str(tmp_path), append_to_file=append)
    with monkeypatch.context() as killed:
        killed.setattr(paths, "remove", lambda files: list(files))  # before it deletes the parts
        filled(1, 3.0).save_to_file_system(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    other, again = make(), make()
    other.load_from_file_system(str(tmp_path), load_entire_dir=True)
    de.checkpoint.restore(again, str(tmp_path))
    assert rows_of(other) == rows_of(again) == dict.fromkeys(KEYS.tolist(), 3.0)


def test_every_way_to_read_a_folder_takes_the_later_row(tmp_path):
    for value, keys in enumerate([KEYS, KEYS[:100], KEYS[:50], KEYS[:20]]):
        filled(2, value, keys).save_to_file_system(str(tmp_path), append_to_file=value > 0)
    expected = {key: float((key < 100) + (key < 50) + (key < 20)) for key in range(200)}
    other = make()
    other.load_from_file_system(str(tmp_path), load_entire_dir=True)
    assert rows_of(other) == expected
    again = make()
    de.checkpoint.restore(again, str(tmp_path))
    assert rows_of(again) == expected


def test_parts_of_another_number_of_shards_are_refused(tmp_path):
    filled(1).save_to_file_system(str(tmp_path))
    two = filled(2, 2.0, KEYS[:3])
    with pytest.raises(ValueError, match=r"as many shards as the files.*2 shards.*1of1.*of 1\."):
        two.save_to_file_system(str(tmp_path), append_to_file=True)
    two.load_from_file_system(str(tmp_path))
    two.save_to_file_system(str(tmp_path))
    two.save_to_file_system(str(tmp_path), append_to_file=True)
    other = make()
    other.load_from_file_system(str(tmp_path))
    assert len(rows_of(other)) == 200


def test_files_of_a_table_with_the_same_file_names_are_refused(tmp_path):
    for append in (False, True):
        filled().save_to_file_system(str(tmp_path), append_to_file=append)
    other = make(name="emb_users")
    with pytest.raises(ValueError, match="file names of two tables must differ"):
        other.save_to_file_system(str(tmp_path))
    [first] = [path for path in tmp_path.iterdir() if ".part-" not in path.name]
    first.unlink()  # without it, the part belongs to nothing
    other.save_to_file_system(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_names_the_environment_and_a_whole_directory(tmp_path, monkeypatch):
    first, second = filled(2, 1.0), filled(1, 2.0, KEYS[:10] + 1000)
    first.save_to_file_system(str(tmp_path), file_name_list=["x.de", "y"])
    shutil.copytree(tmp_path, tmp_path / "env")
    (tmp_path / "env" / "y.de").unlink()  # nothing says that a file of any name is missing
    assert de.checkpoint.restore(make(), tmp_path / "env")["emb/users"] < 200
    second.save_to_file_system(str(tmp_path), file_name_list=["z"])
    other = make()
    for names in (["y", "x"], ["y", "x.de"]):
        other.load_from_file_system(str(tmp_path), file_name_list=names)
        assert rows_of(other) == rows_of(first)
    other.load_from_file_system(str(tmp_path), load_entire_dir=True)
    assert rows_of(other) == rows_of(first) | rows_of(second)
    monkeypatch.setenv("TFRA_SAVED_KV", str(tmp_path / "env"))
    monkeypatch.setenv("MY_FOLDER", str(tmp_path / "mine"))
    first.save_to_file_system("/nowhere")
    second.save_to_file_system("/nowhere", dirpath_env="MY_FOLDER")
    for folder, table in (("env", first), ("mine", second)):
        other.load_from_file_system(str(tmp_path / folder), dirpath_env="")
        assert rows_of(other) == rows_of(table)


@pytest.mark.parametrize("shards", [1, 2])
def test_names_that_become_one_as_files_are_told_apart(tmp_path, shards):
    filled(1).save_to_file_system(str(tmp_path))
    other = make(shards, name="emb_users")
    with pytest.raises(ValueError, match=r"'emb/users'.*use two directories"):
        other.save_to_file_system(str(tmp_path))
    with pytest.raises(ValueError, match="`file_name_list`"):
        other.load_from_file_system(str(tmp_path))
    assert int(other.size()) == 0
    other.load_from_file_system(str(tmp_path), file_name_list=["emb_users_mht_1of1"])
    assert int(other.size()) == 200


@pytest.mark.parametrize("folder", ["run[1]", "lr=*", "back\\slash"])
def test_folders_of_any_name(tmp_path, folder):
    table, folder = filled(2), str(tmp_path / folder)
    table.save_to_file_system(folder)
    filled(2, 2.0, KEYS[:1] + 1000).save_to_file_system(folder, append_to_file=True)
    for entire in (False, True):
        other = make()
        other.load_from_file_system(folder, load_entire_dir=entire)
        assert len(rows_of(other)) == 201
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        other = de.get_variable("emb/users", dim=2)
        load = other.load_from_file_system(folder)
        session.run(v1.global_variables_initializer())
        session.run(load)
        assert session.run(other.size()) == 201


def test_threads_save_one_after_another(tmp_path):
    table = filled(2)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(table.save_to_file_system, [str(tmp_path)] * 18))
    table.load_from_file_system(str(tmp_path))
    assert len(rows_of(table)) == 200
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("loading", [1, 2, 3])
def test_own_files_are_read_or_else_those_of_the_newest_save(tmp_path, loading):
    parts = [filled(2, rank, KEYS[rank::2]) for rank in range(2)]
    expected = {int(key): float(key % 2) for key in KEYS}

    def load():
        loaded = {}
        for rank in range(loading):
            table = make()
            table.load_from_file_system(str(tmp_path), proc_size=loading, proc_rank=rank)
            assert not loaded.keys() & rows_of(table).keys()
            loaded |= rows_of(table)
        return loaded

    def restored():
        table = make()
        de.checkpoint.restore(table, str(tmp_path))
        return rows_of(table)

    for rank, table in enumerate(parts):
        table.save_to_file_system(str(tmp_path), proc_size=2, proc_rank=rank)
    assert load() == restored() == expected
    filled(2, 9.0, KEYS[2:50]).save_to_file_system(str(tmp_path))
    by_one = dict.fromkeys(range(2, 50), 9.0)
    assert load() == (expected if loading == 2 else by_one)
    assert restored() == by_one
    for rank, table in enumerate(parts):
        table.save_to_file_system(str(tmp_path), proc_size=2, proc_rank=rank)
    assert load() == (by_one if loading == 1 else expected)
    assert restored() == expected
    for path in tmp_path.glob("*_rank1_size2.de"):
        path.unlink()
    for read in (restored,) if loading == 1 else (restored, load):
        with pytest.raises(tf.errors.NotFoundError, match=r"all 2 processes.*no file of process 1"):
            read()


def test_a_damaged_file_of_another_process_does_not_matter(tmp_path):
    for rank in range(2):
        filled(1, rank, KEYS[rank::2]).save_to_file_system(
            str(tmp_path), proc_size=2, proc_rank=rank
        )
    next(tmp_path.glob("*_rank1_size2.de")).write_bytes(b"damaged")
    table = make()
    table.load_from_file_system(str(tmp_path), proc_size=2, proc_rank=0)
    assert rows_of(table) == {int(key): 0.0 for key in KEYS[::2]}


def loaded_in_a_graph(folder, **options):
    """Returns the first column of the rows that two shards in a graph load, by key."""
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        table = de.get_variable("t", dim=2, devices=["/CPU:0"] * 2)
        load = table.load_from_file_system(folder, **options)
        session.run(v1.global_variables_initializer())
        session.run(load)
        keys, values = session.run(table.export())
        return dict(zip(keys.tolist(), values[:, 0].tolist(), strict=True))


@pytest.mark.parametrize("loading", [1, 2, 3])
def test_a_graph_reads_the_files_that_eager_mode_reads(tmp_path, loading):
    for size in (1, 2):
        for rank in range(size):
            table = make(size, "t")
            table.upsert(KEYS[rank::size], np.full([len(KEYS[rank::size]), 2], size, np.float32))
            table.save_to_file_system(str(tmp_path), proc_size=size, proc_rank=rank)
            table.upsert([rank], [[9.0, 9.0]])
            table.save_to_file_system(
                str(tmp_path), proc_size=size, proc_rank=rank, append_to_file=True
            )
    for rank in range(loading):
        options = {"proc_size": loading, "proc_rank": rank}
        eager = make(name="t")
        eager.load_from_file_system(str(tmp_path), **options)
        assert loaded_in_a_graph(str(tmp_path), **options) == rows_of(eager)


def test_a_graph_reads_appended_parts(tmp_path):
    for value, appended in ((1.0, False), (2.0, True)):
        table = make(name="t")
        table.upsert([1], [[value, value]])
        table.save_to_file_system(str(tmp_path / "f"), append_to_file=appended)
    for options in ({}, {"load_entire_dir": True}, {"file_name_list": ["t_mht_1of1"]}):
        assert loaded_in_a_graph(str(tmp_path / "f"), **options) == {1: 2.0}
    with pytest.raises(tf.errors.UnknownError, match=r"no 't_mht_\*\.de' in"):
        loaded_in_a_graph(str(tmp_path))


def test_a_graph_replaces_whole_saves_like_eager_mode(tmp_path):
    v1, folder = tf.compat.v1, tmp_path / "new" / "folder"
    for shards, keys in ((1, [1, 2, 3]), (2, [2, 3]), (2, [2, 3, 4])):
        with tf.Graph().as_default(), v1.Session() as session:
            table = de.get_variable("t", dim=2, devices=["/CPU:0"] * shards)
            write = table.upsert(keys, np.ones([len(keys), 2], np.float32))
            save = table.save_to_file_system(str(folder))
            session.run(v1.global_variables_initializer())
            session.run(write)
            for _ in range(2):
                session.run(save)
                (folder / f"t_mht_1of{shards}.de.new-killed").touch()
            session.run(save)
        names = [f"t_mht_{number + 1}of{shards}.de" for number in range(shards)]
        assert sorted(path.name for path in folder.iterdir()) == names
        assert loaded_in_a_graph(str(folder)) == dict.fromkeys(keys, 1.0)
        if len(keys) == 2:
            shutil.copy(folder / names[1], tmp_path / "earlier")
    shutil.copy(tmp_path / "earlier", folder / names[1])
    table = make(name="t")
    for load in (table.load_from_file_system, functools.partial(de.checkpoint.restore, table)):
        with pytest.raises(tf.errors.DataLossError, match="must have been saved together"):
            load(str(folder))


def test_bad_input_is_named_and_changes_nothing(tmp_path):
    table = filled(2)
    with pytest.raises(tf.errors.NotFoundError, match=r"no 'emb_users_mht_\*\.de'"):
        table.load_from_file_system(str(tmp_path))
    table.save_to_file_system(str(tmp_path))
    shutil.copy(tmp_path / "emb_users_mht_2of2.de", tmp_path / "kept")
    (tmp_path / "emb_users_mht_2of2.de").unlink()
    for load in (table.load_from_file_system, functools.partial(de.checkpoint.restore, table)):
        with pytest.raises(tf.errors.NotFoundError, match=r"all 2 shards.*\[2\]"):
            load(str(tmp_path))
    (tmp_path / "emb_users_mht_2of2.de").write_bytes((tmp_path / "kept").read_bytes()[:-7])
    with pytest.raises(tf.errors.DataLossError, match="mht_2of2"):
        table.load_from_file_system(str(tmp_path))
    wrong = ((["one"], ValueError), (["x", "x.de"], ValueError), ([1, 2], TypeError))
    for names, error in wrong:
        with pytest.raises(error, match="for each of 2 shards"):
            table.save_to_file_system(str(tmp_path), file_name_list=names)
    for names, error in (([], ValueError), ("x", TypeError), ([1], TypeError)):
        with pytest.raises(error, match=r"must be a list of file names\. Received: file_name"):
            table.load_from_file_system(str(tmp_path), file_name_list=names)
    for options, error in (
        ({"proc_size": 2, "proc_rank": 2}, ValueError),
        ({"proc_size": 2, "proc_rank": 0.5}, TypeError),
        ({"proc_size": "2"}, TypeError),
        ({"proc_size": 0}, ValueError),
        ({"buffer_size": 0}, ValueError),
    ):
        for call in (table.save_to_file_system, table.load_from_file_system):
            with pytest.raises(error, match=f"`{[*options][-1]}` must be an integer"):
                call(str(tmp_path), **options)
    assert len(rows_of(table)) == 200
