"""`de.publish` writes versions that answer as the trained model did when it was published."""

import gc
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import de_core as de
from de_core.snapshot import chain_file
from tests.support.models import ASKED, Scores, answers, served, stats

ROWS = 2000
IDS = np.arange(ROWS)


@pytest.mark.each_choice
@pytest.mark.parametrize("tables", [1, 2])
@pytest.mark.parametrize("dtype", [None, "int8"])
def test_each_version_answers_as_the_model_did(tables, dtype, tmp_path):
    module, expected, kinds, paths = Scores(tables), {}, [], []
    for number in range(6):
        if number > 0:
            module.change(number)
        path = de.publish(module, tmp_path, full_every=4, keep_versions=None, dtype=dtype)
        paths.append(path)
        kinds.append(path.report["kind"])
        expected[path] = module(ASKED)["score"].numpy()
    assert kinds == ["full", "delta", "delta", "delta", "full", "delta"]
    assert [Path(path).name for path in paths] == list("123456")
    for path in paths:
        np.testing.assert_allclose(answers(path), expected[path], rtol=1e-2 if dtype else 1e-6)
    told = stats(paths[3])["users"]
    assert (told["generation"], told["deltas"]) == (3, 3)
    assert told["rows"] == ROWS - 15 + 3
    assert told["base"] == stats(paths[0])["users"]["id"] != told["id"]


def test_a_delta_is_as_large_as_the_changes(tmp_path):
    module = Scores()
    first = Path(de.publish(module, tmp_path))
    module.change(1)
    second = de.publish(module, tmp_path)
    assert second.report["previous"] == 1
    table = second.report["tables"]["users"]
    assert (table["rows"], table["tombstones"]) == (21, 5)
    base, delta = chain_file.read(next(Path(second).glob("assets/*.chain")))
    assert (first / "assets" / base.name).samefile(Path(second, "assets", base.name))
    size = (Path(second) / "assets" / delta.name).stat().st_size
    assert size == table["bytes"] < 0.3 * (first / "assets" / base.name).stat().st_size
    third = de.publish(module, tmp_path)
    assert third.report["tables"]["users"]["rows"] == 0


def test_versions_in_one_process_do_not_interfere(tmp_path):
    module = Scores()
    loaded, expected = [], []
    for number in range(3):
        module.change(number)
        loaded.append(tf.saved_model.load(de.publish(module, tmp_path)))
        expected.append(module(ASKED)["score"].numpy())
    for model, scores in zip(loaded, expected, strict=True):
        got = model.signatures["serving_default"](user=ASKED)["score"]
        np.testing.assert_allclose(got, scores, rtol=1e-6)
    del model, loaded[1]
    gc.collect()
    for model, scores in zip(loaded, [expected[0], expected[2]], strict=True):
        got = model.signatures["serving_default"](user=ASKED)["score"]
        np.testing.assert_allclose(got, scores, rtol=1e-6)


def test_sessions_load_it_as_tensorflow_serving_does(tmp_path):
    module = Scores()
    for number in range(2):
        module.change(number)
        path = de.publish(module, tmp_path)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], path)
        signature = meta.signature_def["serving_default"]
        feeds = {signature.inputs["user"].name: ASKED.numpy()}
        scores = session.run(signature.outputs["score"].name, feeds)
    np.testing.assert_allclose(scores, module(ASKED)["score"], rtol=1e-6)


def test_old_versions_go_and_those_that_stay_lose_nothing(tmp_path):
    module = Scores()
    by_hand = de.export(module, tmp_path, version=1)
    expected = {}
    for number in range(5):
        module.change(number)
        path = de.publish(module, tmp_path, keep_versions=(4, 4, 4, 4, 2)[number], full_every=3)
        expected[Path(path).name] = module(ASKED)["score"].numpy()
        for kept in [*expected][-2:]:
            np.testing.assert_allclose(answers(tmp_path / kept), expected[kept], rtol=1e-6)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == [".publish.lock", "1", "5", "6"]
    assert Path(by_hand, "saved_model.pb").exists()
    shutil.copytree(path, tmp_path / "elsewhere" / "1")
    shutil.rmtree(path)
    copied = answers(str(tmp_path / "elsewhere" / "1"))
    np.testing.assert_allclose(copied, module(ASKED)["score"], rtol=1e-6)


def full_after(tmp_path, action):
    module = Scores()
    de.publish(module, tmp_path)
    action(module)
    path = de.publish(module, tmp_path)
    np.testing.assert_allclose(answers(path), module(ASKED)["score"], rtol=1e-6)
    return path.report["kind"] == "full"


