"""A supervisor that dies while it reuses or keeps an engine leaves whole files, and a cache that is right."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import DATA, GRACES
from tests.faults.crash_host import CACHE_BYTES, HostOrder
from tests.faults.crash_points import FILES, CrashHost, crash_hosts
from tests.faults.invariants import assert_nothing_lost
from trt_agent_tools.model.states import State
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.file_digest import Interrupt
from trt_agent_tools.supervisor.reuse.cache import EngineCache

pytestmark = pytest.mark.anyio

MOST_POINTS = 100
SYNCS_AND_FILES = f"fdatasync,{FILES}"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHost]:
    with crash_hosts(tmp_path_factory.mktemp("hosts")) as host:
        yield host


class Place:
    """A root, a state folder and an engine cache; `kept` says whether the model was built before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir(parents=True)
        self.model = self.root / "model.jsonl"
        settings = {"type": "replay", "speed": 1000}
        self.model.write_text(json.dumps(settings) + "\n" + (DATA / "quick.jsonl").read_text())
        self.policy = folder / "policy.toml"
        self.policy.write_text(GRACES)
        self.mark = folder / "happened"
        self.cache = EngineCache(folder / "engines", CACHE_BYTES)

    def order(self, output: str, fault: str | None = None) -> HostOrder:
        return HostOrder(
            state=str(self.folder / "state"),
            root=str(self.root),
            policy=str(self.policy),
            models=[str(self.model)],
            output=str(self.root / output),
            engine_cache=str(self.folder / "engines"),
            own_fault=fault and f"{SYNCS_AND_FILES} {fault} 0 {self.mark}",
        )

    def config(self) -> SupervisorConfig:
        return SupervisorConfig(
            *(self.folder / "state", (self.root,)), policy=str(self.policy), enable_replay=True
        )

    def assert_cache_is_right(self) -> int:
        """Every kept engine is what its manifest says, and nothing else is there; return how many."""
        self.cache.sweep()
        entries = self.cache.entries()
        assert all(entry.check(Interrupt()) for entry in entries)
        left = {path.name for path in (self.folder / "engines").iterdir()}
        assert left - {".lock"} == {entry.folder.name for entry in entries}
        return len(entries)


@pytest.mark.parametrize("overwrite", [False, True], ids=["new output", "overwrite"])
async def test_a_supervisor_killed_while_it_reuses_an_engine_leaves_a_whole_one_or_none(
    hosts: CrashHost, tmp_path: Path, nothing_left: None, overwrite: bool
) -> None:
    outcomes = set()
    for number in range(1, MOST_POINTS):
        place = Place(tmp_path.resolve() / f"place{number}")
        hosts.begin(place.order("first.engine"))
        assert hosts.gone() == 0, hosts.said
        acknowledged = hosts.said
        output = place.root / "second.engine"
        if overwrite:
            # What is there is the kept engine itself, by another name.
            output.hardlink_to(place.root / "first.engine")
            shutil.copy(place.root / "first.engine.json", f"{output}.json")
        hosts.begin(place.order("second.engine", f"{number} before"))
        hosts.gone()
        builds = await assert_nothing_lost(place.config(), [*acknowledged, *hosts.said], None)
        assert place.assert_cache_is_right() == 1
        assert (place.root / "first.engine").exists()
        assert output.exists() or not overwrite
        second = [build for build in builds.values() if build.output == str(output)]
        for build in second:
            outcomes.add(build.state)
            assert build.gpu_s is None
            if build.state is State.SUCCEEDED:
                assert build.result
                assert build.result.reused
        if not place.mark.exists():
            break
        shutil.rmtree(place.folder)
    assert hosts.said[-1] == "closed"
    assert outcomes == {State.SUCCEEDED, State.LOST}
    print(f"\nkilled before each of {number - 1} calls of a reuse, {overwrite=}: 0 facts lost")


async def test_a_supervisor_killed_while_it_keeps_an_engine_keeps_a_whole_one_or_none(
    hosts: CrashHost, tmp_path: Path, nothing_left: None
) -> None:
    kept = set()
    for number in range(1, MOST_POINTS):
        place = Place(tmp_path.resolve() / f"place{number}")
        hosts.begin(place.order("first.engine", f"{number} before"))
        hosts.gone()
        await assert_nothing_lost(place.config(), hosts.said, None)
        if (place.folder / "engines").exists():
            kept.add(place.assert_cache_is_right())
        if not place.mark.exists():
            break
        shutil.rmtree(place.folder)
    assert hosts.said[-1] == "closed"
    assert kept == {0, 1}
    print(f"\nkilled before each of {number - 1} calls of a build that is kept: 0 facts lost")
