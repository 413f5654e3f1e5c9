"""Brokers that can stop now, and the order to restart them in. Pure: counts of a tally in, advice out.

A restart is a clean stop, a start, and waiting until the broker has caught up, before the next broker. It loses the
availability of a partition that the broker has a replica of if the partition is offline or under its min ISR while the
broker is down. A partition that is so already counts for each of its brokers: the one that is down cannot catch up.

Some losses no order avoids, because the configuration makes them: a partition with one replica, or with as many
replicas as its min ISR; a controller quorum of one or two voters. They make a broker unsafe, but keep no broker out of
the order. While the certificate of a listener has ended, no broker is restarted. The advice changes with every change
of the counts, so it is asked for again before each restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.maintenance import leases_of
from streaming.changes.state import ConfiguredTimes
from streaming.contracts import stop_effects
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import QUORUM_FRESH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from streaming.changes.advice.suspects import SuspectTally
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.state import BrokerState, ClusterState
    from streaming.contracts.stop_effects import RestartCondition

_NO_CONDITIONS: Final[tuple[tuple[RestartCondition, int], ...]] = ()


class RestartAdvice(NamedTuple):
    """The advice about one broker; None is unknown. The fields are columns of ``broker_state``."""

    would_go_offline: int
    is_safe_to_stop: bool | None
    restart_order: int | None
    unavoidable_offline: int
    unavoidable_under_min_isr: int
    is_quorum_voter: bool | None
    restart_reason: str


def restart_advice(
    brokers: Iterable[BrokerState], cluster: ClusterState, tally: SuspectTally
) -> dict[BrokerId, RestartAdvice]:
    """Return the advice about each broker of one cluster.

    The order has a place for every broker that can be restarted, one after the other, without a loss that another
    order would avoid. Those first that registered longest ago: who restarts the first one and asks again is not sent to
    the same broker. Where that is unknown, fewest led partitions first, so that few leaders move, and late. The active
    controller last, because its failover delays all others. Brokers that are fenced or shutting down are restarting
    already: they have no place.
    """
    brokers, names = list(brokers), tally.of_brokers(cluster.cluster_id)
    cluster = with_running_voters(with_fresh_quorum(cluster), brokers)
    stops = {broker.broker: _stop_of(broker, names.get(broker.broker, {})) for broker in brokers}
    up = frozenset(stop.broker.broker for stop in stops.values() if stop.is_up)
    others = _announced_beside(stops, cluster, up)
    seen = frozenset(number for number in up if not stops[number].broker.is_unseen)
    order = _order(stops, cluster, frozenset(number for number in seen if not others[number]))
    advice = {
        number: RestartAdvice(
            would_go_offline=stop.goes_offline(up),
            is_safe_to_stop=stop.is_safe(cluster, up),
            restart_order=order.get(number),
            unavoidable_offline=stop.names.get(stop_effects.UNAVOIDABLE_OFFLINE, 0),
            unavoidable_under_min_isr=stop.names.get(stop_effects.UNAVOIDABLE_UNDER_MIN_ISR, 0),
            is_quorum_voter=None if cluster.quorum_voters is None else number in cluster.quorum_voters,
            restart_reason=reason(stop.obstacles(cluster, up, order)),
        )
        for number, stop in stops.items()
    }
    alone = _order(stops, cluster, seen)
    return {
        number: _beside_planned_work(each, others[number], has_place=number in alone) for number, each in advice.items()
    }


def _announced_beside(
    stops: dict[BrokerId, _Stop], cluster: ClusterState, up: AbstractSet[BrokerId]
) -> dict[BrokerId, list[BrokerId]]:
    """Return the brokers that are up and that planned work may take down at any moment, for each broker the others.

    Not those of its own announcement: who announced it takes them down one after the other, and asks in which order.
    Once one is down, the counts are without it.
    """
    threats = {number: _leases_that_may_stop(stops[number], cluster) for number in up}
    own = {number: {lease.lease for lease in leases_of(stop.broker) if lease.is_open} for number, stop in stops.items()}
    return {
        number: sorted(other for other in up if other != number and threats[other] - own[number]) for number in stops
    }


def _leases_that_may_stop(stop: _Stop, cluster: ClusterState) -> frozenset[str]:
    """Return the announcements by which a broker that is up may still go down.

    A command that has ended takes none down any more, but what it did may not show yet: a broker that it killed is up
    until its session expires. A broker that is up and in every ISR after that has been through it.
    """
    session = ConfiguredTimes().configured(None, cluster.broker_session_timeout_ms).broker_session
    settled_until = (cluster.primary_watermark or 0) - session if stop.is_in_sync else 0
    return frozenset(
        lease.lease
        for lease in leases_of(stop.broker)
        if lease.is_open and not (lease.has_ended_command and lease.at <= settled_until)
    )


def _beside_planned_work(each: RestartAdvice, others: list[BrokerId], *, has_place: bool) -> RestartAdvice:
    """Withhold the advice to stop a broker while work on others is announced."""
    if not others or not (each.is_safe_to_stop or has_place):
        return each
    names = ("broker " if len(others) == 1 else "brokers ") + ", ".join(map(str, others))
    they_are = "that broker is" if len(others) == 1 else "they are"
    end = " ".join(f"--broker {number}" for number in others)
    return each._replace(
        is_safe_to_stop=None if each.is_safe_to_stop is None else False,
        restart_reason=f"planned work on {names} is announced, which may go down: wait until it is over, or "
        f"end it with isrwatch maintenance {end} --end when {they_are} back and in sync",
    )


@dataclass(frozen=True, slots=True)
class _Stop:
    """Obstacles to stopping one broker."""

    broker: BrokerState
    names: dict[str, int]
    conditions: tuple[tuple[RestartCondition, int], ...] = _NO_CONDITIONS

    @property
    def is_up(self) -> bool:
        return self.broker.is_registered and not self.broker.is_fenced and not self.broker.is_shutting_down

    @property
    def is_in_sync(self) -> bool:
        """True if every partition that it has a replica of has it in its ISR."""
        return self.names.get("hosted_partitions", 0) == self.names.get("in_sync_partitions", 0)

    def goes_offline(self, up: AbstractSet[int]) -> int:
        """Count the partitions that no replica could lead: an eligible leader replica that is up can (KIP-966)."""
        unless = sum(number for needs, number in self.conditions if needs.is_offline and not needs.brokers & up)
        return self.names.get(stop_effects.WOULD_GO_OFFLINE, 0) + unless

    def is_safe(self, cluster: ClusterState, up: AbstractSet[int]) -> bool | None:
        """Return whether nothing at all would be lost; None while unknown, or where it is down already."""
        if not self.is_up or self.broker.is_unseen or not _is_observed(cluster):
            return None
        lost = ("offline_partitions", "under_min_isr_partitions", stop_effects.WOULD_GO_UNDER_MIN_ISR)
        quorum = keeps_quorum({self.broker.broker}, cluster)
        if cluster.expired_certificate is not None:
            return False
        if self.goes_offline(up) or quorum is False or any(self.names.get(name) for name in lost):
            return False
        return None if self.names.get(stop_effects.UNKNOWN_MIN_ISR) or quorum is None else True

    def waits_for(self, in_sync: AbstractSet[int]) -> frozenset[int]:
        """Return the brokers that must catch up first, given those that have."""
        lacking = [
            needs.brokers for needs, _ in self.conditions if not needs.is_offline and not needs.brokers & in_sync
        ]
        return frozenset().union(*lacking)

    def is_free(self, cluster: ClusterState, restarted: AbstractSet[int]) -> bool:
        """Return whether a restart loses nothing avoidable once some brokers were restarted and have caught up."""
        now = ("offline_partitions", "under_min_isr_partitions", stop_effects.UNKNOWN_MIN_ISR)
        if any(self.names.get(name) for name in now) or self.waits_for(restarted):
            return False
        return is_quorum_unavoidable(self.broker.broker, cluster) or bool(
            keeps_quorum({self.broker.broker}, cluster, restarted)
        )

    def obstacles(self, cluster: ClusterState, up: AbstractSet[int], order: dict[BrokerId, int]) -> Obstacles:
        """List what is to be said of this broker."""
        is_waiting = self.waits_for(frozenset())
        lacking = [(needs, number) for needs, number in self.conditions if not needs.is_offline]
        return Obstacles(
            is_known=_is_observed(cluster),
            is_up=self.is_up,
            is_unseen=bool(self.broker.is_unseen),
            place=order.get(self.broker.broker),
            offline_now=self.names.get("offline_partitions", 0),
            under_min_isr_now=self.names.get("under_min_isr_partitions", 0),
            unknown_min_isr=self.names.get(stop_effects.UNKNOWN_MIN_ISR, 0),
            goes_offline=self.goes_offline(up),
            waiting_partitions=sum(number for _, number in lacking),
            waits_for=tuple(sorted(is_waiting)),
            waits_for_down=tuple(sorted(is_waiting - up)),
            unavoidable_offline=self.names.get(stop_effects.UNAVOIDABLE_OFFLINE, 0),
            unavoidable_under_min_isr=self.names.get(stop_effects.UNAVOIDABLE_UNDER_MIN_ISR, 0),
            voters=cluster.quorum_voters,
            voters_caught_up=cluster.quorum_caught_up,
            is_voter=cluster.quorum_voters is not None and self.broker.broker in cluster.quorum_voters,
            keeps_quorum=keeps_quorum({self.broker.broker}, cluster),
            is_quorum_unavoidable=is_quorum_unavoidable(self.broker.broker, cluster),
            expired_certificate=cluster.expired_certificate,
            is_polled=cluster.primary_source is SourceKind.POLL,
        )


def _stop_of(broker: BrokerState, names: dict[str, int]) -> _Stop:
    conditions = ((stop_effects.condition(name), number) for name, number in names.items())
    return _Stop(broker, names, tuple((needs, number) for needs, number in conditions if needs is not None))


def _order(stops: dict[BrokerId, _Stop], cluster: ClusterState, among: AbstractSet[int]) -> dict[BrokerId, int]:
    """Return the place of each broker, among some that are up, that can be restarted.

    A restarted broker has caught up, which only adds to ISRs: it takes no other broker's place away. So taking any
    broker that is free now ends with as many as any order can have.
    """
    order: dict[BrokerId, int] = {}
    if not _is_observed(cluster) or cluster.expired_certificate is not None:
        return order

    def rank(stop: _Stop) -> tuple[bool, int, int, int]:
        number = stop.broker.broker
        return number == cluster.controller, stop.broker.broker_epoch or 0, stop.names.get("led_partitions", 0), number

    waiting = sorted((stop for number, stop in stops.items() if number in among), key=rank)
    while free := next((stop for stop in waiting if stop.is_free(cluster, order.keys())), None):
        waiting.remove(free)
        order[free.broker.broker] = len(order) + 1
    return order


def _is_observed(cluster: ClusterState) -> bool:
    return cluster.has_baseline and cluster.sight_until is None


def with_fresh_quorum(cluster: ClusterState) -> ClusterState:
    """Return the cluster without what was reported of its voters too long ago: who has caught up since is unknown."""
    at, now = cluster.quorum_observed_at, cluster.primary_watermark
    # A time that is ahead is that of a clock that was: what it says may be of any time since.
    is_of_now = at is None or now is None or now - QUORUM_FRESH <= at <= now + QUORUM_FRESH
    return cluster if is_of_now else cluster._replace(quorum_caught_up=None)


def with_running_voters(cluster: ClusterState, brokers: Iterable[BrokerState]) -> ClusterState:
    """Return the cluster without the voters that are down as brokers: a combined node stops as both.

    Who votes is asked every few seconds only, and the log says at once that a broker is fenced, or is shutting down.
    """
    down = {each.broker for each in brokers if each.is_registered and (each.is_fenced or each.is_shutting_down)}
    caught_up = cluster.quorum_caught_up
    if caught_up is None or down.isdisjoint(caught_up):
        return cluster
    return cluster._replace(quorum_caught_up=tuple(voter for voter in caught_up if voter not in down))


def keeps_quorum(
    nodes: AbstractSet[int], cluster: ClusterState, restarted: AbstractSet[int] = frozenset()
) -> bool | None:
    """Return whether a majority of the voters remains if nodes stop; None while it is unknown who has caught up.

    A node that has no vote takes none away, but without a majority no leaders are elected for those that it led. Of a
    cluster whose voters were not reported nothing is known, which is said with the advice. Source: KIP-595; a voter
    that has not caught up could not commit what the others wrote.

    Those that are ``restarted`` have caught up.
    """
    voters = cluster.quorum_voters
    if not voters:
        return True
    if cluster.quorum_caught_up is None:
        return None
    going_on = {*cluster.quorum_caught_up, *restarted} & set(voters) - nodes
    return len(going_on) > len(voters) // 2


def is_quorum_unavoidable(node: int, cluster: ClusterState) -> bool:
    """Return whether the quorum is lost by configuration when a node stops: it has too few voters, all caught up."""
    voters = cluster.quorum_voters or ()
    is_whole = cluster.quorum_caught_up is not None and set(voters) <= set(cluster.quorum_caught_up)
    return node in voters and is_whole and len(voters) - 1 <= len(voters) // 2


# The restart advice about a broker, in words.


class Obstacles(NamedTuple):
    """Obstacles to restarting one broker: counts of partitions, and numbers of brokers.

    Attributes:
        is_known: whether the cluster has been reported completely, and is observed now.
        is_up: registered, and neither fenced nor shutting down.
        is_unseen: it has no listener of the name that is polled.
        place: in the order, None for none.
        offline_now: partitions that it has a replica of and that have no leader.
        under_min_isr_now: the same, under their min ISR.
        unknown_min_isr: partitions that it is in sync with, of unknown min ISR.
        goes_offline: partitions that no replica could lead if it stopped now.
        waiting_partitions: partitions that need other brokers in sync before it may stop.
        waits_for: those brokers.
        waits_for_down: those of them that are not up.
        unavoidable_offline: partitions that go offline by configuration.
        unavoidable_under_min_isr: partitions that go under their min ISR by configuration.
        voters: of the controller quorum, None while unknown.
        voters_caught_up: those of them that have caught up, None while unknown.
        is_voter: whether the broker is one.
        keeps_quorum: whether the others are a majority, None while unknown.
        is_quorum_unavoidable: whether they never are, by configuration.
        expired_certificate: a listener whose certificate has ended.
        is_polled: whether polls are the primary source.
    """

    is_known: bool
    is_up: bool
    is_unseen: bool
    place: int | None
    offline_now: int
    under_min_isr_now: int
    unknown_min_isr: int
    goes_offline: int
    waiting_partitions: int
    waits_for: tuple[int, ...]
    waits_for_down: tuple[int, ...]
    unavoidable_offline: int
    unavoidable_under_min_isr: int
    voters: tuple[int, ...] | None
    voters_caught_up: tuple[int, ...] | None
    is_voter: bool
    keeps_quorum: bool | None
    is_quorum_unavoidable: bool
    expired_certificate: str | None = None
    is_polled: bool = False


def reason(obstacles: Obstacles) -> str:
    """Return the advice as a sentence: what forbids the restart, or what it costs, or that it costs nothing."""
    if not obstacles.is_known:
        return "unknown: the cluster has not been reported completely"
    if not obstacles.is_up:
        return "not up"
    if obstacles.is_unseen:
        return (
            "unknown: it runs and can only be seen in ISRs, as it lacks the listener by which brokers are polled; add "
            "it, or name one that every broker has in cluster.bootstrap_servers"
        )
    clauses = list(_forbidding(obstacles)) if obstacles.place is None else list(_costs(obstacles))
    if not clauses:
        clauses = ["every partition stays online and at its min ISR"]
    if obstacles.voters is None:
        clauses.append("whether it has a vote in the controller quorum is unknown")
    if obstacles.is_polled:
        clauses.append("the brokers are polled: what happened since the last poll is not in this")
    return "; ".join(clauses)


def _forbidding(obstacles: Obstacles) -> Iterator[str]:
    offline, refusing = obstacles.offline_now, obstacles.under_min_isr_now
    if obstacles.expired_certificate is not None:
        yield (
            f"the certificate of {obstacles.expired_certificate} has ended: renew it first, a node that restarts does "
            "not come back"
        )
    if offline:
        them = "it" if offline == 1 else "them"
        yield f"{_partitions(offline)} it has a replica of {_is(offline)} offline: bring {them} back first"
    avoidable = obstacles.goes_offline - obstacles.unavoidable_offline
    if refusing:
        last = f", and {avoidable} would go offline" if avoidable else ""
        yield (
            f"{_partitions(refusing)} it has a replica of {_is(refusing)} under min ISR already{last}: wait until "
            f"{'it has' if refusing == 1 else 'they have'} recovered"
        )
    if obstacles.waits_for:
        lost = f"{_partitions(obstacles.waiting_partitions, 'more ' if refusing else '')} would go under min ISR"
        if avoidable and not refusing:
            lost += " or offline"
        down = f" (down: {_list(obstacles.waits_for_down)})" if obstacles.waits_for_down else ""
        yield f"{lost}: {_brokers(obstacles.waits_for)} must catch up first{down}"
    if obstacles.keeps_quorum is False and not obstacles.is_quorum_unavoidable:
        lost = "would lose its majority" if obstacles.is_voter else "has no majority to elect other leaders"
        yield f"the controller quorum {lost}: voter {_behind(obstacles)} must catch up first"
    if obstacles.unknown_min_isr:
        yield f"unknown: the min ISR of {_partitions(obstacles.unknown_min_isr)} is unknown"
    if obstacles.keeps_quorum is None:
        yield "unknown: which voters of the controller quorum have caught up"


def _costs(obstacles: Obstacles) -> Iterator[str]:
    if obstacles.waits_for:
        has = "has" if len(obstacles.waits_for) == 1 else "have"
        yield f"only after {_brokers(obstacles.waits_for)} {has} caught up"
    if obstacles.keeps_quorum is False and not obstacles.is_quorum_unavoidable:
        yield f"only after voter {_behind(obstacles)} of the controller quorum has caught up"
    if obstacles.unavoidable_offline:
        yield (
            f"unavoidable by configuration: {_partitions(obstacles.unavoidable_offline)} with one replica "
            f"{'goes' if obstacles.unavoidable_offline == 1 else 'go'} offline while it is down"
        )
    if obstacles.unavoidable_under_min_isr:
        yield (
            f"unavoidable by configuration: {_partitions(obstacles.unavoidable_under_min_isr)} with no more replicas "
            f"than min ISR {'refuses' if obstacles.unavoidable_under_min_isr == 1 else 'refuse'} acks=all writes while "
            "it is down"
        )
    if obstacles.is_quorum_unavoidable:
        yield (
            f"unavoidable by configuration: the controller quorum of {len(obstacles.voters or ())} voters has no "
            "majority while it is down"
        )


def _behind(obstacles: Obstacles) -> str:
    return _list(set(obstacles.voters or ()) - set(obstacles.voters_caught_up or ()))


def _partitions(number: int, more: str = "") -> str:
    return f"{number:,} {more}partition{'' if number == 1 else 's'}"


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _brokers(numbers: Collection[int]) -> str:
    return f"broker{'' if len(numbers) == 1 else 's'} {_list(numbers)}"


def _list(numbers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
