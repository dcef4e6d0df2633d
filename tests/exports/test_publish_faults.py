"""Tests faults during publishing and loading, and the errors that they raise."""

import functools
import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.exports.publish import from_export
from de_core.exports.version import chains_of
from de_core.snapshot import chain_file
from tests.support import models
from tests.support.models import ASKED, answers
from tests.support.small_disk import needs_mounts, small_disk

ROOT = Path(__file__).resolve().parents[2]
ROWS = 3000
Scores = functools.partial(models.Scores, dim=8, rows=ROWS)


@pytest.fixture
def versions(tmp_path):
    """Publishes two versions, the second a delta; returns the second's path."""
    module = Scores()
    de.publish(module, tmp_path / "versions")
    module.users.upsert(np.arange(10), np.zeros([10, 8], np.float32))
    return Path(de.publish(module, tmp_path / "versions"))


def links(path):
    asset = next(path.glob("assets/*.chain"))
    return asset, chain_file.read(asset)


def refused(path, reason, *names):
    # For a missing file, TensorFlow raises Python's FileNotFoundError.
    with pytest.raises((tf.errors.OpError, FileNotFoundError), match=reason) as raised:
        answers(path)
    for name in names:
        assert name in str(raised.value)


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_file_is_named(versions, which):
    _, chain = links(versions)
    (versions / "assets" / chain[which].name).unlink()
    refused(versions, "No such file", chain[which].name)


@pytest.mark.each_choice
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_named(versions, which, part):
    _, chain = links(versions)
    file = versions / "assets" / chain[which].name
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[: int(part * len(content))])
    refused(versions, "must|cannot be mapped|not a snapshot", file.name)


def rewrite(version, asset, chain):
    """Writes a chain file and a manifest that names it."""
    chain_file.write(asset, chain)
    chain_file.write_manifest(version, {asset.name: chain})


def test_files_out_of_order_twice_or_of_another_base_are_refused(versions, tmp_path):
    asset, (base, delta) = links(versions)
    expected = answers(versions)
    rewrite(versions, asset, [delta, base])
    refused(versions, "after its base", base.name)
    rewrite(versions, asset, [base, delta, delta])
    refused(versions, "must not be given twice")
    other = Path(de.publish(Scores(), tmp_path / "other"))
    _, (foreign,) = links(other)
    shutil.copy(other / "assets" / foreign.name, versions / "assets" / foreign.name)
    rewrite(versions, asset, [foreign, delta])
    refused(versions, "directly follow its parent")
    rewrite(versions, asset, [chain_file.Link(base.identity, foreign.name), delta])
    refused(versions, "must have the id that the chain file", foreign.name)
    rewrite(versions, asset, [base, delta])
    np.testing.assert_array_equal(answers(versions), expected)


def is_not_followed(version, *texts):
    with pytest.raises(tf.errors.DataLossError) as raised:
        chain_file.check_manifest(version, chains_of(version))
    for text in (str(version), "publish", *texts):
        assert text.lower() in str(raised.value).lower()


def test_a_chain_that_lost_its_last_delta_is_refused(versions):
    asset, (base, delta) = links(versions)
    expected = answers(versions)
    chain_file.write(asset, [base])  # as it counts right, only the manifest shows the loss
    is_not_followed(versions, f"{base.identity} 1 ", f"{delta.identity} 2 ")
    refused(versions, "manifest", asset.name, f"'{base.identity} 1 ", f"'{delta.identity} 2 ")
    shutil.copy(versions.with_name("1") / chain_file.MANIFEST, versions / chain_file.MANIFEST)
    chain_file.write(asset, [base, delta])  # a manifest of another version
    refused(versions, "manifest", asset.name)
    (versions / chain_file.MANIFEST).unlink()
    refused(versions, "must have its manifest", asset.name)
    is_not_followed(versions, "no such file")
    rewrite(versions, asset, [base, delta])
    np.testing.assert_array_equal(answers(versions), expected)
    (versions / chain_file.MANIFEST).write_text("something else")
    refused(versions, "another first line", chain_file.MANIFEST.name)
    is_not_followed(versions, "must begin with 'de_core manifest 1'")


def test_a_chain_that_counts_wrong_is_refused_with_true_words(versions):
    asset, (base, delta) = links(versions)
    lines = [f"{link.identity} {link.name}" for link in (base, *[delta] * 7)]
    asset.write_text("\n".join(["de_core chain 1", *lines, "end 3", ""]))
    refused(versions, "Received: 'end 3' after 8 lines", asset.name)
    with pytest.raises(tf.errors.DataLossError, match="8 such lines and the last line 'end 3'"):
        chain_file.read(asset)


