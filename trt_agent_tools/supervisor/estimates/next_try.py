"""What is proposed for another try of a build that a limit ended: facts gathered here, judged in `policy`."""

import logging
from collections.abc import Mapping
from itertools import chain
from typing import Protocol

from trt_agent_tools.model.options import BuildOptions
from trt_agent_tools.model.proposal import Proposal
from trt_agent_tools.model.states import Reason
from trt_agent_tools.model.verdict import Action, Verdict
from trt_agent_tools.policy.proposals import REASONS, Cut, Known, propose
from trt_agent_tools.progress.past import Estimate
from trt_agent_tools.supervisor.build import Build
from trt_agent_tools.supervisor.estimates.outlook import Outlook

_LEVEL = "builder_optimization_level"

_log = logging.getLogger(__name__)


class PastBuilds(Protocol):
    """Tells of past builds; bounded in time, and raises nothing."""

    async def with_options(
        self, outlook: Outlook, options: Mapping[int, BuildOptions]
    ) -> dict[int, Estimate]:
        """Return how long builds of the same model take with each of `options`, where that is known."""


async def next_try(build: Build, past: PastBuilds, reason: Reason | None) -> tuple[Proposal, ...]:
    """Return what to do otherwise, the best first; nothing where no verdict of a limit ended the build.

    Raises nothing: a build ends whether or not something can be proposed.
    """
    try:
        verdict = _verdict(build, reason)
        if verdict is None:
            return ()
        cut = _cut(build, verdict)
        return propose(cut, await _known(build, past, cut.level))
    except Exception:  # noqa: BLE001  (a fault of ours: told in the log; the end is not held up by it)
        _log.exception("build %s: nothing is proposed", build.facts.build_id)
        return ()


def _verdict(build: Build, reason: Reason | None) -> Verdict | None:
    if reason not in REASONS:
        return None
    # As last judged: what is told of it waits for the disk.
    judged = (item.verdict for item in build.judged if item.action is Action.CANCEL)
    given = chain(judged, reversed(build.view.told.verdicts))
    ended = (v for v in given if v.action is Action.CANCEL and v.rule.reason is reason)
    return next(ended, None)


def _cut(build: Build, verdict: Verdict) -> Cut:
    session = build.session
    return Cut(
        rule=verdict.rule,
        threshold=verdict.threshold,
        policy=build.policy,
        base=build.base_policy,
        level=_level(build),
        profiles=len(build.order.options.profiles),
        where=verdict.phase or build.snapshot().current,
        projected_s=verdict.observed.get("projected_s"),
        extension_left_s=session.extension_left_s,
        session_left_s=session.account.left_s(build.accepted + build.now()),
        session_most_s=session.policy.session.gpu_time,
    )


def _level(build: Build) -> int | None:
    """Return the optimization level in effect: as asked for, or else as the worker read it back."""
    asked = build.order.options.builder_optimization_level
    if asked is not None:
        return asked
    told = build.view.told
    if told.shape is not None and told.shape.optimization_level is not None:
        return told.shape.optimization_level
    effective = [option.effective for option in told.options if option.name == _LEVEL]
    return int(effective[0]) if effective and effective[0].isdecimal() else None


async def _known(build: Build, past: PastBuilds, level: int | None) -> Known:
    if build.outlook is None:
        return Known()
    options = build.order.options
    lower = {at: options.model_copy(update={_LEVEL: at}) for at in range(level or 0)}
    return Known(build.outlook.estimate, await past.with_options(build.outlook, lower))
