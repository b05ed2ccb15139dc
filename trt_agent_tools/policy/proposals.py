"""What to do otherwise after a limit ended a build. Pure; no number is told without a basis.

A number comes from past builds of the same model alone, or from what a verdict itself rested on. Where
there are none, the direction is all that is said.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trt_agent_tools.model.duration import format_duration
from trt_agent_tools.model.proposal import Change, Proposal
from trt_agent_tools.model.states import Reason
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.policy import Mode, Policy, TimeRule
from trt_agent_tools.progress.past import Estimate

MOST = 3
"""So many proposals are made at most, the best first."""

REASONS = frozenset(
    {
        *(Reason.BUILD_TIME, Reason.GPU_BUDGET, Reason.PHASE_TIME, Reason.PROJECTED_OVERRUN),
        *(Reason.STARTUP_TIME, Reason.QUEUE_TIME),
    }
)
"""Ends after which another try may fit: the build was too long for a limit, and nothing was wrong."""

LEVELS_DOWN = 2
"""How far down is proposed where no past build tells: TensorRT's own level 3 becomes 1."""

_LENGTH = frozenset({Rule.BUILD_TIME, Rule.GPU_TIME, Rule.PROJECTED_OVERRUN})
"""Rules that bound the whole build, so that the length of past ones can be held against them."""

_BEFORE_TENSORRT = frozenset({Rule.STARTUP_TIME, Rule.QUEUE_TIME})
"""Rules that end a build before anything about it costs time."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A build that a rule ended. `policy` is what held for it, `base` the same before its own limits.

    `threshold` is the rule's limit, in its unit; `projected_s` what the verdict expected in all. `level`
    is the optimization level in effect, None where it is not known. `where` is the phase that it was in.
    """

    rule: Rule
    threshold: float
    policy: Policy
    base: Policy
    level: int | None = None
    profiles: int = 0
    where: str | None = None
    projected_s: float | None = None
    extension_left_s: float = 0.0
    """What the session may still extend limits by."""
    session_left_s: float | None = None
    """What the session's budget has left; None where it has none."""
    session_most_s: float | None = None
    """The largest budget that a session may be given; None where there is no bound."""

    @property
    def limit_s(self) -> float | None:
        """The length that a build must not pass; None where that is not what ended it."""
        if self.rule is Rule.PROJECTED_OVERRUN:
            said = self.policy.rules.build_time
            return None if said is None else said.limit
        return self.threshold if self.rule in _LENGTH else None


@dataclass(frozen=True, slots=True)
class Known:
    """What past builds of the same model tell: with the very same options, and at other levels."""

    same: Estimate | None = None
    by_level: Mapping[int, Estimate] = field(default_factory=dict)


def propose(cut: Cut, known: Known) -> tuple[Proposal, ...]:
    """Return at most `MOST` changes for another try, those that past builds speak for first.

    Never a level that is not below the one in effect, and never more than the policy and its session
    allow.
    """
    found = [*_lower_level(cut, known), *_longer(cut, known), *_fewer_profiles(cut)]
    # Stable: among their like they stay in the order above.
    found.sort(key=lambda proposal: proposal.expected_s is None)
    return tuple(found[:MOST])


def _lower_level(cut: Cut, known: Known) -> Iterator[Proposal]:
    level, limit = cut.level, cut.limit_s
    if level is None or level <= 0 or cut.rule in _BEFORE_TENSORRT:
        return
    guess = max(0, level - LEVELS_DOWN)
    seen = {at: past for at, past in known.by_level.items() if 0 <= at < level and past.same}
    chosen: int | None = guess
    if limit is not None and seen:
        fits = [at for at, past in seen.items() if past.high_s <= limit]
        fits = fits or [at for at, past in seen.items() if past.total_s <= limit]
        # None of them fits: what is left is below them all, if anything is.
        below = min(guess, min(seen) - 1)
        chosen = max(fits, default=below if below >= 0 else None)
    if chosen is None:
        return
    change = Change(builder_optimization_level=chosen)
    if chosen in seen:
        yield _with_numbers(change, seen[chosen], f"at level {chosen}")
    else:
        why = (
            f"Lower levels than {level} time fewer tactics; no past build tells how long level "
            f"{chosen} takes."
        )
        yield Proposal(change=change, why=why)


def _fewer_profiles(cut: Cut) -> Iterator[Proposal]:
    if cut.profiles > 1 and cut.rule not in _BEFORE_TENSORRT:
        why = f"Tactics are timed for each of its {cut.profiles} profiles; an engine can have one."
        yield Proposal(change=Change(profiles=1), why=why)


def _longer(cut: Cut, known: Known) -> Iterator[Proposal]:
    if cut.rule is Rule.GPU_BUDGET:
        yield from _longer_session(cut, known)
    elif cut.rule in _LENGTH:
        yield from _longer_build(cut, known)
    elif cut.rule in _BEFORE_TENSORRT:
        most = _most(cut, cut.rule)
        if most > cut.threshold:
            yield _direction(cut.rule, cut.threshold, most, cut.where)


def _longer_session(cut: Cut, known: Known) -> Iterator[Proposal]:
    most = math.inf if cut.session_most_s is None else cut.session_most_s
    same = known.same
    if same is None or not same.same:
        why = "The session's GPU time is used up; another session has its own."
        yield Proposal(change=Change(longer=Rule.GPU_BUDGET), why=why)
    elif same.total_s <= most:
        text, _ = _written(min(_rounded_up(same.high_s), most))
        yield _with_numbers(Change(session_gpu_time=text), same, "with these options")


