"""The counts of the job: those of ``contracts.tally``, and who is to blame for what is shrunk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from streaming.changes.listed import ListedPartitions, counted
from streaming.changes.suspects import Suspicion, partition_suspects, scores
from streaming.contracts.events import Cause
from streaming.contracts.tally import Contribution, Shape, Tally, contributions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import BrokerId, ClusterId
    from streaming.contracts.state import BrokerState

_SUSPECTED: Final = "suspected/"


def contributions_with_blame(partition: Shape) -> list[Contribution]:
    """List the counts that a partition is one of, and, of a shrunk ISR, who is suspected together."""
    counts = contributions(partition)
    if partition.is_deleted or len(partition.isr) >= len(partition.replicas):
        return counts
    if suspects := partition_suspects(partition):
        counts.append((None, _name_of(Suspicion(suspects, partition.last_cause == Cause.CONTROLLED_SHUTDOWN))))
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
            Suspicion(tuple(who), by_order): count
            for name, count in self.with_prefix(cluster_id, _SUSPECTED).items()
            for who, by_order in (json.loads(name.removeprefix(_SUSPECTED)),)
        }
        return scores(suspected, brokers)
