"""Real builds under policies, told as they happen: the transcript in the README.

Run as `python -m tests.benchmarks.policies`. It takes about a minute and a half.
"""

import anyio

from tests.acceptance.agent import Agent
from tests.benchmarks.harness import serve, workplace
from trt_agent_tools.model.session import Session
from trt_agent_tools.model.snapshot import Snapshot
from trt_agent_tools.model.verdict import Action, Level

BLOCKS = 72
"""A transformer that sits in one silent step for about 15 s on two idle cores."""


async def main() -> None:
    """Print what each policy did to one and the same model."""
    with workplace() as place:
        model = place.model(BLOCKS)
        async with serve(place) as (agent, _):
            print("The default policy")
            ended = await _build(agent, model, "a.engine")
            print(f"  {ended.summary}\n")
            for limits in ({"silent": "5s"}, {"build_time": "3s"}):
                print(f"limits {limits}")
                ended = await _build(agent, model, "b.engine", limits=limits)
                _print_verdicts(ended)
                print(f"  {ended.summary}\n")
            await _session(agent, model)
            await _extension(agent, model)


async def _session(agent: Agent, model: str) -> None:
    opened = await agent.call("open_session", gpu_time="20s")
    session = Session.model_validate(opened.structured_content)
    print("A session of 20 s GPU time: two builds, and a third")
    key = {"session_id": session.session_id, "options": {"overwrite": True}}
    for _ in range(2):
        ended = await _build(agent, model, "c.engine", **key)
        print(f"  {ended.summary}")
    refused = await agent.refusal("start_build", model=model, output="d.engine", **key)
    print(f"  refused: {refused.code.value}: {refused.message}. {refused.hint}")
    closed = await agent.call("get_session", session_id=session.session_id)
    spent = Session.model_validate(closed.structured_content)
    parts = [f"{build.gpu_s}" for build in reversed(spent.builds)]
    print(
        f"  ledger: {spent.spent_s:.1f} s spent; the builds held the device {' + '.join(parts)} s\n"
    )


async def _extension(agent: Agent, model: str) -> None:
    limits = {"build_time": "8s"}
    print(f"limits {limits}, and an extension asked for after the warning")
    started = await agent.snapshot("start_build", model=model, output="e.engine", limits=limits)
    snapshot = started
    while not any(use.level is Level.WARNED for use in snapshot.limits or []):
        snapshot = await agent.snapshot(
            "get_progress", build_id=started.build_id, wait_s=20, since_seq=snapshot.seq
        )
    print(f"  {snapshot.summary}")
    await agent.snapshot(
        "extend_build",
        build_id=started.build_id,
        limit="build_time",
        by="5m",
        reason="only one step is left",
    )
    ended = await agent.end(started.build_id)
    print(f"  {(ended.notes or ['?'])[-1]}")
    print(f"  {ended.summary}")


async def _build(agent: Agent, model: str, output: str, **arguments: object) -> Snapshot:
    started = await agent.snapshot("start_build", model=model, output=output, **arguments)
    return await agent.end(started.build_id)


def _print_verdicts(ended: Snapshot) -> None:
    for verdict in ended.verdicts or []:
        if verdict.action is not Action.NONE:
            print(f"  {verdict.at_s:5.1f} s  {verdict.action.value}: {verdict.message}")


if __name__ == "__main__":
    anyio.run(main)
