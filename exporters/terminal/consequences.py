"""Consequences of an internal topic's partition offline or under min ISR, with the number of groups concerned."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.health import OFFLINE, UNDER_MIN_ISR
from streaming.contracts.identifiers import NO_BROKER
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS, TRANSACTIONS
from streaming.contracts.topic_roles import KEYED, TopicRole, consequence, keys_by_partition, role_of
from streaming.delta.log.queries import open_ours, query

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.read_model.unreadable import UnreadableTables
    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

_SAMPLED: Final[Mapping[TopicRole, tuple[tuple[Table, str], ...]]] = {
    TopicRole.CONSUMER_OFFSETS: ((GROUPS, "group"), (GROUP_OFFSETS, "group")),
    TopicRole.TRANSACTION_STATE: ((TRANSACTIONS, "transactional_id"),),
}
"""Samples of groups and of transactional ids with an open transaction; without a coordinator they need none."""


class Consequences:
    """Says what fails; reads the samples when the first partition asks for them.

    Args:
        folder: of the tables; None of a state of the past, of which there are no samples.
        unreadable: takes the tables that cannot be read; nothing is counted then.
    """

    def __init__(self, folder: Place | None, unreadable: UnreadableTables) -> None:
        self._folder, self._unreadable = folder, unreadable
        self._keys: dict[TopicRole, list[dict[str, Any]]] = {}
        self._counts: dict[tuple[str, str], Counter[int]] = {}

    def of(self, cluster: ClusterSnapshot, row: Mapping[str, Any]) -> str | None:
        """Return what fails because of a partition, None if it is healthy enough, or of no internal topic.

        Args:
            cluster: of the partition.
            row: of the partition, with its health.
        """
        role = role_of(row["topic"])
        if role is None or row["health"] not in {OFFLINE, UNDER_MIN_ISR}:
            return None
        return consequence(role, self._concerned(cluster, role, row))

    def _concerned(self, cluster: ClusterSnapshot, role: TopicRole, row: Mapping[str, Any]) -> int | None:
        if role not in KEYED or self._folder is None:
            return None
        place = cluster.cluster.cluster_id, row["topic_id"]
        if place not in self._counts:
            partitions = max(cluster.topics[row["topic_id"]].partitions) + 1
            sampled = self._sampled(self._folder, role)
            keys = {each["key"] for each in sampled if each["cluster_id"] == cluster.cluster.cluster_id}
            self._counts[place] = keys_by_partition(keys, partitions)
        # No sample at all does not prove that there is no group.
        return self._counts[place][row["partition"]] if self._counts[place] else None

    def _sampled(self, folder: Place, role: TopicRole) -> list[dict[str, Any]]:
        if role not in self._keys:
            self._keys[role] = []
            for definition, column in _SAMPLED[role]:
                sql = f'SELECT DISTINCT cluster_id, "{column}" AS key FROM rows WHERE "{column}" IS NOT NULL'  # noqa: S608 - our own names
                sql += f" AND coordinator IS DISTINCT FROM {NO_BROKER}"
                with self._unreadable.collected():
                    table = open_ours(folder, definition)
                    self._keys[role] += [] if table is None else query(table, sql).to_pylist()
        return self._keys[role]
