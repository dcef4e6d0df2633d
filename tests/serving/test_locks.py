"""The images' lock files match their sources, and the Dockerfile uses its layers."""

import importlib.metadata
import re
import sys

import lock
import pytest
from packaging.requirements import Requirement
from versions import versions

from tests.repo.imports import imports_below
from tests.serving.test_model_server_stage import instructions
from tests.serving.tools import ROOT

NAMES = ("tensorflow.txt", "gateway.txt")


@pytest.fixture(scope="module")
def texts():
    return {name: (lock.LOCKS / name).read_text("utf-8") for name in NAMES}


def pins(text):
    """Returns the requirement and the hashes of each pin."""
    entries = re.sub(r"\\\n\s*", "", text).splitlines()
    parts = [each.split("--hash=") for each in entries if not each.startswith("#")]
    return [(Requirement(first), [each.strip() for each in rest]) for first, *rest in parts]


@pytest.mark.parametrize("name", NAMES)
def test_a_lock_is_in_step_with_its_sources(texts, name):
    wanted = lock.requirements()[name]
    header = [line.removeprefix("#   ") for line in texts[name].splitlines() if line[:4] == "#   "]
    assert header == wanted, "run serving_ops/lock.py"
    pinned = {}
    for requirement, _ in pins(texts[name]):
        pinned.setdefault(requirement.name, []).append(requirement.specifier)
    for each in map(Requirement, wanted):
        for specifier in pinned[each.name.lower()]:
            (version,) = [pin.version for pin in specifier]
            assert each.specifier.contains(version), each


@pytest.mark.parametrize("name", NAMES)
def test_every_pin_has_hashes_and_names_no_host(texts, name):
    assert not re.search(r"://|index-url|find-links", texts[name])
    for requirement, hashes in pins(texts[name]):
        assert str(requirement.specifier).startswith("==")
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


def test_both_locks_fit_into_one_environment(texts):
    tensorflow, gateway = (
        {(r.name, str(r.specifier)) for r, _ in pins(texts[name])} for name in NAMES
    )
    shared = {name for name, _ in tensorflow} & {name for name, _ in gateway}
    assert {"numpy", "protobuf", "grpcio"} <= shared
    assert {p for p in tensorflow if p[0] in shared} == {p for p in gateway if p[0] in shared}
    release = versions()["TENSORFLOW"]
    assert {("tensorflow", f"=={release}"), ("tensorflow-cpu", f"=={release}")} <= tensorflow


def test_the_gateway_needs_neither_tensorflow_nor_tools(texts):
    names = {requirement.name for requirement, _ in pins(texts["gateway.txt"])}
    assert not names & {"setuptools", "pygments", "rich", "pip", "wheel", "tensorflow", "keras"}
    assert not any("tensorflow" in name for name in names)


def test_the_gateway_imports_nothing_that_only_tensorflow_brings(texts):
    locked = {requirement.name for requirement, _ in pins(texts["gateway.txt"])}
    brought_by = importlib.metadata.packages_distributions()
    known = {*sys.stdlib_module_names, "server", "tensorflow"}
    missing = {
        (file, name)
        for file, _, module, _ in imports_below(ROOT, "server")
        if (name := module.partition(".")[0]) not in known
        and not locked & {each.lower().replace("_", "-") for each in brought_by.get(name, ())}
    }
    assert missing == set()


def test_dependencies_ops_and_sources_have_layers_of_their_own():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    for stage in ("trainer", "gateway"):
        assert f"FROM runtime AS {stage}\n" in text
    copies = [line for line in instructions("runtime") if line.startswith("COPY")]
    assert copies == ["COPY --from=libraries /opt/app /opt/app", "COPY --from=ops /ops /opt/app"]
    before_dev = text[: text.index(" AS dev\n")]
    assert not re.search(r"^COPY .*(README|\.git|docs| \. )", before_dev, re.M)
    for stage in ("build", "tensorflow", "libraries", "gateway-libraries", "front-libraries"):
        copied = [line.split()[1] for line in instructions(stage) if line.startswith("COPY")]
        assert all(each.startswith("serving_ops/locks/") for each in copied), stage
    assert not re.search(r"pip install (?!--require-hashes|--no-deps)", before_dev)


def test_bases_are_build_arguments_and_users_are_numbers():
    text = (ROOT / "Dockerfile").read_text("utf-8")
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.M)
    made = {stage for _, stage in stages}
    assert all(base in made or re.fullmatch(r"\$\{\w+_IMAGE\}", base) for base, _ in stages)
    assert set(re.findall(r"^USER (.*)$", text, re.M)) == {"1000"}


def test_the_context_holds_no_models_builds_or_secrets():
    ignored = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert {"**/.env", "**/models", "build", "dist", ".git", ".venv", "**/*.so"} <= set(ignored)
