"""`tfra` has the names, arguments, their order and the defaults of the real wheel."""

import inspect
import json
from pathlib import Path

import pytest

import de_core as de
from de_core import tfra
from tests.tfra.programs import signatures
from tests.tfra.record import SIGNATURES
from tests.tfra.wheel import run_wheel

_NO_COUNTERPART = "a stand-in, whose use raises the remedy"
_ONLY_THERE = "only tfra itself calls it"
#: Signatures that differ on purpose: their beginning and the reason.
DIFFERENCES = {
    "CuckooHashTable(": _NO_COUNTERPART,
    "CuckooHashTable.": _NO_COUNTERPART,
    "DEResourceVariable(": _NO_COUNTERPART,
    "DistributedVariableWrapper": _NO_COUNTERPART,
    "Hkv": _NO_COUNTERPART,
    "RedisTable(": _NO_COUNTERPART,
    "RedisTable.": _NO_COUNTERPART,
    "create_slots(": _NO_COUNTERPART,
    "keras.callbacks.DEHvd": _NO_COUNTERPART,
    "keras.callbacks.HvdAllToAllEmbedding": "imported there by accident",
    "keras.callbacks.ModelCheckpoint(": "Keras's own class, which saves the tables",
    "keras.layers.HvdAllToAllEmbedding": _NO_COUNTERPART,
    "keras.layers.LayerNormalization": _NO_COUNTERPART,
    "shadow_ops.DEResourceVariable(": _NO_COUNTERPART,
    "shadow_ops.EmbeddingWeights": _NO_COUNTERPART,
    "shadow_ops.HvdVariable": _NO_COUNTERPART,
    "shadow_ops.embedding_lookup_unique_base(": _NO_COUNTERPART,
    "data_flow.dynamic_partition(": "TensorFlow's own function",
    "math.sparse_": "TensorFlow's own functions",
    "train.Checkpoint": "TensorFlow's own class, which saves the tables",
    "train.DECheckpoint": "TensorFlow's own class, which saves the tables",
    "train.DEHvdSaver": _NO_COUNTERPART,
    "data_flow.LazySO": "imported there by accident",
    "math.LazySO": "imported there by accident",
    "CuckooHashTableCreator.create(": "returns a table there; here a creator opens a de.RowStore",
    "RedisTableCreator.create(": "returns a table there; here a creator opens a de.RowStore",
    "FileSystemSaver.create_": _ONLY_THERE,
    "FileSystemSaver.set_upsert_restore(": _ONLY_THERE,
    "Variable.verify_": _ONLY_THERE,
    "Variable.accum(": "`exists` may be left out",
    "Variable.export_keys_and_scores(": "`split_size` may be left out",
    "shadow_ops.ShadowVariable.verify_": _ONLY_THERE,
}


def fits(theirs: list[str], ours: list[str] | None) -> bool:
    """Returns True if ours has all their parameters, and after them only optional ones."""
    if ours is None:
        return False
    kept = [each for each in theirs if not each.startswith("*")]
    after = [each for each in ours[len(kept) :] if each not in theirs]
    return ours[: len(kept)] == kept and all("=" in each or each[0] == "*" for each in after)


def differing() -> list[str]:
    ours = signatures.found_in(tfra)
    theirs = json.loads(SIGNATURES.read_text("utf-8"))
    assert len(theirs) > 150
    return [
        f"{name.removeprefix('dynamic_embedding.')}("
        for name, parameters in theirs.items()
        if not fits(parameters, ours.get(name))
    ]


def test_every_difference_has_a_reason():
    unexplained = [name for name in differing() if not name.startswith(tuple(DIFFERENCES))]
    assert unexplained == []


def test_every_reason_belongs_to_a_difference():
    found = differing()
    unused = [each for each in DIFFERENCES if not any(name.startswith(each) for name in found)]
    assert unused == []


def test_the_documented_methods_keep_their_arguments_on_the_library_itself():
    documented = {
        "export": ["name=None"],
        "lookup": ["keys"],
        "remove": ["keys", "name=None"],
        "restrict": ["num_reserved", "**kwargs"],
        "size": ["index=None", "name=None"],
        "upsert": ["keys", "values", "name=None"],
    }
    for name, parameters in documented.items():
        assert fits(["self", *parameters], signatures.signature_of(getattr(de.Variable, name)))
    assert "name" in inspect.signature(de.Variable.lookup).parameters


def test_the_librarys_own_variables_take_the_same_arguments_in_order():
    recorded = json.loads(SIGNATURES.read_text("utf-8"))
    for name, ours in (("Variable", de.Variable.__init__), ("get_variable", de.get_variable)):
        theirs = recorded[f"dynamic_embedding.{name}"]
        theirs.remove("short_file_name=False")
        assert fits(theirs, signatures.signature_of(ours)), name


@pytest.mark.slow
def test_the_recorded_signatures_are_those_of_the_real_wheel(tmp_path: Path):
    run_wheel(Path(signatures.__file__), tmp_path / "signatures.json")
    assert (tmp_path / "signatures.json").read_text("utf-8") == SIGNATURES.read_text("utf-8")