def _longer_build(cut: Cut, known: Known) -> Iterator[Proposal]:
    limit = cut.limit_s
    if limit is None:
        return
    rules = [rule for rule in (Rule.BUILD_TIME, Rule.GPU_TIME) if _is_enforced(cut.policy, rule)]
    most = min([_most(cut, rule) for rule in rules], default=math.inf)
    if cut.session_left_s is not None:
        most = min(most, cut.session_left_s)
    proposal = _length(cut, known, limit)
    if proposal is None or proposal.expected_s is None:
        if most > limit:
            rule = Rule.BUILD_TIME if cut.rule is Rule.PROJECTED_OVERRUN else cut.rule
            yield _direction(rule, limit, most, cut.where)
        return
    needed = proposal.high_s or proposal.expected_s
    _, granted = _written(min(_rounded_up(needed), most))
    change = _raised(cut, rules, granted)
    if change is not None and granted > limit and granted >= proposal.expected_s:
        yield proposal.model_copy(update={"change": change})


def _length(cut: Cut, known: Known, limit: float) -> Proposal | None:
    """Return what is known of the length of the build that was ended, its change still open."""
    same = known.same
    # What says that it should have fitted has been proved wrong.
    if same is not None and same.same and same.high_s > limit:
        return _with_numbers(Change(), same, "with these options")
    if cut.projected_s is None:
        return None
    why = f"Past builds let expect {format_duration(cut.projected_s)} in all."
    return Proposal(change=Change(), why=why, expected_s=round(cut.projected_s, 1))


def _raised(cut: Cut, rules: list[Rule], granted: float) -> Change | None:
    """Return how another try gets `granted` seconds under all of `rules`; None where it cannot."""
    limits: dict[Rule, str] = {}
    extend: dict[Rule, str] = {}
    extended = 0.0
    for rule in rules:
        in_force, start = _limit(cut.policy, rule), _limit(cut.base, rule)
        if granted <= min(in_force, start):
            continue
        if granted <= start:
            limits[rule], _ = _written(granted)
            continue
        begin = start
        if in_force < start:
            # The build had a limit of its own: as much as the policy gives first.
            limits[rule], begin = _written(start)
        extend[rule], by = _written(granted - begin)
        extended += by
    if not (limits or extend) or extended > cut.extension_left_s:
        return None
    return Change(limits=limits or None, extend=extend or None)


def _direction(rule: Rule, limit: float, most: float, phase: str | None) -> Proposal:
    used = f"It used its {format_duration(limit)}"
    where = f" and was in {phase!r}" if phase else ""
    bound = f"; up to {format_duration(most)} is allowed" if math.isfinite(most) else ""
    why = f"{used}{where}. Nothing tells how much more it needs{bound}."
    return Proposal(change=Change(longer=rule), why=why)


def _with_numbers(change: Change, past: Estimate, what: str) -> Proposal:
    builds = "1 past build" if past.builds == 1 else f"{past.builds} past builds"
    low, high = format_duration(past.low_s), format_duration(past.high_s)
    return Proposal(
        change=change,
        why=f"By {builds} of this model, {what} it takes {format_duration(past.total_s)} "
        f"({low} to {high}).",
        expected_s=round(past.total_s, 1),
        low_s=round(past.low_s, 1),
        high_s=round(past.high_s, 1),
    )


def _is_enforced(policy: Policy, rule: Rule) -> bool:
    said = policy.rule(rule)
    return said is not None and said.mode is Mode.ENFORCE


def _limit(policy: Policy, rule: Rule) -> float:
    """Return the limit of a rule in seconds, infinite where nothing is enforced."""
    said = policy.rule(rule)
    if not isinstance(said, TimeRule) or said.mode is not Mode.ENFORCE:
        return math.inf
    return said.limit


def _most(cut: Cut, rule: Rule) -> float:
    """Return what a limit may reach in another try: as the policy starts, and by extensions."""
    said = cut.base.rule(rule)
    if not isinstance(said, TimeRule) or said.mode is not Mode.ENFORCE:
        return math.inf
    ceiling = said.limit if said.ceiling is None else said.ceiling
    return max(said.limit, min(ceiling, said.limit + max(0.0, cut.extension_left_s)))


def _rounded_up(seconds: float) -> float:
    """Return a length that a person would write: whole seconds, minutes, or five of them."""
    step = 1.0 if seconds < 120 else 60.0 if seconds < 3600 else 300.0  # noqa: PLR2004  (2 min, 1 h)
    return math.ceil(seconds / step) * step


def _written(seconds: float) -> tuple[str, float]:
    """Return a duration as text, such as "1h30m", and what it means: never more than `seconds`."""
    if seconds < 60:  # noqa: PLR2004  (a minute)
        milliseconds = math.floor(seconds * 1000)
        if milliseconds % 1000:
            return f"{milliseconds}ms", milliseconds / 1000
        return f"{milliseconds // 1000}s", milliseconds / 1000
    whole = math.floor(seconds)
    parts = zip((whole // 3600, whole // 60 % 60, whole % 60), "hms", strict=True)
    return "".join(f"{number}{unit}" for number, unit in parts if number), float(whole)
