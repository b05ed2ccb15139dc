"""Supervisors and workers that die at every point: nothing acknowledged is lost, nothing is left."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults.conftest import DATA, GRACES, Action
from tests.faults.crash_host import HostOrder
from tests.faults.crash_points import (
    FILES,
    SYNCS,
    WRITES,
    CrashHost,
    compile_interposer,
    crash_hosts,
)
from tests.faults.invariants import assert_nothing_lost
from tests.unit.build_orders import build_order, put_older
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.supervisor.artefact import settle_artefact
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.recovery import UNTOLD_S

pytestmark = pytest.mark.anyio

OLDER = b"an engine that was here before"
MOST_POINTS = 200
POLL_S = 0.01
"""Between looks at what another process does: it tells nobody."""
EACH = 4
"""After every fourth crash a build is started too: it takes as long as all the rest."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashHost]:
    with crash_hosts(tmp_path_factory.mktemp("hosts")) as host:
        yield host


@dataclass(frozen=True)
class Place:
    """A root and a state folder that are new, and a mark that a fault leaves."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def mark(self) -> Path:
        return self.folder / "happened"

    def recording(self, *actions: Action, name: str = "model", speed: float = 20) -> Path:
        settings = {"type": "replay", "speed": speed, "actions": list(actions)}
        file = self.root / f"{name}.jsonl"
        file.write_text(json.dumps(settings) + "\n" + (DATA / "quick.jsonl").read_text())
        return file

    def order(self, *models: Path, **more: str | None) -> HostOrder:
        policy = self.folder / "policy.toml"
        policy.write_text(GRACES)
        return HostOrder(
            state=str(self.folder / "state"),
            root=str(self.root),
            policy=str(policy),
            models=[str(model) for model in models],
            **more,
        )

    def fault(self, calls: str, number: int, when: str, *, parent: bool = False) -> str:
        return f"{calls} {number} {when} {int(parent)} {self.mark}"

    async def assert_nothing_lost(
        self, acknowledged: list[str], older: bytes = b"", *, also_build: bool = True
    ) -> dict[str, Snapshot]:
        config = SupervisorConfig(
            self.folder / "state",
            (self.root,),
            policy=str(self.folder / "policy.toml"),
            enable_replay=True,
        )
        quick = self.recording(name="quick", speed=1000)
        return await assert_nothing_lost(config, acknowledged, quick if also_build else None, older)


class Tally:
    """Counts what became of the builds that a fault met."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._tried = 0
        self._ends: Counter[str] = Counter()
        self._began = time.monotonic()

    def count(self, builds: dict[str, Snapshot]) -> None:
        self._tried += 1
        self._ends.update(build.state.value for build in builds.values())
        if not builds:
            self._ends["never accepted"] += 1

    def show(self) -> None:
        ends = ", ".join(f"{number} {end}" for end, number in sorted(self._ends.items()))
        took = time.monotonic() - self._began
        print(
            f"\n{self._what}: {self._tried} faults tried, {self._tried} survived, 0 facts lost; "
            f"builds: {ends} ({took:.0f} s)"
        )
        assert self._tried > 0


@pytest.fixture
def places(tmp_path: Path, nothing_left: None) -> Iterator[Place]:
    """Return as many places as are asked for; each is removed when the next one is taken."""

    def made() -> Iterator[Place]:
        for number in itertools.count():
            place = Place(tmp_path.resolve() / f"place{number}")
            place.root.mkdir(parents=True)
            yield place
            shutil.rmtree(place.folder)

    return made()


async def test_a_supervisor_killed_after_any_commit_loses_nothing_that_it_acknowledged(
    hosts: CrashHost, places: Iterator[Place]
) -> None:
    tally = Tally("supervisor killed after each sync, from an empty folder on")
    for number in range(1, MOST_POINTS):
        place = next(places)
        fault = place.fault(SYNCS, number, "after")
        hosts.begin(place.order(place.recording(), own_fault=fault))
        hosts.gone()
        if not place.mark.exists():
            break
        tally.count(await place.assert_nothing_lost(hosts.said, also_build=number % EACH == 1))
    assert hosts.said[-1] == "closed"
    tally.show()


