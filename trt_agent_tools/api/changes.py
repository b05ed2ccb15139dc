"""Waits for the next change of a build, over any `BuildService`."""

import anyio

from trt_agent_tools.model.service import BuildService
from trt_agent_tools.model.snapshot import Detail, Snapshot


async def next_change(
    service: BuildService,
    build_id: str,
    *,
    since_seq: int | None,
    wait_s: float,
    detail: Detail = Detail.SUMMARY,
) -> Snapshot | None:
    """Return the snapshot of a build that changed after `since_seq` or has ended.

    None if it did not within `wait_s`: a change in that very moment is found at once when it is asked
    about again with the same `since_seq`.

    Raises:
        Refusal: there is no such build, or it cannot be asked about.
    """
    asked = anyio.current_time()
    snapshot = await service.progress(build_id, wait_s=wait_s, since_seq=since_seq, detail=detail)
    if snapshot.ended or anyio.current_time() - asked < wait_s:
        return snapshot
    return None
