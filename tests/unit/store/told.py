"""Records with everything in them that a test does not care about."""

import time
from dataclasses import replace

from trt_agent_tools.model.states import Reason, State
from trt_agent_tools.store.records import BuildAccepted, BuildEnded, BuildStarted, SessionOpened

OWNER = "local"
WALL = 1_700_000_000.0

SESSION = SessionOpened(
    session_id="s_1",
    owner=OWNER,
    label="nightly",
    policy='{"name": "default"}',
    budget_s=600.0,
    concurrent_builds=2,
    queued_builds=10,
    extension_left_s=120.0,
    created_at="2026-01-02T03:04:05+00:00",
    is_default=False,
)

ACCEPTED = BuildAccepted(
    build_id="b_1",
    session_id="s_1",
    owner=OWNER,
    idempotency_key=None,
    created_at="2026-01-02T03:04:06+00:00",
    wall=WALL,
    supervisor='{"pid": 1}',
    request='{"model": "m.onnx"}',
    order='{"type": "build"}',
    facts='{"label": null}',
    policy='{"name": "default"}',
    snapshot='{"state": "queued"}',
)

STARTED = BuildStarted("b_1", WALL + 1, "cpu", 4711, "token", 60.0)

ENDED = BuildEnded(
    "b_1", 5.5, WALL + 5.5, State.SUCCEEDED, Reason.COMPLETED, 4.25, '{"state": "succeeded"}'
)


def accepted(build_id: str, session_id: str = "s_1", key: str | None = None) -> BuildAccepted:
    return replace(ACCEPTED, build_id=build_id, session_id=session_id, idempotency_key=key)


def started(build_id: str) -> BuildStarted:
    return replace(STARTED, build_id=build_id)


def ended(build_id: str, gpu_s: float | None = 4.25, wall: float | None = None) -> BuildEnded:
    now = time.time() if wall is None else wall
    return replace(ENDED, build_id=build_id, gpu_s=gpu_s, wall=now)
