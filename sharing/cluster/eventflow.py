"""What keeps Events few: those that are alike become one, and each object has a budget (pure).

Whoever flaps would otherwise write one object into etcd for each turn. Kubernetes' own programs
do both, by the same figures; ours hold back and add up what theirs drop.
Source: client-go, tools/record/events_cache.go (EventAggregator, EventSourceObjectSpamFilter).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPolicy:
    """How many Events are too many."""

    alike: int = 10
    """Different messages of one object, type and reason that are written each for itself."""
    window_s: float = 600.0
    """For how long they are counted."""
    burst: int = 25
    """Writes about one object without a pause."""
    refill_s: float = 10.0
    """Until one more is allowed. client-go takes 300 s, but drops what comes earlier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """The messages of one object, type and reason."""

    since: float
    messages: frozenset[str] = frozenset()


def note_message(
    before: Alike | None, message: str, *, now: float, policy: EventPolicy
) -> tuple[Alike, bool]:
    """What is known after one more message, and whether it is one too many to stand alone.

    Args:
        before: What is known; None for the first.
        message: What was said.
        now: Seconds of a clock that never jumps.
        policy: How many are too many.
    """
    known = before or Alike(since=now)
    if now - known.since > policy.window_s:
        known = Alike(since=now)
    if message in known.messages:
        return known, False
    if len(known.messages) >= policy.alike:
        return known, True
    return replace(known, messages=known.messages | {message}), False


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The writes that one object may still cause: a token bucket."""

    tokens: float
    at: float
    """When they were counted; seconds of a clock that never jumps."""


def refilled(before: Budget | None, *, now: float, policy: EventPolicy) -> Budget:
    """A budget as it is now."""
    if before is None:
        return Budget(tokens=float(policy.burst), at=now)
    gained = (now - before.at) / policy.refill_s
    return Budget(tokens=min(float(policy.burst), before.tokens + gained), at=now)


def wait_s(budget: Budget, policy: EventPolicy) -> float:
    """Seconds until the next write is allowed; 0 if it is now."""
    return max(0.0, (1.0 - budget.tokens) * policy.refill_s)


def spent(budget: Budget) -> Budget:
    """A budget after one write."""
    return replace(budget, tokens=budget.tokens - 1.0)


def refunded(budget: Budget) -> Budget:
    """A budget after a write that did not happen."""
    return replace(budget, tokens=budget.tokens + 1.0)
