"""`de-core publish`: publishes another process's exports as deltas."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.snapshot import chain_file
from de_core_cli.main import main
from tests.support import models
from tests.support.models import answers


class Scores(models.Scores):
    """Has a table of words too."""

    def __init__(self, tables=1):
        super().__init__(tables)
        self.words = de.Variable(tf.string, dim=2, name="words")
        self.words.upsert(["a", "b"], np.ones([2, 2], np.float32))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, name="user")])
    def __call__(self, user):
        words = tf.reduce_sum(self.words.lookup(["a", "b", "c"]))
        return {"score": tf.reduce_sum(self.users.lookup(user), -1) * self.scale + words}

    def change(self, number):
        super().change(number)
        self.words.upsert(["b", "c"], np.full([2, 2], number, np.float32))


@pytest.mark.each_choice
@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("dtype", [None, "int8"])
def test_exports_become_deltas_to_one_another(tables, dtype, tmp_path, ran):
    module, root = Scores(tables), tmp_path / "root"
    for number in range(4):
        if number > 0:
            module.change(number)
        export = de.export(module, tmp_path / "exports", dtype=dtype)
        keep = "2" if number == 3 else "9"
        said = ran("publish", "add", export, root, "--full-every", "3", "--keep", keep).out
        assert ("full" in said) == (number in (0, 3))
        if number in (1, 2):
            assert ["users", "21", "5"] in [line.split()[:3] for line in said.splitlines()]
        published = root / str(number + 1)
        np.testing.assert_allclose(answers(published), answers(export), rtol=1e-6)
    assert len(chain_file.read(next((root / "3").glob("assets/users*.chain")))) == 3
    assert sorted(each.name for each in root.glob("[0-9]*")) == ["3", "4"]
    np.testing.assert_allclose(answers(root / "4"), answers(export), rtol=1e-6)


def test_an_export_with_values_of_another_dtype_is_published_in_full(tmp_path, ran):
    module, root = Scores(), tmp_path / "root"
    for number, (dtype, kind) in enumerate(
        [(None, "full"), ("int8", "full"), ("int8", "delta"), (None, "full"), (None, "delta")], 1
    ):
        module.change(number)
        export = de.export(module, tmp_path / "exports", dtype=dtype)
        assert kind in ran("publish", "add", export, root, "--full-part", "10").out
        np.testing.assert_allclose(answers(root / str(number)), answers(export), rtol=1e-6)


def test_the_command_continues_a_chain_of_a_trainer(tmp_path, ran):
    module, root = Scores(), tmp_path / "root"
    de.publish(module, root)
    module.change(1)
    de.publish(module, root)
    module.change(2)
    export = de.export(module, tmp_path / "exports")
    ran("publish", "add", export, root)
    np.testing.assert_allclose(answers(root / "3"), answers(export), rtol=1e-6)
    chain = chain_file.read(next((root / "3").glob("assets/users*.chain")))
    assert len(chain) == 3
    assert de.publish(module, root).report["kind"] == "full"


def test_an_impossible_command_prints_the_reason(tmp_path, refused, capsys):
    (tmp_path / "empty").mkdir()
    empty, root = str(tmp_path / "empty"), str(tmp_path / "root")
    assert "version directory that de.export wrote" in refused("publish", "add", empty, root)
    for arguments, reason in [
        (["add", empty, root, "--keep", "1"], "--keep: must be a whole number from 2"),
        (["add", empty, root, "--full-every", "-3"], "--full-every: must be a whole number from 1"),
        (["add", empty, root, "--full-part", "-1"], "--full-part must be above 0"),
        (["add", empty, root, "--full-part", "nan"], "--full-part must be above 0"),
    ]:
        with pytest.raises(SystemExit, match="2"):
            main(["publish", *arguments])
        assert reason in capsys.readouterr().err
    assert not Path(root).exists()


def test_a_damaged_export_publishes_nothing(tmp_path, ran, refused):
    module, root = Scores(), tmp_path / "root"
    ran("publish", "add", de.export(module, tmp_path / "exports"), root)
    module.change(1)
    export = Path(de.export(module, tmp_path / "exports"))
    file = next(export.glob("assets/users*.de"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert file.name in refused("publish", "add", export, root)
    assert sorted(each.name for each in root.iterdir()) == [".publish.lock", "1"]


@pytest.mark.parametrize("content", [b"", b"garbage!"])
def test_a_damaged_graph_is_named(content, tmp_path, refused):
    export = Path(de.export(Scores(), tmp_path / "exports"))
    (export / "saved_model.pb").write_bytes(content)
    said = refused("publish", "add", export, tmp_path / "root")
    assert f"Received: damaged file {str(export / 'saved_model.pb')!r}" in said


@pytest.mark.parametrize(("old", "new"), [(b"TREE", b"TREF"), (b"config.json", b"config.jsox")])
def test_a_damaged_keras_file_is_named(old, new, keras_files, tmp_path, refused):
    file = tmp_path / "bad.keras"
    file.write_bytes(keras_files[1].read_bytes().replace(old, new))
    assert f"Received: {str(file)!r}: " in refused("publish", "add", file, tmp_path / "root")


def test_a_keras_file_and_a_folder_of_versions_are_published(keras_files, tmp_path, ran, refused):
    model, root = keras_files[0], tmp_path / "root"
    assert "full" in ran("publish", "add", keras_files[1], root).out
    ids = tf.range(60, dtype=tf.int64)
    served = tf.saved_model.load(str(root / "1")).signatures["serving_default"]
    [name] = served.structured_input_signature[1]
    [answer] = served(**{name: ids}).values()
    np.testing.assert_allclose(answer, model(ids), rtol=1e-5)
    refused("publish", "add", root, tmp_path / "other")
    de.export(model, tmp_path / "exports")
    assert "delta" in ran("publish", "add", tmp_path / "exports", root).out
    assert "The model must exist" in refused("publish", "add", tmp_path / "absent", root)
