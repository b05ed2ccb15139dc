"""How well the end of a build is foretold: python -m tests.benchmarks.estimates.

Ten public models and two generated families in several sizes are built three times, one build after
another. What a quarter of a build after its start was shown as what is left is held against what was left,
by the clock of the one who asked: what is shown is in tenths of a second, the shortest builds take three.

Whatever else uses the machine makes its builds longer by chance. A builder without a GPU computes on one
core, so that the processor time of its process tells what a machine at rest would have shown: the same
estimates are made from that too.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median

import anyio
import numpy as np
import psutil

from tests.acceptance.agent import Agent
from tests.benchmarks.estimate_models import Model, Profile, generated, public
from tests.benchmarks.harness import Place, Row, print_table, serve, workplace
from trt_agent_tools.model.snapshot import Progress, Snapshot
from trt_agent_tools.model.states import State
from trt_agent_tools.model.supervisor_events import BuildEvent, StateChanged
from trt_agent_tools.progress.estimate import estimate
from trt_agent_tools.progress.expected import expected
from trt_agent_tools.progress.past import Past, Setting, Wanted
from trt_agent_tools.progress.reducer import fold
from trt_agent_tools.progress.timeline import timeline
from trt_agent_tools.progress.view import BuildView

ROUNDS = 3
AT = 0.25
SHORTEST_PAUSE_S = 0.02
PAUSE = 0.02
"""Asked again after this share of the time that has passed."""
MOST_WRONG_SAME = 15.0
MOST_WRONG_SIMILAR = 50.0
LEAST_WITHIN = 80.0
SAME = "2nd and 3rd build of a model"
SIMILAR = "unseen size of a seen family"
STRANGE = "1st build, by models of other families"
SETTING = Setting("tensorrt_rtx", "", "cpu")


@dataclass(frozen=True)
class Seen:
    """What was shown how many seconds after the build was asked for, and the processor time used by then."""

    at: float
    used_s: float
    snapshot: Snapshot


@dataclass(frozen=True)
class Built:
    """A build that succeeded, in seconds since it was asked for, and what was shown meanwhile."""

    model: Model
    total_s: float
    shown: list[Seen] = field(repr=False)
    events: list[BuildEvent] = field(repr=False)


@dataclass(frozen=True)
class Told:
    """What was foretold at a quarter of a build, and how much was left."""

    what: str
    progress: Progress
    left_s: float

    @property
    def wrong(self) -> float:
        """Return by how many percent of what was left the foretold is off."""
        assert self.progress.eta_s is not None
        return 100 * abs(self.progress.eta_s - self.left_s) / self.left_s

    @property
    def within(self) -> bool:
        """Return whether the end came within the bounds."""
        low, high = self.progress.eta_low_s, self.progress.eta_high_s
        assert low is not None
        assert high is not None
        return low <= self.left_s <= high


async def build(place: Place, agent: Agent, server: psutil.Process, model: Model) -> Built:
    """Build a model and look at it as it goes."""
    path = place.root / model.name
    if not path.exists():
        model.write(path)
    profile = model.profile or await proposed(agent, model)
    options = {"reuse": "off", **({"profiles": profile} if profile else {})}
    began = time.monotonic()
    latest = await agent.snapshot("start_build", model=model.name, options=options)
    build_id = latest.build_id
    shown: list[Seen] = []
    while not latest.ended:
        shown.append(Seen(time.monotonic() - began, used_s(server), latest))
        await anyio.sleep(max(SHORTEST_PAUSE_S, PAUSE * shown[-1].at))
        latest = await agent.snapshot("get_progress", build_id=build_id)
    total_s = time.monotonic() - began
    assert latest.state is State.SUCCEEDED, latest.error
    for suffix in (".engine", ".engine.json"):
        path.with_suffix(suffix).unlink()
    print(f"{model.name}: {total_s:.2f} s", file=sys.stderr)
    told = place.events(build_id)
    events: list[BuildEvent] = [StateChanged(0.0, State.STARTING, device="cpu")]
    events += [replace(event, at=event.at + told.origin - began) for event in told.all]
    return Built(model, total_s, shown, events)


def used_s(server: psutil.Process) -> float:
    """Return the processor time that the server's worker has used; 0 where it has none."""
    total_s = 0.0
    for worker in server.children():
        with suppress(psutil.NoSuchProcess):  # it may end as it is looked at
            spent = worker.cpu_times()
            total_s += spent.user + spent.system
    return total_s


async def proposed(agent: Agent, model: Model) -> Profile:
    """Return the profile that is proposed for a model; an empty one where it needs none."""
    result = await agent.call("inspect_model", model=model.name)
    assert result.structured_content is not None
    profile: Profile = result.structured_content.get("proposed_profiles") or {}
    return profile


