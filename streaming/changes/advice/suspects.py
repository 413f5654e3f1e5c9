"""Brokers to blame for shrunk ISRs, with scores. Pure; knows one partition's state and the causes.

A broker that is missing from an ISR is usually the one in trouble. The exception: a leader that stalled for longer than
``replica.lag.time.max.ms`` believes, when it resumes, that its followers stopped fetching, and expels healthy ones. The
source gives that the cause ``leader_stall``; then the leader is to blame, not the followers that it expelled.

A broker that the controller fenced because it had stood still itself is to blame for nothing once it is back. Nor is
one that is missing by an order: while it is down by a controlled shutdown, while planned work on it is announced, and
until it has caught up again.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.changes.maintenance import is_down
from streaming.changes.state import ListedPartitions, counted
from streaming.contracts.events import Cause
from streaming.contracts.tally import Contribution, Shape, Tally, contributions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.contracts.state import BrokerState, PartitionState


class Suspicion(NamedTuple):
    """Suspects for one shrunk ISR.

    ``by_order``: its last change was by a controlled shutdown; ``by_stall``: by a controller that had stood still.
    """

    suspects: tuple[BrokerId, ...]
    by_order: bool
    by_stall: bool = False


def removal_suspects(
    left: Collection[BrokerId], leader: BrokerId, cause: str | None
) -> tuple[tuple[BrokerId, ...], BrokerId | None]:
    """Return the brokers to blame for one step in which brokers left an ISR, and the leader that reported their lag.

    Args:
        left: the brokers that left.
        leader: who leads afterwards; negative for none, or one that cannot be seen.
        cause: why they left.

    Returns:
        the brokers to blame, ordered as in ``left``; and the leader that expelled them where only that leader claims
        that they lag (the controller's own removals are certain, and a leader that stalled blames only itself).
    """
    if cause == Cause.LEADER_STALL and leader >= 0:
        return (leader,), None
    return tuple(left), leader if cause == Cause.LAG and leader >= 0 else None


def partition_suspects(after: PartitionState | Shape) -> tuple[BrokerId, ...]:
    """Return the brokers to blame for the ISR being as small as it is now.

    Args:
        after: a partition; ``last_cause`` is that of its last ISR or leader change.

    Returns:
        The assigned brokers that are missing, ordered as assigned; the leader where it expelled them because it
        had stalled itself. None for a full ISR, for a deleted and for a diskless partition. A replica that a
        reassignment adds is not missing before it has caught up, and one that it removes does not count.
    """
    if after.is_deleted or after.is_diskless:
        return ()
    moving = {*after.adding_replicas, *after.removing_replicas}
    missing = tuple(broker for broker in after.replicas if broker not in after.isr and broker not in moving)
    return removal_suspects(missing, after.leader, after.last_cause)[0] if missing else ()


def scores(suspected: Mapping[Suspicion, int], brokers: Iterable[BrokerState]) -> dict[BrokerId, float]:
    """Return how much of all shrunk partitions each broker explains; together they explain all, and their sum is 1.

    Args:
        suspected: how many partitions are shrunk with each suspicion.
        brokers: every broker of the cluster.

    Returns:
        by broker, 0 to 1. A partition that several brokers are blamed for counts for each of them in equal parts, and
        one that is missing by an order is to blame for nothing. All 0 where nothing is shrunk.
    """
    by_id = {broker.broker: broker for broker in brokers}
    blame = dict.fromkeys(by_id, Fraction())  # exact: the order of the sum must not matter
    shrunk = 0
    for suspicion, count in suspected.items():
        guilty = [broker for broker in suspicion.suspects if not _is_ordered(by_id.get(broker), suspicion)]
        shrunk += count if guilty else 0
        for broker in by_id.keys() & set(guilty):
            blame[broker] += Fraction(count, len(guilty))
    return {broker: float(count / max(1, shrunk)) for broker, count in blame.items()}


def _is_ordered(broker: BrokerState | None, suspicion: Suspicion) -> bool:
    """Return whether a broker is missing from an ISR by an order that is not overrun, or by a stall of the controller.

    The controller fenced a broker that ran: once it is unfenced, it is to blame for nothing until it has caught up.
    The cause of the last change proves a stop of a broker that is missing alone, or that is back and catches up. One
    that is down like others was stopped if its registration says so.
    """
    if broker is None or broker.maintenance_overran_at is not None:
        return False
    if broker.maintenance_until is not None or (broker.is_shutting_down and is_down(broker)):
        return True
    if suspicion.by_stall and not is_down(broker):
        return True
    return suspicion.by_order and (len(suspicion.suspects) == 1 or not is_down(broker))


# The counts of the job: those of ``contracts.tally``, and who is to blame for what is shrunk.


_SUSPECTED: Final = "suspected/"


def contributions_with_blame(partition: Shape) -> list[Contribution]:
    """List the counts that a partition is one of, and, of a shrunk ISR, who is suspected together."""
    counts = contributions(partition)
    if partition.is_deleted or len(partition.isr) >= len(partition.replicas):
        return counts
    if suspects := partition_suspects(partition):
        is_by = (partition.last_cause == cause for cause in (Cause.CONTROLLED_SHUTDOWN, Cause.CONTROLLER_STALL))
        counts.append((None, _name_of(Suspicion(suspects, *is_by))))
    return counts


def _name_of(suspicion: Suspicion) -> str:
    """Return a name for the partitions of which the same is suspected: a tally counts by name."""
    return _SUSPECTED + json.dumps(suspicion)


class SuspectTally(Tally):
    """Counts of every broker and cluster that also say who explains the ISRs that are shrunk now."""

    contributions = staticmethod(contributions_with_blame)

    def apply(self, state: ReplicationState, touched: ReplicationState) -> None:
        """Follow a fold, before what it touched is applied to the state."""
        listed = [each for each in touched.topics.values() if isinstance(each, ListedPartitions)]
        for partition, count in counted(listed):
            self.add_alike(partition, count)
        for key, partitions in touched.topics.items():
            before = state.topic(key)
            for number, after in () if isinstance(partitions, ListedPartitions) else partitions.items():
                self.replace(before.get(number), after)

    def suspect_scores(self, cluster_id: ClusterId, brokers: Iterable[BrokerState]) -> dict[BrokerId, float]:
        """Return how much each broker explains of every ISR that is shrunk now, 0 to 1 (see ``suspects.scores``)."""
        suspected = {
            Suspicion(tuple(who), *by): count
            for name, count in self.with_prefix(cluster_id, _SUSPECTED).items()
            for who, *by in (json.loads(name.removeprefix(_SUSPECTED)),)
        }
        return scores(suspected, brokers)
