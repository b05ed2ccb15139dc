"""The account of a session's GPU time. Pure: each function returns another account.

GPU time is how long a build holds its device, times the devices it holds. A build's time is reserved
when it gets its device and settled when it gives it back; in between, what it has used so far counts
as spent, so that what is left is true at every moment and nothing is counted twice.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Reservation:
    """A running build's claim: since when (seconds, the account's clock) and how much at most."""

    since: float
    at_most_s: float | None = None
    devices: int = 1

    def used_s(self, now: float) -> float:
        """Return the GPU time used until `now`."""
        return max(0.0, now - self.since) * self.devices


@dataclass(frozen=True, slots=True)
class Account:
    """A session's GPU time in seconds. `budget_s` None is no limit; `spent_s` is what is settled."""

    budget_s: float | None = None
    spent_s: float = 0.0
    running: Mapping[str, Reservation] = field(default_factory=dict)

    def used_s(self, now: float) -> float:
        """Return what is settled plus what the running builds have used until `now`."""
        return self.spent_s + sum(claim.used_s(now) for claim in self.running.values())

    def left_s(self, now: float) -> float | None:
        """Return what is left of the budget, never below 0; None where there is no limit."""
        return None if self.budget_s is None else max(0.0, self.budget_s - self.used_s(now))

    def reserved_s(self, now: float) -> float:
        """Return how much more the running builds may use, at most what is left."""
        left = self.left_s(now)
        more = 0.0
        for claim in self.running.values():
            if claim.at_most_s is not None:
                more += max(0.0, claim.at_most_s - claim.used_s(now))
            elif left is not None:
                more += left
        return more if left is None else min(more, left)


def reserve(
    account: Account, build_id: str, now: float, *, at_most_s: float | None, devices: int = 1
) -> Account:
    """Return the account with a build that holds `devices` from `now`; twice changes nothing."""
    if build_id in account.running:
        return account
    claim = Reservation(now, at_most_s, devices)
    return replace(account, running={**account.running, build_id: claim})


def settle(account: Account, build_id: str, now: float) -> Account:
    """Return the account with the build's time until `now` spent; unknown or settled: unchanged."""
    claim = account.running.get(build_id)
    if claim is None:
        return account
    running = {key: value for key, value in account.running.items() if key != build_id}
    return replace(account, spent_s=account.spent_s + claim.used_s(now), running=running)