@pytest.mark.parametrize(
    ("calls", "when", "step", "cancel_in"),
    [
        pytest.param(SYNCS, "before", 1, None, id="before a commit is on the disk"),
        pytest.param(WRITES, "half", 11, None, id="in the middle of a write"),
        pytest.param(SYNCS, "after", 1, "Parsing", id="while a build is cancelled"),
        pytest.param(FILES, "before", 1, None, id="before a file is removed"),
    ],
)
async def test_a_supervisor_killed_at_any_call_loses_nothing_that_it_acknowledged(
    hosts: CrashHost,
    places: Iterator[Place],
    tmp_path: Path,
    calls: str,
    when: str,
    step: int,
    cancel_in: str | None,
) -> None:
    tally = Tally(f"supervisor killed {when} each of {calls}, cancelled in: {cancel_in}")
    # A journal that is there: a supervisor that makes one has a test of its own.
    first = next(places)
    hosts.begin(first.order())
    assert hosts.gone() == 0
    empty = tmp_path / "empty"
    (first.folder / "state").rename(empty)
    hang: Action = {"at": 0.07, "do": "hang_idle"}
    for number in range(1, MOST_POINTS, step):
        place = next(places)
        shutil.copytree(empty, place.folder / "state")
        model = place.recording(*([hang] if cancel_in else []))
        fault = place.fault(calls, number, when)
        hosts.begin(place.order(model, own_fault=fault, cancel_in=cancel_in))
        hosts.gone()
        if not place.mark.exists():
            break
        tally.count(await place.assert_nothing_lost(hosts.said, also_build=number % EACH == 1))
    assert hosts.said[-1] == "closed"
    tally.show()


@pytest.mark.parametrize("parent", [False, True], ids=["worker", "worker and supervisor"])
@pytest.mark.parametrize("overwrite", [False, True], ids=["new output", "overwrite"])
async def test_a_worker_killed_at_any_call_leaves_a_whole_engine_or_none(
    hosts: CrashHost, places: Iterator[Place], parent: bool, overwrite: bool
) -> None:
    dead = "worker and supervisor" if parent else "worker"
    tally = Tally(f"{dead} killed before each file call, {overwrite=}")
    for number in range(1, MOST_POINTS):
        place = next(places)
        output = place.root / "model.engine"
        if overwrite:
            output.write_bytes(OLDER)
        fault = place.fault(FILES, number, "before", parent=parent)
        order = place.order(place.recording(), worker_fault=fault)
        hosts.begin(order.model_copy(update={"output": str(output)}) if overwrite else order)
        hosts.gone()
        if not place.mark.exists():
            break
        older = OLDER if overwrite else b""
        builds = await place.assert_nothing_lost(hosts.said, older, also_build=number % EACH == 1)
        (build,) = builds.values()
        if build.state is State.SUCCEEDED:
            assert output.read_bytes() != OLDER
        elif overwrite:
            assert output.read_bytes() == OLDER
        else:
            assert not output.exists()
        tally.count(builds)
    assert hosts.said[-1] == "closed"
    tally.show()


async def test_a_supervisor_killed_while_it_recovers_loses_nothing(
    hosts: CrashHost, places: Iterator[Place]
) -> None:
    tally = Tally("supervisor killed before each call of its recovery")
    for number in range(1, MOST_POINTS):
        place = next(places)
        # The engine is at its place and its manifest is not: the recovery has files to move.
        moved = place.fault("rename,renameat", 1, "before", parent=True)
        hosts.begin(place.order(place.recording(), worker_fault=moved))
        hosts.gone()
        assert place.mark.exists()
        place.mark.unlink()
        acknowledged = hosts.said
        hosts.begin(place.order(own_fault=place.fault(f"{SYNCS},{FILES}", number, "before")))
        hosts.gone()
        if not place.mark.exists():
            break
        builds = await place.assert_nothing_lost(acknowledged, also_build=number % EACH == 1)
        assert [build.state for build in builds.values()] == [State.SUCCEEDED]
        tally.count(builds)
    assert hosts.said[-1] == "closed"
    tally.show()


HANG: Action = {"at": 0, "do": "hang_idle"}


@pytest.mark.parametrize("dead", ["supervisor", "worker", "both"])
@pytest.mark.parametrize(
    ("phase", "at"),
    [
        pytest.param("Importing", 0.03, id="in import"),
        pytest.param("Parsing", 0.07, id="in parse"),
        pytest.param("Building engine", 0.1, id="in a step"),
        pytest.param("Writing", 0.281, id="in the tail"),
    ],
)
async def test_a_build_killed_in_a_phase_ends_truly_and_leaves_nothing(
    hosts: CrashHost, places: Iterator[Place], dead: str, phase: str, at: float
) -> None:
    place = next(places)
    hosts.begin(place.order(place.recording({**HANG, "at": at})))
    build_id = hosts.until("accepted").split()[1]
    hosts.until(f"in {build_id}", phase)
    hosts.kill(host=dead != "worker", workers=dead != "supervisor")
    if dead == "worker":
        hosts.until(f"end {build_id} failed")
    hosts.gone()
    build = (await place.assert_nothing_lost(hosts.said))[build_id]
    if dead == "worker":
        assert (build.state, build.reason) == (State.FAILED, Reason.KILLED_EXTERNALLY)
    else:
        assert (build.state, build.reason) == (State.LOST, Reason.SUPERVISOR_LOST)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("parent", [False, True], ids=["worker", "worker and supervisor"])
