"""Damaged files of a served model are refused, before a version answers or afterwards."""

import gc
import json
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.base.ops import library
from de_core.snapshot import chain_file
from tests.server.support.eventually import wait_until
from tests.support.models import ASKED, Scores


def told(loaded):
    (text,) = loaded.signatures["de_stats"]().values()
    (table,) = json.loads(text.numpy())
    return table


def checked(loaded):
    """Returns the only table's statistics after the check of its files."""
    wait_until(lambda: told(loaded)["health"] != "unchecked")
    return told(loaded)


def scores(loaded):
    return loaded.signatures["serving_default"](user=ASKED)["score"].numpy()


@pytest.fixture(params=[1, 2], ids=["one table", "two tables"])
def version(request, tmp_path):
    """Publishes a base and a delta; returns the second version's path."""
    module = Scores(request.param)
    de.publish(module, tmp_path)
    module.change(1)
    return Path(de.publish(module, tmp_path))


def files_of(version):
    return [
        version / "assets" / link.name
        for asset in sorted(version.glob("assets/*.chain"))
        for link in chain_file.read(asset)
    ]


def flip_among_the_rows(file, *, in_place=False):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    if not in_place:
        file.unlink()  # other versions have hard links to it
    file.write_bytes(content)


@pytest.fixture
def verifies_later(monkeypatch):
    monkeypatch.setenv("DE_VERIFY", "background")


def test_intact_files_are_verified_before_they_answer(version):
    table = told(tf.saved_model.load(str(version)))
    assert table["health"] == "intact"
    assert table["read_bytes"] == table["checked_bytes"] == table["bytes"] > 0
    assert "damage" not in table


@pytest.mark.each_choice
@pytest.mark.parametrize("which", [0, 1])
def test_a_version_with_a_flipped_bit_does_not_load(version, which):
    file = files_of(version)[which]
    flip_among_the_rows(file)
    with pytest.raises(tf.errors.DataLossError, match=f"{file.name}.*section.*checksum"):
        tf.saved_model.load(str(version))


def test_a_file_that_a_loaded_version_has_verified_is_not_read_again(version):
    before, new = (version.with_name(number) for number in ("1", "2"))
    loaded = tf.saved_model.load(str(before))
    base = told(loaded)["bytes"]
    assert told(loaded)["read_bytes"] == base
    table = told(tf.saved_model.load(str(new)))
    assert table["read_bytes"] == table["bytes"] - base > 0
    del loaded, table
    gc.collect()  # loaded models are in reference cycles
    table = told(tf.saved_model.load(str(new)))
    assert table["read_bytes"] == table["bytes"]


def test_a_file_that_changed_since_it_was_verified_is_read_again(version):
    loaded = tf.saved_model.load(str(version))
    file = files_of(version)[0]
    modified = file.stat().st_mtime_ns
    file.touch()
    if file.stat().st_mtime_ns == modified:
        os.utime(file, ns=(modified, modified + 1))
    assert told(tf.saved_model.load(str(version)))["read_bytes"] >= file.stat().st_size
    flip_among_the_rows(file, in_place=True)
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        tf.saved_model.load(str(version))
    del loaded


@pytest.mark.usefixtures("verifies_later")
def test_the_background_check_is_an_alternative(version):
    loaded = tf.saved_model.load(str(version))
    table = checked(loaded)
    assert table["health"] == "intact"
    assert (table["read_bytes"], table["checked_bytes"]) == (0, table["bytes"])


@pytest.mark.each_choice
@pytest.mark.usefixtures("verifies_later")
@pytest.mark.parametrize("which", [0, 1])
def test_damage_that_the_background_check_finds_is_refused(version, which):
    file = files_of(version)[which]
    flip_among_the_rows(file)
    loaded = tf.saved_model.load(str(version))
    table = checked(loaded)
    assert table["health"] == "damaged"
    damage = table["damage"]
    for text in (file.name, "checksum", "section"):
        assert text in damage
    with pytest.raises(tf.errors.DataLossError, match=file.name) as raised:
        wait_until(lambda: scores(loaded) is None)
    for text in (str(raised.value), damage):
        assert str(version.parent) not in text
    with pytest.raises(tf.errors.DataLossError, match=file.name):
        loaded.signatures["de_lookup/users"](ids=tf.constant([1], tf.int64))


@pytest.mark.usefixtures("verifies_later")
def test_of_files_that_are_cut_at_once_the_first_is_named(version):
    loaded = tf.saved_model.load(str(version))
    assert checked(loaded)["health"] == "intact"  # the check of the files is over
    files = files_of(version)  # of each table the base and the delta
    for file in files:
        os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(tf.errors.DataLossError, match="was cut short") as raised:
        scores(loaded)
    named = [file in files[::2] for file in files if file.name in str(raised.value)]
    assert named == [True]


def test_another_way_to_verify_is_refused(version, monkeypatch):
    monkeypatch.setenv("DE_VERIFY", "no")
    with pytest.raises(tf.errors.InvalidArgumentError, match='Received: DE_VERIFY="no"'):
        tf.saved_model.load(str(version))


@pytest.mark.usefixtures("verifies_later")
def test_a_deleted_file_is_checked_where_it_is_mapped(version):
    before = scores(tf.saved_model.load(str(version)))
    loaded = tf.saved_model.load(str(version))
    for file in files_of(version):
        file.unlink()
    assert checked(loaded)["health"] == "intact"
    np.testing.assert_array_equal(scores(loaded), before)


def checking_threads():
    threads = Path("/proc/self/task").glob("*/comm")
    return [thread for thread in threads if name_of(thread) == "de_file_check"]


def name_of(thread):
    try:
        return thread.read_text().strip()
    except OSError:  # the thread ended meanwhile
        return ""


def bytes_read():
    (line,) = (each for each in Path("/proc/self/io").read_text().splitlines() if "rchar" in each)
    return int(line.split()[1])


@pytest.mark.usefixtures("verifies_later")
def test_the_check_ends_when_its_table_is_closed(tmp_path):
    path = tmp_path / "table.de"
    file = str(path)
    table = de.Variable(dim=1024, name="large")
    for begin in range(0, 64_000, 8_000):
        table.upsert(range(begin, begin + 8_000), tf.ones([8_000, 1024]))
    library.de_table_save(table._table.tables[0].resource_handle, file)
    wait_until(lambda: not checking_threads())  # wait for checks of files of other tests
    before = bytes_read()
    handle = library.de_frozen_table(
        shared_name=file, key_dtype=tf.int64, value_dtype=tf.float32, dim=1024
    )
    library.de_frozen_table_open(handle, file)
    library.de_frozen_table_close(handle)
    del handle
    wait_until(lambda: not checking_threads())
    assert bytes_read() - before < path.stat().st_size / 2
    assert file not in Path("/proc/self/maps").read_text()
