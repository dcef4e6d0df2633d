"""Measures how much of a served table's files the system keeps in huge pages."""

import mmap
import os
import re
import time
from pathlib import Path

import pytest
import tensorflow as tf

import de_core as de
from tests.exports.test_pages import HUGE, ROWS, Model, table_file

pytestmark = pytest.mark.quiet


def mapped_bytes(path, kind):
    """Returns the bytes of a mapped file that /proc/self/smaps counts as `kind`."""
    text = Path("/proc/self/smaps").read_text("utf-8")
    name = re.escape(str(Path(path).resolve()))
    found = re.findall(rf" {name}\n(?:\w+: .*\n)*?{kind}: +(\d+) kB", text)
    return 1024 * sum(map(int, found))


def huge_bytes(path):
    return mapped_bytes(path, "FilePmdMapped")


def write(path, data, piece):
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(data), piece):
            file.write(data[at : at + piece])
        os.fsync(file.fileno())


def forget(path):
    """Drops a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def need_huge_pages(folder, piece, advise):
    """Skips the test if even a plain file gets no huge pages."""
    path = folder / "probe"
    write(path, bytes(2 * HUGE), piece)
    if advise:
        forget(path)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
    ):
        if advise:
            mapped.madvise(mmap.MADV_HUGEPAGE)
        assert sum(mapped[:: mmap.PAGESIZE]) == 0
        if huge_bytes(path) < HUGE:
            pytest.skip("the file system has no huge pages")
    path.unlink()


def served(path, file):
    """Looks up every row; returns the fraction of the table's file in huge pages."""
    loaded = tf.saved_model.load(path)
    answer = loaded.signatures["de_lookup/rows"](ids=tf.range(ROWS, dtype=tf.int64))
    assert bool(tf.reduce_all(answer["embeddings"] == 1.0))
    return huge_bytes(file)


def test_an_export_lies_in_huge_pages(tmp_path):
    need_huge_pages(tmp_path, HUGE, advise=False)
    path = de.export(Model(), tmp_path / "model")
    file = table_file(path)
    assert served(path, file) >= file.stat().st_size // HUGE * HUGE


def test_a_file_that_was_copied_and_forgotten_is_read_into_huge_pages(tmp_path):
    path = de.export(Model(), tmp_path / "model")
    file = table_file(path)
    data = file.read_bytes()
    # The system may have no huge page free at one moment: a plain file shows that it has one.
    for _ in range(10):
        need_huge_pages(tmp_path, 1 << 16, advise=True)
        file.unlink()
        write(file, data, 1 << 16)
        forget(file)
        if served(path, file) >= 2 * HUGE:  # neither head nor tail: opening reads small pages there
            return
        time.sleep(0.5)  # the system makes huge pages from small ones meanwhile
    need_huge_pages(tmp_path, 1 << 16, advise=True)
    pytest.fail("most of the table's file must be in huge pages, as a plain file's is")
