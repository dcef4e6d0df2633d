"""Reading key-value files, whose sizes alone tell their dtypes."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.tfra_files import import_checkpoint
from tests.tfra_files.artefacts import DATA, assert_rows, expected


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