def test_a_version_is_full_only_after_certain_changes(tmp_path):
    def clear(module):
        module.users.clear()
        module.users.upsert([3], np.ones([1, 4], np.float32))

    assert not full_after(tmp_path / "changed", lambda module: module.change(1))
    assert not full_after(tmp_path / "cleared", clear)
    other = Scores()
    other.change(2)
    de.checkpoint.save(other.users, tmp_path / "saved")
    restore = lambda module: de.checkpoint.restore(module.users, tmp_path / "saved")  # noqa: E731
    assert not full_after(tmp_path / "restored", restore)
    assert full_after(tmp_path / "other", lambda _: de.publish(other, tmp_path / "other"))
    assert full_after(tmp_path / "gone", lambda _: shutil.rmtree(tmp_path / "gone" / "1"))
    module = Scores()
    de.publish(module, tmp_path / "oov")
    assert de.publish(module, tmp_path / "oov", oov="zeros").report["kind"] == "full"
    assert de.publish(module, tmp_path / "oov", oov="zeros").report["kind"] == "delta"
    assert de.publish(module, tmp_path / "oov", oov="zeros", full=True).report["kind"] == "full"


def test_large_deltas_end_a_chain(tmp_path):
    module, kinds = Scores(), []
    for number in range(4):
        module.users.upsert(IDS[: ROWS // 3], np.full([ROWS // 3, 4], number, np.float32))
        kinds.append(de.publish(module, tmp_path, full_part=0.6).report["kind"])
    assert kinds == ["full", "delta", "delta", "full"]


def test_rows_below_a_bound_stay_out_of_deltas_and_leave(tmp_path):
    module = Scores(eviction=de.EvictionScore(max_rows=10**6))
    module.users.assign_scores(IDS, IDS)
    keep = de.KeepRows(min_score=1000)
    de.publish(module, tmp_path, keep=keep)
    module.users.upsert([1500], np.zeros([1, 4], np.float32))
    module.users.upsert([500], np.zeros([1, 4], np.float32))
    module.users.assign_scores([1600], [5])
    path = de.publish(module, tmp_path, keep=keep)
    loaded = tf.saved_model.load(path)
    look = loaded.signatures["de_lookup/users"]
    found = look(ids=tf.constant([1500, 500, 1600, 1700], tf.int64))["found"]
    assert found.numpy().tolist() == [True, False, False, True]


def test_a_keras_model_with_a_vocabulary(tmp_path):
    words = keras.layers.StringLookup(vocabulary=["a", "b"])
    model = keras.Sequential(
        [keras.Input([], dtype="string"), words, de.layers.Embedding(2, name="rows")]
    )
    asked = tf.constant(["a", "b", "c"])
    table = model.get_layer("rows").table
    table.upsert(IDS, np.ones([ROWS, 2], np.float32))
    for number in range(3):
        table.upsert([1], np.full([1, 2], number, np.float32))
        path = de.publish(model, tmp_path, sample={"inputs": ["a"]})
        np.testing.assert_array_equal(served(path, inputs=asked), model(asked))
        assert Path(path, "assets.extra/tf_serving_warmup_requests").is_file()
    assert path.report["kind"] == "delta"


class Words(Scores):
    """Scores words, whose numbers are the lines of a file."""

    def __init__(self, file):
        super().__init__()
        lines = tf.lookup.TextFileInitializer(
            str(file),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        self.words = tf.lookup.StaticHashTable(lines, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def __call__(self, word):
        return {"score": tf.reduce_sum(self.users.lookup(self.words.lookup(word)), -1)}


def test_a_models_own_files_are_in_every_version(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("a\nb\n")
    module = Words(file)
    for number, kind in enumerate(["full", *["delta"] * 3]):
        module.users.upsert([1], np.full([1, 4], number, np.float32))
        path = de.publish(module, tmp_path / "root", keep_versions=2)
        assert path.report["kind"] == kind
        assert Path(path, "assets/words.txt").read_text() == "a\nb\n"
    file.unlink()
    assert served(path, word=["a", "b"]).tolist() == [4, 12]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"full_every": 0}, "`full_every` must be an integer of at least 1"),
        ({"keep_versions": 1}, "at least 2"),
        ({"full_part": 0}, "above 0"),
        ({"full_part": "half"}, "must be a number"),
        ({"keep": de.KeepRows(where=len)}, "must have no `where`"),
        ({"dtype": "int4"}, "`dtype` must be one of"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        de.publish(Scores(), tmp_path / "new", **arguments)
    assert not list(tmp_path.glob("new/[0-9]*"))