def kind(before: Sequence[Built], built: Built) -> str:
    """Return for what the estimate of a build stands, by the builds before it."""
    if any(each.model == built.model for each in before):
        return SAME
    seen = any(each.model.family == built.model.family for each in before)
    return SIMILAR if seen else STRANGE


def shown(built: Built) -> tuple[Progress, float] | None:
    """Return what the server said at a quarter of a build, if it foretold anything, and what was left."""
    seen = min(built.shown, key=lambda each: abs(each.at - AT * built.total_s))
    progress = seen.snapshot.progress
    if progress is None or progress.eta_s is None:
        return None
    return progress, built.total_s - seen.at


def computed(before: Sequence[Built], built: Built) -> tuple[Progress, float] | None:
    """Return what is foretold at a quarter of a build by the times in its events, and what was left."""
    newest_first = [(each.model, past(each)) for each in reversed(before)]
    found = estimate(
        Wanted(SETTING, built.model.name, "", viewed(built, built.total_s).told.shape),
        [each for model, each in newest_first if model == built.model],
        [each for _, each in newest_first],
    )
    if found is None:
        return None
    now = AT * built.total_s
    return expected(found, viewed(built, now), now, 0.0), built.total_s - now


def on_processor_time(built: Built) -> Built:
    """Return a build as if its process had had a core for itself."""
    beats = [(0.0, 0.0)]
    beats += [(seen.at, seen.used_s) for seen in built.shown if seen.used_s > beats[-1][1]]
    wall, used = zip(*beats, strict=True)
    # After it was last seen at work the core is taken for its own.
    rest_s = built.total_s - wall[-1]

    def moved(at: float) -> float:
        return float(np.interp(at, [*wall, built.total_s], [*used, used[-1] + rest_s]))

    events = [replace(event, at=moved(event.at)) for event in built.events]
    return replace(built, events=events, total_s=moved(built.total_s))


def past(built: Built) -> Past:
    """Return a build as what a later one learns from."""
    view = viewed(built, built.total_s)
    return Past(SETTING, built.model.name, "", view.told.shape, built.total_s, timeline(view))


def viewed(built: Built, until: float) -> BuildView:
    """Return what was known of a build at a moment."""
    view = BuildView()
    for event in built.events:
        if event.at <= until:
            view = fold(view, event)
    return view


def rows(how: str, all_told: Sequence[Told]) -> Iterator[Row]:
    """Return the figures by kind of build."""
    targets = {SAME: MOST_WRONG_SAME, SIMILAR: MOST_WRONG_SIMILAR, STRANGE: None}
    for what, most in targets.items():
        wrong = [each.wrong for each in all_told if each.what == what]
        if wrong:
            remark = f"n={len(wrong)}, {min(wrong):.0f} to {max(wrong):.0f}"
            yield Row(f"{how}, {what}: off by, median", median(wrong), "%", most, 1, remark)
    if all_told:
        share = 100 * sum(each.within for each in all_told) / len(all_told)
        verdict = "met" if share >= LEAST_WITHIN else "MISSED"
        remark = f"target >= {LEAST_WITHIN:g} %: {verdict}, n={len(all_told)}"
        yield Row(f"{how}: ends within the bounds", share, "%", digits=0, remark=remark)


def times(builds: Sequence[Built], foretold: Sequence[Told | None]) -> Iterator[Row]:
    """Return how long the builds of each model took, and how far off what was shown of them was."""
    for model in dict.fromkeys(built.model for built in builds):
        of_it = [number for number, built in enumerate(builds) if built.model == model]
        took = [builds[number].total_s for number in of_it]
        wrong = [foretold[number] for number in of_it]
        off = ", ".join("none" if each is None else f"{each.wrong:.0f} %" for each in wrong)
        spent = ", ".join(f"{each:.2f}" for each in took)
        yield Row(model.name, median(took), "s", remark=f"{spent}; foretold, off by {off}")


async def measure() -> list[Built]:
    """Build each model in each round."""
    models = public() + generated()
    with workplace() as place:
        async with serve(place) as (agent, server):
            return [await build(place, agent, server, model) for model in ROUNDS * models]


def report(builds: Sequence[Built]) -> None:
    """Print what the builds foretold of each other."""
    at_rest = [on_processor_time(built) for built in builds]
    told: dict[str, list[Told | None]] = {"as shown": [], "on processor time": []}
    for number, built in enumerate(builds):
        what = kind(builds[:number], built)
        found = (shown(built), computed(at_rest[:number], at_rest[number]))
        for how, foretold in zip(told, found, strict=True):
            told[how].append(None if foretold is None else Told(what, *foretold))
    print_table("Builds, in seconds", list(times(builds, told["as shown"])))
    table = [
        row for how, some in told.items() for row in rows(how, [each for each in some if each])
    ]
    print_table("What a quarter of a build foretells of the rest", table)


async def main() -> None:
    """Build, and print the tables."""
    report(await measure())


if __name__ == "__main__":
    anyio.run(main)
