"""Which throttles of replication limit something, and which were left behind by a reassignment. Pure.

A broker limits the replication of those replicas alone that a topic lists, and only if it has a rate (KIP-73).
``kafka-reassign-partitions --throttle`` sets both, and only its ``--verify`` takes them back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_EVERY: Final = "*"
_NONE: Final = frozenset({"", "none"})


class ThrottleRates(NamedTuple):
    """What a broker lets replication take, bytes per second; None is no limit.

    Attributes:
        leader: ``leader.replication.throttled.rate``.
        follower: ``follower.replication.throttled.rate``.
    """

    leader: int | None = None
    follower: int | None = None


class ThrottledReplicas(NamedTuple):
    """The replicas of a topic that a rate applies to, as Kafka writes them: ``0:1,0:2``, or ``*``.

    Attributes:
        leader: ``leader.replication.throttled.replicas``.
        follower: ``follower.replication.throttled.replicas``.
    """

    leader: str | None = None
    follower: str | None = None

    @property
    def is_set(self) -> bool:
        """Whether it lists any."""
        return any(listed is not None and listed.strip() not in _NONE for listed in self)

    def limited_by(self, rates: Mapping[int, ThrottleRates]) -> list[int]:
        """Return the brokers that limit the replication of the topic."""
        return [
            broker
            for broker, of_broker in sorted(rates.items())
            if any(rate is not None and _lists(each, broker) for each, rate in zip(self, of_broker, strict=True))
        ]


class LeftThrottles(NamedTuple):
    """Throttles that are set though nothing is being reassigned.

    Attributes:
        topics: each that lists replicas, and the brokers that limit its replication now.
        brokers: each that has a rate, and the topics whose replication it limits now.
    """

    topics: dict[str, list[int]]
    brokers: dict[int, list[str]]


def left_throttles(
    topics: Mapping[str, ThrottledReplicas], rates: Mapping[int, ThrottleRates], *, reassigning: int
) -> LeftThrottles:
    """Return the throttles that are left behind.

    Args:
        topics: of each topic the replicas that it lists.
        rates: of each broker.
        reassigning: how many partitions are being reassigned; while any is, no throttle is left behind.
    """
    if reassigning:
        return LeftThrottles({}, {})
    limited = {name: each.limited_by(rates) for name, each in sorted(topics.items()) if each.is_set}
    with_rate = [broker for broker, each in sorted(rates.items()) if each != ThrottleRates()]
    return LeftThrottles(
        limited, {broker: [name for name, brokers in limited.items() if broker in brokers] for broker in with_rate}
    )


def _lists(replicas: str | None, broker: int) -> bool:
    """Return whether a list has a replica on a broker."""
    listed = (replicas or "").strip()
    return listed == _EVERY or any(each.strip().partition(":")[2] == str(broker) for each in listed.split(","))
