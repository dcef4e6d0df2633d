"""The wheel requires the TensorFlow minor that it was compiled against."""

from pathlib import Path
from types import ModuleType

import pytest


def make_wheel(folder: Path, name: str, version: str) -> None:
    """Creates the files that the finder reads: headers, and the wheel's metadata."""
    (folder / "tensorflow" / "include").mkdir(parents=True)
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu", "tensorflow_cpu"])
def test_wheel_is_found_by_its_metadata(tf_pin: ModuleType, tmp_path: Path, name: str):
    make_wheel(tmp_path, name, "2.20.0")
    found = tf_pin.find([str(tmp_path)])
    assert found == (name.replace("_", "-"), "2.20.0", tmp_path / "tensorflow")


def test_folder_without_headers_is_passed_over(tf_pin: ModuleType, tmp_path: Path):
    (tmp_path / "a" / "tensorflow").mkdir(parents=True)
    make_wheel(tmp_path / "b", "tensorflow", "2.21.0")
    found = tf_pin.find([str(tmp_path / "a"), str(tmp_path / "b")])
    assert found.package == tmp_path / "b" / "tensorflow"


def test_requirement_is_the_found_minor_or_the_chosen_or_the_default(
    tf_pin: ModuleType, tmp_path: Path
):
    assert tf_pin.find([str(tmp_path)]) is None
    found = tf_pin.Installed("tensorflow-cpu", "2.20.3", Path("/x/tensorflow"))
    assert tf_pin.requirement(found, {}) == "tensorflow-cpu==2.20.*"
    assert tf_pin.requirement(None, {}) == f"tensorflow=={tf_pin.DEFAULT_MINOR}.*"
    assert tf_pin.requirement(None, {"DE_CORE_TENSORFLOW": "2.20"}) == "tensorflow==2.20.*"


@pytest.mark.parametrize("version", ["2.18.1", "2.9.0", "1.15.5"])
def test_too_old_a_tensorflow_is_refused_with_the_remedy(tf_pin: ModuleType, version: str):
    found = tf_pin.Installed("tensorflow", version, Path("/x/tensorflow"))
    with pytest.raises(RuntimeError, match=rf"tensorflow={version} in /x\. Run: pip install"):
        tf_pin.check_supported(found)


@pytest.mark.parametrize("version", ["2.19.0", "2.21.0", "2.22.0rc0", "3.0.0"])
def test_supported_and_newer_tensorflows_are_tried(tf_pin: ModuleType, version: str):
    tf_pin.check_supported(tf_pin.Installed("tensorflow", version, Path("/x/tensorflow")))


def test_minor_of_a_malformed_version_is_an_error(tf_pin: ModuleType):
    assert tf_pin.minor_of("2.21.0rc1") == "2.21"
    with pytest.raises(ValueError, match="Received: version='nightly'"):
        tf_pin.minor_of("nightly")


def test_a_wheel_for_several_tensorflows_requires_none(tf_pin: ModuleType, monkeypatch):
    monkeypatch.setenv("DE_CORE_TENSORFLOW", "any")
    assert tf_pin.dynamic_metadata({}, {})["dependencies"] == list(tf_pin.OTHER_DEPENDENCIES)
    assert tf_pin.get_requires_for_dynamic_metadata({}) == []


def test_metadata_names_tensorflow_and_numpy(tf_pin: ModuleType):
    dependencies = tf_pin.dynamic_metadata({}, {})["dependencies"]
    assert dependencies[0].startswith("tensorflow")
    assert any(d.startswith("numpy") for d in dependencies)
