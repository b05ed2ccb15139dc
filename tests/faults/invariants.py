"""What holds after every crash, in one function."""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from tests.conftest import processes_of_this_run
from tests.faults.conftest import Watcher
from trt_agent_tools.model.events import BUILD_TOKEN_ENV
from trt_agent_tools.model.manifest import Manifest
from trt_agent_tools.model.request import Backend, StartRequest
from trt_agent_tools.model.snapshot import Detail, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.store.records import Kind
from trt_agent_tools.supervisor.config import SupervisorConfig
from trt_agent_tools.supervisor.service import Supervisor
from trt_agent_tools.supervisor.shares import LOCAL

MANY = 1000


async def assert_nothing_lost(
    config: SupervisorConfig, acknowledged: Sequence[str], quick: Path | None, older: bytes = b""
) -> dict[str, Snapshot]:
    """Start a supervisor where another died, and hold it to all that the dead one acknowledged.

    `quick` is a recording that has to build afterwards (without one the device has to be free); `older` the content of an engine that was there
    before. Return the builds of the dead supervisor.
    """
    (root,) = config.roots
    async with Supervisor(config) as supervisor:
        _assert_no_process()
        assert not list(root.rglob("*.partial*")), acknowledged
        _assert_whole_outputs(root, older)
        listed = await supervisor.list_builds(limit=500)
        builds = {
            build.build_id: await supervisor.progress(build.build_id, detail=Detail.FULL)
            for build in listed.builds
        }
        for build_id, snapshot in builds.items():
            assert snapshot.ended, snapshot
            if snapshot.state is State.SUCCEEDED:
                assert snapshot.result, snapshot
                assert _sha256(Path(snapshot.result.engine)) == snapshot.result.sha256
            await _assert_story(supervisor, snapshot)
            await supervisor.log(build_id)
        await _assert_acknowledged(supervisor, acknowledged, builds)
        await assert_ledger(supervisor)
        _assert_whole_outputs(root, older)
        if quick is None:
            with anyio.fail_after(1):
                supervisor._pool.give_back(await supervisor._pool.lease())
            return builds
        output = f"after{len(list(root.iterdir()))}.engine"
        request = StartRequest(model=str(quick), output=output, backend=Backend.REPLAY)
        watcher = Watcher(supervisor)
        after = await watcher.end(await watcher.start(request), within_s=60)
        assert after.state is State.SUCCEEDED, after
        await assert_ledger(supervisor)
    return builds


async def assert_ledger(supervisor: Supervisor) -> None:
    """Every session has spent what its ended builds cost; nothing is reserved for one that has ended."""
    stored, _ = await supervisor._journal.builds(owner=LOCAL, limit=MANY)
    cost: dict[str, float] = defaultdict(float)
    for build in stored:
        if build.ended:
            cost[build.session_id] += build.gpu_s or 0.0
            assert (build.gpu_s is None) == (build.started_wall is None), build
    live = {build.build_id for build in stored if not build.ended}
    for session in await supervisor._journal.sessions():
        assert session.spent_s == pytest.approx(cost[session.session_id])
        assert {claim.build_id for claim in session.reservations} <= live


def _assert_no_process() -> None:
    left = []
    for process in processes_of_this_run():
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        if BUILD_TOKEN_ENV.encode() in environment:
            left.append(process)
    assert not left


def _assert_whole_outputs(root: Path, older: bytes) -> None:
    for engine in root.glob("*.engine"):
        if older and engine.read_bytes() == older:
            continue
        manifest = Manifest.model_validate_json(Path(f"{engine}.json").read_bytes())
        assert engine.stat().st_size == manifest.engine.bytes
        assert _sha256(engine) == manifest.engine.sha256
    for beside in root.glob("*.engine.json"):
        assert beside.with_suffix("").exists(), beside


async def _assert_story(supervisor: Supervisor, snapshot: Snapshot) -> None:
    """The events of a build can all be read, are in order, and have one beginning and one end."""
    events = await supervisor._journal.events(snapshot.build_id)
    kinds = Counter(event.kind for event in events)
    assert events[0].kind == Kind.ACCEPTED.value
    assert kinds[Kind.ACCEPTED.value] == kinds[Kind.ENDED.value] == 1
    # Where the files are settled by the next supervisor, nothing follows the end.
    assert events[-1].kind == Kind.ENDED.value, [event.kind for event in events]
    assert all(isinstance(json.loads(event.body), dict) for event in events)
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert json.loads(events[-1].body)["state"] == snapshot.state.value


async def _assert_acknowledged(
    supervisor: Supervisor, acknowledged: Sequence[str], builds: dict[str, Snapshot]
) -> None:
    for line in acknowledged:
        said, *about = line.split(" ")
        if said == "accepted":
            assert about[0] in builds, f"{line} is forgotten: {builds}"
        elif said == "end":
            assert builds[about[0]].state.value == about[1], f"{line} became {builds[about[0]]}"
        elif said == "state":
            bodies = [
                f"{event.kind} {event.body}" for event in await supervisor._journal.events(about[0])
            ]
            told = {"queued": "accepted", "starting": "started"}.get(about[1], f'"{about[1]}"')
            assert any(told in body for body in bodies), f"{line} is not in {bodies}"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
