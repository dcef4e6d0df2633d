"""Tests versions that appear and disappear, with a loader that records each step."""

import asyncio
import contextlib
import functools
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from server.engines.base import ModelSpec, VersionState
from server.engines.embedded.engine import EmbeddedEngine
from server.engines.embedded.leased_version import LeasedVersion
from server.engines.embedded.model_folder import ModelFolder, VersionPolicy
from server.engines.embedded.model_versions import ModelVersions
from server.engines.embedded.worker_pool import WorkerPool
from server.errors import Code, ServingError
from server.settings import load_settings
from tests.server.support.eventually import PATIENCE_S, eventually
from tests.server.support.numpy_engine import signature, tensor

SPEC = signature("serving_default", [tensor("x", "int64")], [tensor("y", "int64")])
STATS = signature("de_stats", [], [tensor("stats", "string")])
TOLD = {
    "unchecked": '[{"table": "t", "health": "unchecked"}]',
    "intact": '[{"table": "t", "health": "intact"}]',
    "damaged": '[{"table": "t", "health": "damaged", "damage": "t.de: section 3 is corrupt"}]',
}


class FakeModel:
    """A fake model. Its file says how it loads: `broken` fails, `slow` waits for the test."""

    def __init__(self, path: Path, hold: threading.Event | None = None) -> None:
        content = (path / "saved_model.pb").read_text()
        if content == "broken":
            raise ValueError("broken file")
        if content == "slow":
            assert hold is not None
            assert hold.wait(PATIENCE_S)
        self.number = int(path.name)
        self.signatures = {SPEC.name: SPEC, STATS.name: STATS}
        self.described = [SPEC]
        self.closed = self.running = False
        self.health = "unchecked"
        self.hold = hold

    def run(self, signature, _inputs, _seconds=None):
        assert not self.closed
        if signature == STATS.name:
            return {"stats": np.array(TOLD[self.health].encode(), object)}
        self.running = True
        if self.hold is not None:
            assert self.hold.wait(PATIENCE_S)
        assert not self.closed
        return {"y": np.array(self.number)}

    def close(self):
        self.closed = True


class World:
    """A folder of fake versions, the model that serves them, and a list of all loaded versions."""

    def __init__(self, path: Path) -> None:
        self.path = path / "m"
        self.path.mkdir()
        self.loaded: list[FakeModel] = []
        self.hold: threading.Event | None = None
        self.loading = 0
        self.loader = WorkerPool("load", 1, 100)
        serve = functools.partial(LeasedVersion, pool=WorkerPool("test", 2, 10))
        self.model = ModelVersions("m", self.load, serve, self.loader, VersionPolicy())

    def load(self, path):
        self.loading += 1
        self.loaded.append(FakeModel(path, self.hold))
        return self.loaded[-1]

    def write(self, version, content="fine", model="m"):
        folder = self.path.with_name(model) / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "saved_model.pb").write_text(content)

    async def publish(self, version, content="fine"):
        self.write(version, content)
        await self.update()

    def remove(self, version):
        (self.path / str(version) / "saved_model.pb").unlink()

    async def update(self):
        await self.model.update(ModelFolder(self.path).scan()["m"])
        await self.settle()

    async def settle(self):
        """Waits for pending releases: tasks that use the loader's only thread."""
        for _ in range(2):
            for _ in range(20):  # more turns of the loop than a release takes
                await asyncio.sleep(0)
            await self.loader.run(lambda: None)

    async def run_for_long(self):
        """Starts a run of the current version that ends when the test lets it."""
        running = asyncio.create_task(self.model.current.run("serving_default", {}))
        await eventually(lambda: self.loaded[-1].running)
        return running

    @property
    def current(self):
        serving = self.model.current
        return serving.version if serving else None

    def states(self):
        return {s.version: s.state.value for s in self.model.statuses()}


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


async def test_the_newest_version_serves_and_the_old_one_is_released(world):
    await world.publish(1)
    assert (world.current, world.states()) == (1, {1: "AVAILABLE"})
    world.write(3)
    await world.publish(2)
    assert (world.current, world.states()) == (3, {3: "AVAILABLE", 1: "END"})
    assert [m.number for m in world.loaded] == [1, 3]
    assert [m.closed for m in world.loaded] == [True, False]
    await world.model.close()
    assert world.loaded[1].closed


