"""Tests the model folder: layouts, incomplete versions, and folders that cannot be served."""

from pathlib import Path

import pytest

from server.engines.embedded.model_folder import ModelFolder, fingerprint
from server.errors import StartError


def write_version(folder, *names):
    for name in names:
        path = folder / str(name)
        path.mkdir(parents=True)
        (path / "saved_model.pb").write_bytes(b"x")


def test_numbered_folders_are_versions_of_one_model(tmp_path):
    folder = tmp_path / "ranker"
    write_version(folder, 1, 20, "0003")
    versions = {1: folder / "1", 3: folder / "0003", 20: folder / "20"}
    assert ModelFolder(folder).scan() == {"ranker": versions}
    assert ModelFolder(folder, "other").scan() == {"other": versions}


def test_a_link_is_a_model_under_its_own_name(tmp_path, monkeypatch):
    write_version(tmp_path / "build-41", 1)
    (tmp_path / "tagger").symlink_to("build-41")
    assert list(ModelFolder(tmp_path / "tagger").scan()) == ["tagger"]
    monkeypatch.chdir(tmp_path / "build-41")
    assert list(ModelFolder(Path()).scan()) == ["build-41"]


def test_folders_of_versions_are_models(tmp_path):
    write_version(tmp_path / "a", 1)
    write_version(tmp_path / "b", 7, 8)
    write_version(tmp_path / ".hidden", 1)
    write_version(tmp_path / "caf\udce9", 1)  # no UTF-8
    (tmp_path / "notes").mkdir()
    (tmp_path / "README").write_text("")
    found = ModelFolder(tmp_path).scan()
    assert {name: sorted(versions) for name, versions in found.items()} == {"a": [1], "b": [7, 8]}


@pytest.mark.parametrize("denied", ["lost+found", "m/2"])
def test_a_folder_that_may_not_be_read_hides_no_other(tmp_path, monkeypatch, denied):
    write_version(tmp_path / "m", 1, 2)
    (tmp_path / "lost+found").mkdir()

    def deny(call):
        def called(path):
            if tmp_path / denied in (path, path.parent):
                raise PermissionError(path)
            return call(path)

        return called

    for name in ("iterdir", "is_file"):  # root may read every folder
        monkeypatch.setattr(Path, name, deny(getattr(Path, name)))
    found = ModelFolder(tmp_path).scan()
    assert {name: list(versions) for name, versions in found.items()} == {"m": [1, 2]}


@pytest.mark.parametrize("name", ["tmp-2", "2.tmp", "-2", "x", "99999999999999999999", "2 "])
def test_other_names_are_no_versions(tmp_path, name):
    write_version(tmp_path / "m", 1, name)
    assert list(ModelFolder(tmp_path / "m").scan()["m"]) == [1]


def test_a_version_without_its_model_file_is_still_being_written(tmp_path):
    (tmp_path / "m" / "1").mkdir(parents=True)
    assert ModelFolder(tmp_path / "m").scan() == {"m": {}}
    assert ModelFolder(tmp_path).scan() == {"m": {}}


def test_an_empty_folder_is_a_model_only_if_it_is_named(tmp_path):
    assert ModelFolder(tmp_path).scan() == {}
    assert ModelFolder(tmp_path, "m").scan() == {"m": {}}


def test_a_folder_that_can_never_be_served_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"must be a folder\."):
        ModelFolder(tmp_path / "file").check()
    write_version(tmp_path, 1)
    with pytest.raises(StartError, match=r"itself a SavedModel.* give its parent folder\.$"):
        ModelFolder(tmp_path / "1").check()
    ModelFolder(tmp_path).check()


def test_fingerprint_changes_with_any_file(tmp_path):
    write_version(tmp_path, 1)
    (tmp_path / "1" / "loop").symlink_to("loop")
    before = fingerprint(tmp_path / "1")
    assert fingerprint(tmp_path / "1") == before
    (tmp_path / "1" / "variables").mkdir()
    (tmp_path / "1" / "variables" / "data").write_bytes(b"y")
    assert fingerprint(tmp_path / "1") != before
