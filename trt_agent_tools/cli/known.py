"""The policies that can be named and the one in use: where each is from, and whether it is valid."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from trt_agent_tools.model.errors import ErrorInfo, Refusal
from trt_agent_tools.model.untrusted import one_line
from trt_agent_tools.policy.files import SUFFIX, KnownPolicy, known_policies, load_policy


class PolicyReport(BaseModel):
    """A policy and its file; `error` says why it cannot be used, `path` is None if there is none."""

    name: str
    path: str | None = None
    shipped: bool = False
    description: str = ""
    error: ErrorInfo | None = None

    @property
    def source(self) -> str:
        """Where it is from, in a word or as a path."""
        return "shipped" if self.shipped else self.path or "unknown"


def known_reports() -> list[PolicyReport]:
    """Return every policy that can be named, also those whose files are not valid."""
    return [_report(known.name, known) for known in known_policies()]


def report_on(policy: str) -> PolicyReport:
    """Return what is known of a policy, given as a name or as a path that ends in .toml."""
    if policy.endswith(SUFFIX):
        path = Path(policy).absolute()
        return _report(str(path), KnownPolicy(path.stem, path, shipped=False))
    named = (known for known in known_policies() if known.name == policy)
    return _report(policy, next(named, None))


def known_lines() -> Iterator[str]:
    """Yield a line for each policy that can be named: its name, where it is from, what it is for."""
    reports = known_reports()
    names = max((len(report.name) for report in reports), default=0)
    sources = max((len(report.source) for report in reports), default=0)
    for report in reports:
        text = f"not valid: {report.error.message}" if report.error else report.description
        line = f"{report.name:<{names}}  {report.source:<{sources}}  {one_line(text)}"
        yield one_line(line.rstrip())


def _report(loaded: str, known: KnownPolicy | None) -> PolicyReport:
    report = PolicyReport(name=loaded)
    if known is not None:
        report = PolicyReport(name=known.name, path=str(known.path), shipped=known.shipped)
    try:
        return report.model_copy(update={"description": load_policy(loaded).description})
    except Refusal as refusal:
        return report.model_copy(update={"error": refusal.info})