async def test_the_previous_version_replaces_a_damaged_one(world):
    await world.publish(1)
    await world.publish(2)
    assert world.current == 2
    (_, damaged) = world.loaded
    damaged.hold, damaged.health = threading.Event(), "damaged"
    running = await world.run_for_long()
    for _ in range(2):
        await world.update()
        assert (world.current, world.states()) == (1, {2: "UNLOADING", 1: "AVAILABLE"})
    damaged.hold.set()
    await running
    for _ in range(2):
        await world.update()
        assert (world.current, world.states()) == (1, {2: "END", 1: "AVAILABLE"})
    (status, _) = world.model.statuses()
    assert (status.code, status.message) == (Code.DATA_LOSS, "t.de: section 3 is corrupt")
    await world.publish(2, "written again")
    assert (world.current, [m.number for m in world.loaded]) == (2, [1, 2, 1, 2])
    await world.model.close()


async def test_a_damaged_version_serves_if_it_is_the_only_one(world):
    await world.publish(1)
    (only,) = world.loaded
    only.health = "damaged"
    for _ in range(2):
        await world.update()
        assert world.current == 1
    await world.publish(2)
    assert (world.current, world.states()) == (2, {2: "AVAILABLE", 1: "END"})
    await world.model.close()


async def test_files_are_looked_at_after_they_were_found_intact(world):
    for version in (1, 2):
        await world.publish(version)
    for health, current in (("intact", 2), ("damaged", 1)):
        world.loaded[1].health = health
        await world.update()
        assert world.current == current
    await world.model.close()


@pytest.mark.parametrize("client_leaves", [False, True])
async def test_a_version_is_released_when_its_last_run_has_ended(world, client_leaves):
    world.hold = threading.Event()
    await world.publish(1)
    running = await world.run_for_long()
    if client_leaves:
        running.cancel()
    await world.publish(2)
    assert (world.current, world.states()) == (2, {2: "AVAILABLE", 1: "UNLOADING"})
    assert not world.loaded[0].closed
    world.hold.set()
    assert client_leaves or (await running)["y"] == 1
    await eventually(lambda: world.states()[1] == "END")
    assert world.loaded[0].closed


async def test_a_broken_version_is_tried_again_only_when_its_files_change(world):
    world.write(1, "broken")
    for _ in range(3):
        await world.update()
    assert world.loading == 1
    await world.publish(1, "repaired by now")
    assert (world.current, world.loading) == (1, 2)


async def test_at_the_start_the_newest_version_that_loads_serves(world):
    world.write(1)
    world.write(2, "broken")
    await world.publish(3, "broken")
    assert (world.current, world.states()) == (1, {3: "END", 2: "END", 1: "AVAILABLE"})


async def test_removing_the_newest_version_goes_back_to_the_one_before(world):
    world.write(1)
    await world.publish(2)
    assert world.current == 2
    world.remove(2)
    await world.update()
    assert (world.current, world.states()) == (1, {2: "END", 1: "AVAILABLE"})


async def test_a_version_wanted_again_during_its_release_is_loaded_later(world):
    world.hold = threading.Event()
    await world.publish(2)
    running = await world.run_for_long()
    world.write(3)
    await world.publish(1)
    world.remove(3)
    await world.update()
    assert world.current == 3
    world.hold.set()
    await running
    await world.settle()
    await world.update()
    assert world.current == 2


async def test_a_version_that_is_written_again_replaces_itself(world):
    world.hold = threading.Event()
    await world.publish(1)
    running = await world.run_for_long()
    world.write(1, "changed in place")
    await world.update()
    world.remove(1)
    await world.update()
    assert (world.current, world.loading) == (1, 1)
    for content, loads in (("broken", 2), ("written again", 3)):
        world.write(1, content)
        for _ in range(2):
            await world.update()
            assert (world.states(), world.loading) == ({1: "AVAILABLE"}, loads)
    assert not world.loaded[0].closed
    world.hold.set()
    assert (await running)["y"] == 1
    await world.settle()
    assert [model.closed for model in world.loaded] == [True, False]
    await world.model.close()
    assert world.loaded[1].closed


async def test_ended_versions_are_forgotten_after_a_while(world):
    for version in range(40):
        world.write(version)
        await world.model.update(ModelFolder(world.path).scan()["m"])
    await world.settle()
    await world.update()
    assert len(world.states()) == 17
    await world.publish(99, "broken")
    assert world.states()[99] == "END"
    world.remove(99)
    await world.update()
    assert 99 not in world.states()


@contextlib.asynccontextmanager
async def serving(world, folder=None, poll_seconds="0.02", **options):
    """Starts an engine that serves the world's folder, and closes it at the end."""
    settings = load_settings(model_dir=folder or world.path, poll_seconds=poll_seconds)
    engine = EmbeddedEngine(settings, load=world.load, **options)
    await engine.start()
    try:
        yield engine
    finally:
        if world.hold is not None:
            world.hold.set()
        await engine.close()


