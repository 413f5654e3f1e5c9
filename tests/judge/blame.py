"""Which fault of a play may be why a broker left an ISR. Knows nothing of what isrwatch said."""

from __future__ import annotations

from typing import Final, NamedTuple

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import BrokerId, TopicPartition
from streaming.model.messages.registrations import PartitionRegistration
from streaming.sources.simulated.source import TraceEntry
from tests.judge.trouble import LINGER_SECONDS, Trouble

LAG: Final = frozenset({Cause.LAG, Cause.LEADER_STALL})
_ORDERED: Final = frozenset({Cause.CONTROLLED_SHUTDOWN, Cause.FENCED, Cause.RESTART, Cause.UNREGISTERED})
_BETWEEN: Final = frozenset({"link", "split", "isolation", "rack_isolation"})
_STOPS: Final = frozenset({"stop", "rolling", "decommission"})
_ALSO_AS_LEADER: Final = frozenset({"pause", "slow_disk"})
"""What is sent to the slow disk of the model waits, fetch requests of its followers, too."""
_RETURN_SECONDS: Final = 15.0
_FETCH_SECONDS: Final = 2.0
"""A follower caught up shortly before a cut, and does again shortly after it."""


class Step(NamedTuple):
    """One step of one partition; seconds of the play.

    ``removed``: from the ISR; or, of a partition without a leader afterwards, who led it.
    """

    at: float
    key: TopicPartition
    topic: str
    before: PartitionRegistration | TraceEntry
    after: TraceEntry
    removed: tuple[BrokerId, ...]

    @property
    def cause(self) -> Cause:
        return self.after.cause


def explains(one: Trouble, step: Step, broker: BrokerId) -> bool:
    """Return whether a fault may be why a step removed a broker: not before anything was done to that broker."""
    if step.at < one.begin - LINGER_SECONDS:
        return False
    if step.cause is Cause.REASSIGNMENT:
        return one.kind in {"reassignment", "decommission"} and step.topic in one.topics
    if one.kind == "controller_stall" and broker not in one.brokers:
        return step.cause is Cause.FENCED and _is_fenced_by(one, step)
    has_begun = broker in one.brokers and step.at >= one.span_of(broker)[0] - LINGER_SECONDS
    return _explains_lag(one, step, broker, has_begun=has_begun) if step.cause in LAG else has_begun


def _is_fenced_by(one: Trouble, step: Step) -> bool:
    """Return whether a controller fenced a broker when it went on: it heard of none while it stood still."""
    begin, end = one.span_of(*one.paused())
    return end - LINGER_SECONDS <= step.at <= end + (end - begin)


def _explains_lag(one: Trouble, step: Step, broker: BrokerId, *, has_begun: bool) -> bool:
    ends = {broker, step.before.leader}
    if one.kind == "link":
        return ends == one.brokers
    if one.kind in _BETWEEN:
        return len(ends & one.brokers) == 1
    if one.kind in _STOPS:
        return has_begun and one.was_stopped(broker, step.at, _RETURN_SECONDS)
    return has_begun or (one.kind in _ALSO_AS_LEADER and step.before.leader in one.brokers)


def was_parted(one: Trouble, step: Step, follower: BrokerId, lag_seconds: float) -> bool:
    """Return whether a fault alone is why a follower lagged: no fetch request came through for all the lag time.

    One that only slows a broker down, or is over, is not to blame beside it.
    """
    apart = one.parts(follower, step.before.leader) if step.cause in LAG else None
    return apart is not None and apart[0] + lag_seconds - _FETCH_SECONDS <= step.at <= apart[1] + _FETCH_SECONDS


def is_ordered(one: Trouble, step: Step, broker: BrokerId) -> bool:
    """Return whether somebody ordered that a broker leaves this ISR."""
    if step.cause is Cause.REASSIGNMENT:
        return True
    return step.cause in _ORDERED and one.was_stopped(broker, step.at, _RETURN_SECONDS)
