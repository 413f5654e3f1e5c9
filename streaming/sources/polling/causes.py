"""Cause of each step between two answers about a partition, from the conduct of the brokers concerned. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.sources.polling.view import Explanation, inferred_cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.sources.polling.conduct import Listeners
    from streaming.sources.polling.schedule import Intervals
    from streaming.sources.polling.view import PartitionView


class Step(NamedTuple):
    """Difference between two answers about a partition; it happened after ``since`` and before ``until``."""

    topic: str
    number: int
    before: PartitionView | None
    after: PartitionView
    since: Micros
    until: Micros


class Circumstances:
    """What is known besides a step: the conduct of brokers, and the other steps."""

    def __init__(self, intervals: Intervals, listeners: Listeners) -> None:
        self._intervals, self._listeners = intervals, listeners

    def note(self, steps: Iterable[Step]) -> None:
        """Take steps for circumstances of each other."""

    def is_clear(self, step: Step, now: Micros) -> bool:  # noqa: ARG002 - no rule yet
        """Return whether nothing that may still be met would change the cause of a step."""
        return True

    def explain(self, step: Step, now: Micros) -> Explanation | None:  # noqa: ARG002 - no rule yet
        """Return the cause of a step, as far as it is known; None where nothing changed."""
        alive = [broker for broker in self._listeners.of if self._listeners.is_listed(broker)]
        cause = inferred_cause(step.before, step.after, alive)
        return None if cause is None else Explanation(cause)

    def take_stopped(self) -> list[BrokerId]:
        """Return the brokers that were found to stop cleanly since the last call."""
        return []
