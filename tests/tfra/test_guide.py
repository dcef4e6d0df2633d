"""The guide for users of `tfra` names what differs. `tests/repo/test_pages.py` runs its blocks."""

import json
import re
from pathlib import Path

import pytest

import de_core
from de_core import tfra
from tests.tfra.record import PROGRAMS
from tests.tfra.wheel import run_wheel

GUIDE = (Path(__file__).parents[2] / "docs/howto/migrating.md").read_text("utf-8")
#: The guide's statements about the real wheel.
THERE = {
    "a row whose id is twice in a batch": -1.0,
    "accumulator after a gradient of 1": 1.0,
    "norm with max_norm=0.5": 3.0,
    "row of the initializer [1, 2]": [1.0, 1.0],
    "row of the initializer unknown": "u",
    "rows after restrict(4)": 2,
    "rows follow the ids": False,
    "rows of the second layer of the default name": 1,
    "shape of a layer with a combiner": [1, 2, 2],
    "sizes of shards of even keys": [8, 0],
}


@pytest.mark.slow
def test_the_real_wheel_does_what_the_guide_says(tmp_path):
    run_wheel(PROGRAMS / "differences.py", tmp_path / "found.json")
    assert json.loads((tmp_path / "found.json").read_text("utf-8")) == THERE


def test_every_name_without_a_counterpart_in_the_guide_raises():
    table = GUIDE.partition("| there | here |")[2].partition("\n\n")[0]
    names = [
        name
        for row in table.splitlines()
        for name in re.findall(r"`(\w+)`", row.partition("|")[2].partition("|")[0])
    ]
    assert len(names) > 5
    de = tfra.dynamic_embedding
    places = (de, de.keras.layers, de.train, de.shadow_ops)
    for name in names:
        stand_in = next(getattr(place, name) for place in places if hasattr(place, name))
        with pytest.raises(NotImplementedError, match=r"must not be used"):
            stand_in()
    for name in ("get_trainable_by_name", "trainable_store"):  # only the library itself lacks them
        with pytest.raises(AttributeError, match="lookups create no variables"):
            getattr(de_core.Variable(), name)
    with pytest.raises(NotImplementedError, match="`synchronous` must be False"):
        de.DynamicEmbeddingOptimizer("adam", synchronous=True)
    with pytest.raises(ValueError, match="`save_path` must be None"):
        de.FileSystemSaver(save_path="rows")


def test_the_guide_names_what_the_library_itself_does_not_have():
    for argument in ("short_file_name", "partition_strategy", "validate_indices"):
        assert f"`{argument}`" in GUIDE
        for function in (de_core.Variable, de_core.embedding_lookup, de_core.get_variable):
            assert argument not in str(function.__init__.__doc__) + str(function.__doc__)