async def test_engine_goes_on_when_its_folder_vanishes(world):
    async with serving(world) as engine:
        await eventually(engine.started)
        assert not engine.ready()
        world.write(1)
        await eventually(engine.ready)
        world.path.rename(world.path.with_name("elsewhere"))
        await asyncio.wait_for(engine.reload(), PATIENCE_S)
        assert engine.ready()
        world.path.with_name("elsewhere").rename(world.path)
        world.write(2)
        await eventually(lambda: world.loaded[0].closed)
    assert world.loaded[1].closed


async def lease_error(engine, spec):
    with pytest.raises(ServingError) as caught:
        await engine.lease(spec)
    return caught.value


async def test_a_reload_during_a_load_finds_what_was_written_before_it(world):
    world.hold = threading.Event()
    world.write(1, "slow")
    async with serving(world, poll_seconds="1000") as engine:
        await eventually(lambda: world.loading)
        world.write(2)
        reload = asyncio.ensure_future(engine.reload())
        await asyncio.sleep(0)
        world.hold.set()
        await reload
        assert (await engine.status(ModelSpec("m", 2)))[0].state is VersionState.AVAILABLE


@pytest.mark.parametrize("turns", [1, 2, 3])
async def test_an_engine_closes_at_the_moment_of_a_reload(world, turns):
    async with serving(world, poll_seconds="1000") as engine:
        await eventually(engine.started)
        await world.settle()
        reload = asyncio.ensure_future(engine.reload())
        for _ in range(turns):
            await asyncio.sleep(0)
    reload.cancel()


async def test_a_model_that_comes_later_changes_nothing_for_readiness(world):
    world.hold = threading.Event()
    world.write(1)
    async with serving(world, world.path.parent) as engine:
        await eventually(engine.ready)

        world.write(1, "broken", model="later")
        await eventually(lambda: "later" in engine.model_names())
        while (await engine.status(ModelSpec("later")))[0].state is not VersionState.END:
            assert engine.ready()
            await asyncio.sleep(0.01)
        assert engine.ready()
        shutil.rmtree(world.path.with_name("later"))
        await eventually(lambda: "later" not in engine.model_names())

        world.write(1, "slow", model="slow")
        await eventually(lambda: "slow" in engine.model_names())
        assert engine.ready()


async def test_a_promised_model_counts_until_it_is_removed(world):
    world.write(1)
    world.write(1, "broken", model="first")
    async with serving(world, world.path.parent) as engine:
        await eventually(engine.started)
        assert not engine.ready()
        shutil.rmtree(world.path.with_name("first"))
        await eventually(engine.ready)

    # The models in `promised` were found by another process, perhaps before `first` existed. So
    # readiness does not wait for `first`.
    world.write(1, "broken", model="first")
    async with serving(world, world.path.parent, promised={"m"}) as engine:
        await eventually(engine.started)
        assert engine.ready()


async def test_a_version_that_is_loading_is_unavailable_and_not_unknown(world):
    world.hold = threading.Event()
    world.write(1, "slow")
    world.write(1, model="next")
    async with serving(world, world.path.parent) as engine:
        for name in ("m", "next", "unknown"):
            error = await lease_error(engine, ModelSpec(name))
            assert (error.code, error.retry_after) == (Code.UNAVAILABLE, 1.0)
        await eventually(engine.model_names)
        for spec in (ModelSpec("m", 1), ModelSpec("next"), ModelSpec("next", 1)):
            assert (await lease_error(engine, spec)).code is Code.UNAVAILABLE
        assert not engine.ready()
        world.hold.set()
        await eventually(engine.started)
        assert engine.ready()
        assert (await lease_error(engine, ModelSpec("unknown"))).code is Code.NOT_FOUND
        world.hold.clear()
        world.write(2, "slow")
        while len(await engine.status(ModelSpec("m"))) == 1:
            await asyncio.sleep(0.01)
        assert (await lease_error(engine, ModelSpec("m", 2))).code is Code.UNAVAILABLE
        assert (await lease_error(engine, ModelSpec("m", 3))).code is Code.NOT_FOUND
        servable = await engine.lease(ModelSpec("m"))
        assert servable.version == 1
        servable.release()


@pytest.mark.parametrize("several", [False, True])
async def test_a_model_whose_folder_was_deleted_and_written_again_is_loaded_anew(world, several):
    world.write(1)
    if several:
        world.write(1, model="other")
    async with serving(world, world.path.parent if several else world.path) as engine:
        await eventually(engine.ready)
        before = world.loading
        shutil.rmtree(world.path)
        await asyncio.wait_for(engine.reload(), PATIENCE_S)  # finds no folder
        world.write(1, "written again")
        await eventually(lambda: world.loading == before + 1)
