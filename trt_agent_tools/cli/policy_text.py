"""A policy as text: in full as TOML, and its rules in brief."""

from collections.abc import Iterator
from decimal import Decimal

from trt_agent_tools.model.duration import parse_duration
from trt_agent_tools.model.errors import ErrorInfo
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.model.verdict import Rule
from trt_agent_tools.policy.policy import AnyRule, Mode, PhaseRule, Policy, SizeRule, TimeRule

_SIZES = {"GiB": 2**30, "GB": 10**9, "MiB": 2**20, "MB": 10**6, "KiB": 2**10, "kB": 10**3}
_SHORT_S = 120
_DAY_S = 86400
_DURATIONS = {"h": 3600, "m": 60, "s": 1}


def duration_text(seconds: float) -> str:
    """Return `seconds` as people write them in a policy.

    `parse_duration` reads them back exactly, from a picosecond on.
    """
    if seconds != int(seconds):
        text = f"{seconds * 1000:.0f}ms"
        exact = seconds < 1 and parse_duration(text) == seconds
        return text if exact else f"{Decimal(repr(seconds)):f}s"
    rest = int(seconds)
    if rest < _SHORT_S and rest % 60:
        return f"{rest}s"
    if rest >= 2 * _DAY_S and rest % _DAY_S == 0:
        return f"{rest // _DAY_S}d"
    text = ""
    for unit, length in _DURATIONS.items():
        count, rest = divmod(rest, length)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def size_text(size: int) -> str:
    """Return `size` in the largest unit that it is a whole number of, such as "16GiB"."""
    unit = next((name for name, length in _SIZES.items() if size and size % length == 0), None)
    return f"{size // _SIZES[unit]}{unit}" if unit else f"{size}B"


def policy_toml(policy: Policy) -> Iterator[str]:
    """Yield the lines of a policy file that says all that holds under `policy`, defaults included.

    Read back from a file of its name it is the same policy. What is not limited stands in a comment.
    """
    rules, escalation, session = policy.rules, policy.escalation, policy.session
    yield f"description = {_quoted(policy.description)}"
    yield f"reuse = {_quoted(policy.reuse)}"
    yield ""
    yield "[escalation]"
    yield f"warn_at = {escalation.warn_at}"
    yield f"cancel_grace = {_quoted(duration_text(escalation.cancel_grace))}"
    yield f"terminate_grace = {_quoted(duration_text(escalation.terminate_grace))}"
    yield ""
    yield "[session]"
    if session.gpu_time is None:
        yield "# gpu_time is not limited"
    else:
        yield f"gpu_time = {_quoted(duration_text(session.gpu_time))}"
    yield f"concurrent_builds = {session.concurrent_builds}"
    yield f"queued_builds = {session.queued_builds}"
    yield f"extension_total = {_quoted(duration_text(session.extension_total))}"
    yield f"require_fit = {str(session.require_fit).lower()}"
    yield ""
    yield "[rules]"
    for name, said in _rules(policy):
        yield f"{name} = {_table(said)}"
    if off := rules_off(policy):
        yield f"# off: {', '.join(off)}"
    if rules.phase_time:
        yield ""
        yield f"[rules.{Rule.PHASE_TIME.value}]"
        for pattern, said in rules.phase_time.items():
            yield f"{_quoted(pattern)} = {_table(said)}"


def check_lines(policy: Policy) -> Iterator[str]:
    """Yield that `policy` is valid, a line for each rule that is on, and which are off."""
    yield f"{policy.name} is valid"
    for line in _rule_lines(policy):
        yield f"  {line}"
    if off := rules_off(policy):
        yield f"off: {', '.join(off)}"


def problem_lines(error: ErrorInfo) -> Iterator[str]:
    """Yield a line for each problem of a policy file: file, line, key, and what is valid there."""
    problems = error.details.get("problems")
    if isinstance(problems, list):
        for problem in problems:
            yield one_line(f"{error.details.get('file')}: {problem}")


def _rule_lines(policy: Policy) -> Iterator[str]:
    # Limit, share at which it warns, ceiling, observed or not.
    phases = policy.rules.phase_time.items()
    on: list[tuple[str, AnyRule]] = [
        *_rules(policy),
        *((f"{Rule.PHASE_TIME.value} {_quoted(pattern)}", said) for pattern, said in phases),
    ]
    width = max((len(name) for name, _ in on), default=0)
    for name, said in on:
        warn_at = said.warn_at if said.warn_at is not None else policy.escalation.warn_at
        text = f"{name:<{width}}  {_limit(said)}, warned at {warn_at * 100:g}%"
        if isinstance(said, TimeRule) and said.ceiling is not None:
            text += f", may be extended to {duration_text(said.ceiling)}"
        yield text + (", only observed" if said.mode is Mode.OBSERVE else "")


def rules_off(policy: Policy) -> list[str]:
    """Return the names of the rules that `policy` does not have."""
    on = {name for name, _ in _rules(policy)}
    if policy.rules.phase_time:
        on.add(Rule.PHASE_TIME.value)
    return [name for name in type(policy.rules).model_fields if name not in on]


def _rules(policy: Policy) -> Iterator[tuple[str, AnyRule]]:
    for name in type(policy.rules).model_fields:
        said = getattr(policy.rules, name)
        if isinstance(said, AnyRule):
            yield name, said


def _limit(said: AnyRule) -> str:
    if isinstance(said, PhaseRule):
        return duration_text(said.limit)
    return size_text(said.limit) if isinstance(said, SizeRule) else str(said.limit)


def _table(said: AnyRule) -> str:
    limit = _limit(said)
    parts = [f"limit = {_quoted(limit) if isinstance(said, PhaseRule | SizeRule) else limit}"]
    if isinstance(said, TimeRule) and said.ceiling is not None:
        parts.append(f"ceiling = {_quoted(duration_text(said.ceiling))}")
    parts.append(f"mode = {_quoted(said.mode.value)}")
    if said.warn_at is not None:
        parts.append(f"warn_at = {said.warn_at}")
    return f"{{ {', '.join(parts)} }}"


def _quoted(text: str) -> str:
    """Return `text` as a TOML string that shows every character, also those that nobody would see."""
    return '"' + "".join(map(_character, text)) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004