async def test_a_worker_killed_before_its_hello_leaves_nothing(
    hosts: CrashHost, places: Iterator[Place], when: str, parent: bool
) -> None:
    place = next(places)
    fault = place.fault("prctl", 1, when, parent=parent)
    hosts.begin(place.order(place.recording(), worker_fault=fault))
    hosts.gone()
    assert place.mark.exists()
    (build,) = (await place.assert_nothing_lost(hosts.said)).values()
    assert build.state is (State.LOST if parent else State.FAILED)


async def test_a_grandchild_in_a_session_of_its_own_ends_at_the_next_start(
    hosts: CrashHost, places: Iterator[Place]
) -> None:
    place = next(places)
    grandchild: Action = {"at": 0.05, "do": "grandchild", "new_session": True, "for_s": 300}
    hosts.begin(place.order(place.recording(grandchild, {**HANG, "at": 0.07})))
    hosts.until("in ", "Parsing")
    hosts.kill(workers=True)
    hosts.gone()
    (build,) = (await place.assert_nothing_lost(hosts.said)).values()
    assert build.state is State.LOST


async def test_builds_that_wait_are_lost_with_their_supervisor_and_cost_nothing(
    hosts: CrashHost, places: Iterator[Place]
) -> None:
    place = next(places)
    names = [f"model{number}" for number in range(5)]
    models = [place.recording({**HANG, "at": 0.07}, name=name) for name in names]
    hosts.begin(place.order(*models))
    hosts.until("in ", "Parsing")
    hosts.kill()
    hosts.gone()
    builds = await place.assert_nothing_lost(hosts.said)
    assert [build.state for build in builds.values()] == [State.LOST] * len(models)
    assert sum(build.gpu_s is not None for build in builds.values()) == 1


async def test_a_clock_that_stepped_before_the_crash_charges_no_more_than_was_used(
    hosts: CrashHost, places: Iterator[Place]
) -> None:
    place = next(places)
    order = place.order(place.recording({**HANG, "at": 0.07}))
    hosts.begin(order.model_copy(update={"clock_step_s": 86_400.0}))
    began = time.monotonic()
    hosts.until("stepped")
    hosts.kill()
    hosts.gone()
    most = time.monotonic() - began + UNTOLD_S
    (build,) = (await place.assert_nothing_lost(hosts.said)).values()
    assert build.state is State.LOST
    assert build.gpu_s is not None
    assert build.gpu_s <= most
    assert build.elapsed_s <= most


@pytest.mark.parametrize("overwrite", [False, True], ids=["new output", "overwrite"])
@pytest.mark.parametrize("calls", ["link,linkat", "rename,renameat", "fsync"])
def test_a_worker_whose_supervisor_goes_while_files_are_moved_parts_no_engine_from_its_manifest(
    tmp_path: Path, root: Path, overwrite: bool, calls: str
) -> None:
    order = build_order(root, overwrite=overwrite)
    Path(order.model).write_bytes((DATA / "quick.jsonl").read_bytes())
    if overwrite:
        put_older(order)
    mark = tmp_path / "happened"
    last = {"rename,renameat": 2 if overwrite else 1, "fsync": 3}.get(calls, 1)
    interposer = compile_interposer(tmp_path)
    environment = {
        **os.environ,
        "LD_PRELOAD": str(interposer),
        "FAULT": f"{calls} {last} hold 0 {mark}",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "trt_agent_tools.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
    ) as worker:
        assert worker.stdin
        worker.stdin.write(order.model_dump_json().encode() + b"\n")
        worker.stdin.flush()
        deadline = time.monotonic() + 30
        while not mark.exists() and worker.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(POLL_S)
        # The end of file alone, without the kernel's signal: that has tests of its own.
        worker.stdin.close()
        worker.wait(30)
    if calls.startswith("link") and overwrite:
        assert not mark.exists()
    settled = settle_artefact(order)
    assert settled, list(root.iterdir())
    assert Manifest.model_validate_json(Path(order.manifest).read_bytes()).build_id == "b_new"
    assert not list(root.glob(".*partial"))