@pytest.mark.parametrize(
    "text",
    ["", "de_core chain 1\n", "de_core chain 1\nend 0\n", "de_core chain 1\nxyz a.de\nend 1\n",
     "de_core chain 1\n" + "0" * 32 + " ../../a.de\nend 1\n",
     "de_core chain 1\n" + "0" * 32 + " a.de\nend 2\n", "de_core chain 1\n" + "0" * 32 + " a.de\n",
     "\0" * 1000],
)  # fmt: skip
def test_a_chain_file_that_is_not_as_written_is_refused(versions, text):
    asset, _ = links(versions)
    asset.write_text(text)
    refused(versions, "must (be|consist of)|cannot be mapped|not a snapshot", asset.name)


def test_a_damaged_old_version_is_pruned_as_any_other(versions, tmp_path):
    root, module = versions.parent, Scores()

    def damage(number):
        asset, _ = links(root / number)
        asset.write_text(asset.read_text()[:-4])

    damage("1")
    for number in ("3", "4"):
        assert de.publish(module, root, keep_versions=2) == str(root / number)
    damage("3")
    export = Path(de.export(module, tmp_path / "exports"))
    assert from_export.add(export, root, 20, 0.5, False, 2) == str(root / "5")
    assert {each.name for each in root.glob("[0-9]*")} == {"4", "5"}


def test_a_file_replaced_under_a_loaded_model_hurts_nobody(versions):
    loaded = tf.saved_model.load(str(versions))
    expected = loaded.signatures["serving_default"](user=ASKED)["score"]
    _, chain = links(versions)
    for link in chain:
        file = versions / "assets" / link.name
        other = file.with_suffix(".new")
        other.write_bytes(b"something else")
        other.replace(file)
    np.testing.assert_array_equal(
        loaded.signatures["serving_default"](user=ASKED)["score"], expected
    )
    shutil.rmtree(versions)
    np.testing.assert_array_equal(
        loaded.signatures["serving_default"](user=ASKED)["score"], expected
    )


@pytest.fixture
def two_mib(tmp_path):
    """A file system of 2 MiB in memory."""
    with small_disk(tmp_path / "small", "2m") as folder:
        yield folder
        gc.collect()  # frees loaded models, which are in reference cycles


@needs_mounts
def test_a_full_disk_leaves_no_version_and_loses_no_change(two_mib):
    module = Scores()
    de.publish(module, two_mib)
    first = module(ASKED)["score"]
    filler = two_mib / "filler"
    with filler.open("wb", buffering=0) as file:
        while True:
            try:
                if file.write(bytes(4096)) < 4096:
                    break
            except OSError:
                break
    module.users.upsert(np.arange(2000), np.full([2000, 8], 3.0, np.float32))
    before = sorted(each.name for each in two_mib.iterdir())
    for full in (False, True):
        with pytest.raises((tf.errors.OpError, OSError), match=r"[Nn]o space|exhausted"):
            de.publish(module, two_mib, full=full)
        assert sorted(each.name for each in two_mib.iterdir()) == before
    filler.unlink()
    path = de.publish(module, two_mib)
    assert path.report["kind"] == "delta"
    assert Path(path).name == "2"
    np.testing.assert_array_equal(answers(path), module(ASKED)["score"])
    np.testing.assert_array_equal(answers(two_mib / "1"), first)


PUBLISHER = """
    import sys
    import numpy as np
    import tensorflow as tf
    import de_core as de
    from tests.exports.test_publish_faults import ROWS, Scores

    module, number = Scores(), 0
    while True:
        number += 1
        ids = np.arange(ROWS)
        module.users.upsert(ids, np.full([ROWS, 8], float(number), np.float32))
        de.publish(module, sys.argv[1], full_part=10, full_every=4, keep_versions=4,
                   consistent=True)
        print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("run", range(5))
def test_a_killed_publisher_leaves_whole_versions(run, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PUBLISHER), str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    for _ in range(3 + run):
        assert process.stdout.readline()
    time.sleep(0.013 * (run + 1))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    numbers = [int(each.name) for each in tmp_path.iterdir() if each.name.isdecimal()]
    assert numbers
    for number in numbers:
        scores = answers(tmp_path / str(number))[:-2]  # the last two have no row
        assert set(scores.tolist()) == {16.0 * number}
    # The next publisher removes the leftovers and continues.
    path = de.publish(Scores(), tmp_path)
    assert int(Path(path).name) == max(numbers) + 1
    assert [each.name for each in tmp_path.glob(".*")] == [".publish.lock"]


def test_a_version_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    synced, synced_when_named = set(), []

    def identity(stat):
        return stat.st_dev, stat.st_ino

    def fsync(descriptor, real=os.fsync):
        real(descriptor)
        synced.add(identity(os.fstat(descriptor)))

    def rename(source, target, real=Path.rename):
        synced_when_named.append(set(synced))
        return real(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    module = Scores()
    for number in range(3):
        path = Path(de.publish(module, tmp_path, keep_versions=None))
        module.users.upsert([number], np.ones([1, 8], np.float32))
        wanted = {identity(each.stat()) for each in [path, *path.rglob("*")]}
        assert wanted <= synced_when_named[number]
        assert identity(tmp_path.stat()) in synced
        synced.remove(identity(tmp_path.stat()))
