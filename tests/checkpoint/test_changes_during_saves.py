"""Saves and restores are correct while other threads change the table."""

import ctypes
import threading

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from tests.support.shims import shims


@pytest.mark.each_choice
@pytest.mark.parametrize("what", ["clear", "clear all the time", "shrink", "grow", "train"])
@pytest.mark.parametrize("consistent", [False, True])
def test_a_table_changes_while_it_is_saved(tmp_path, what, consistent):
    # All values of a row are one number, so that the test detects a mixed row.
    table = de.Variable(dim=32, name="t")
    keys = np.arange(30000)
    table.upsert(keys, np.repeat(keys % 7, 32).reshape(-1, 32).astype(np.float32))
    stop = threading.Event()

    def disturb():
        number = 0
        while not stop.is_set():
            number += 1
            if what == "clear" and number % 20 == 1:
                table.clear()
            if what == "clear all the time":  # far more often than a save starts over
                for _ in range(50):
                    table.clear()
            if what == "shrink":
                table.remove(keys[number % 30 :: 30])
                table.shrink_to_fit()
            # Limit the growth: where saves are slow, the table would fill the memory.
            batch = keys[(number * 977) % 20000 :][:4096] + (
                10**6 * (number % 3) if what == "grow" else 0
            )
            table.upsert(batch, np.full([len(batch), 32], number, np.float32))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for number in range(4):
            de.checkpoint.save(table, tmp_path / str(number), consistent=consistent)
    finally:
        stop.set()
        thread.join(timeout=60)
    assert not thread.is_alive()
    for number in range(4):
        other = de.Variable(dim=32, name="t")
        de.checkpoint.restore(other, tmp_path / str(number))
        keys_found, rows = (each.numpy() for each in other.export())
        assert len(np.unique(keys_found)) == len(keys_found) == int(other.size())
        assert np.all(rows == rows[:, :1])


def test_restoring_and_saving_at_once_end(tmp_path):
    table = de.Variable(dim=4, name="t", devices=["/CPU:0"] * 2)
    table.upsert(np.arange(5000), np.ones([5000, 4], np.float32))
    de.checkpoint.save(table, tmp_path / "a")

    def repeat(function):
        for _ in range(5):
            function()

    actions = [
        lambda: de.checkpoint.restore(table, tmp_path / "a"),
        lambda: de.checkpoint.save(table, tmp_path / "b"),
        lambda: table.upsert(np.arange(5000), np.ones([5000, 4], np.float32)),
    ]
    threads = [threading.Thread(target=repeat, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    other = de.Variable(dim=4, name="t")
    de.checkpoint.restore(other, tmp_path / "b")
    assert np.all(other.export()[1] == 1)


def save_while_idle_and_busy(folder):
    clocks = shims()
    clocks.end_virtual_time.restype = ctypes.c_int64
    table = de.Variable(dim=256, name="t")
    table.upsert(np.arange(20_000), tf.zeros([20_000, 256]))

    def rested(busy):
        clocks.begin_virtual_time(busy)
        try:
            [report] = de.checkpoint.save(table, folder)["t"]
        finally:
            paused = clocks.end_virtual_time() * 1e-9
        return report["rested_seconds"], paused

    assert rested(busy=False) == (0, 0)
    seconds, paused = rested(busy=True)
    assert 0 < paused <= seconds
    assert rested(busy=False) == (0, 0)


def test_a_save_rests_only_while_the_process_is_busy(in_shims, tmp_path):
    in_shims(save_while_idle_and_busy, tmp_path)
