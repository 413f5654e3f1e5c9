"""The counts of the job: those of ``contracts.tally``, and who is to blame for what is shrunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.changes.listed import ListedPartitions, counted
from streaming.changes.suspects import partition_suspects, score
from streaming.contracts.tally import Contribution, Shape, Tally, contributions

if TYPE_CHECKING:
    from streaming.changes.state import ReplicationState
    from streaming.contracts.identifiers import BrokerId, ClusterId


def contributions_with_blame(partition: Shape) -> list[Contribution]:
    """List the counts that a partition is one of, the brokers that are blamed for its shrunk ISR included."""
    counts = contributions(partition)
    if partition.is_deleted or len(partition.isr) >= len(partition.replicas):
        return counts
    suspects = partition_suspects(partition)
    if suspects:
        counts.append((None, "blamed"))
    for broker in suspects:
        counts.append((broker, "blamed"))
        if len(suspects) == 1:
            counts.append((broker, "blamed_alone"))
    return counts


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

    def suspect_score(self, cluster_id: ClusterId, broker: BrokerId) -> float:
        """Return how much a broker explains of every ISR that is shrunk now, 0 to 1 (see ``suspects.score``)."""
        return score(
            self.of_broker(cluster_id, broker, "blamed"),
            self.of_broker(cluster_id, broker, "blamed_alone"),
            self.of_cluster(cluster_id, "blamed"),
        )
