"""The ISR changes that each leader made, counted as its own meters count them.

``IsrShrinksPerSec`` and ``IsrExpandsPerSec`` of ``ReplicaManager`` count, on the leader, each change that it asked the
controller for and got (``Partition.maybeShrinkIsr``, ``maybeExpandIsr``); what the controller does on its own moves no
meter. A broker counts fewer than it made: a change that it learns from the metadata log, before the controller's answer
to its request, it takes for another's (``Partition.submitAlterPartition``). That is often so where controller and
broker are one node.

No table has these counts, so they begin at 0 with the process that reads, as those of a broker do.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.events import OF_LEADERS
from streaming.contracts.identifiers import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporters.read_model.draft import SnapshotDraft

_OF_LEADERS: Final = pa.array(sorted(OF_LEADERS))


class IsrMeters:
    """Counts the changes of every version once, however often the tables are read anew."""

    def __init__(self) -> None:
        """Count nothing yet."""
        self._version: int | None = None
        self._counts: dict[str, Mapping[int, tuple[int, int]]] = {}

    def follow(self, rows: pa.Table, version: int) -> None:
        """Count the changes up to a version; those of the first call were made before this process began to count.

        Args:
            rows: of ``partition_changes``, also such as were counted before.
            version: newest version of these rows.
        """
        if self._version is not None:
            fresh = rows.filter(pc.greater(rows["version"], self._version))
            shrinks, expands = _shrinks(fresh), _expands(fresh)
            for cluster_id in {cluster_id for cluster_id, _ in (*shrinks, *expands)}:
                counts = dict(self._counts.get(cluster_id, {}))
                for broker in {broker for each, broker in (*shrinks, *expands) if each == cluster_id}:
                    before, key = counts.get(broker, (0, 0)), (cluster_id, broker)
                    counts[broker] = before[0] + shrinks[key], before[1] + expands[key]
                self._counts[cluster_id] = counts
        self._version = version

    def put_into(self, draft: SnapshotDraft) -> None:
        """Take over the counts of every cluster whose last snapshot has others."""
        for cluster_id, counts in self._counts.items():
            last = draft.last.clusters.get(cluster_id)
            if last is not None and last.isr_meters is not counts:
                draft.cluster(cluster_id, last.name).put_isr_meters(counts)
            elif cluster_id in draft.drafts:
                draft.drafts[cluster_id].put_isr_meters(counts)


def _shrinks(rows: pa.Table) -> Counter[tuple[str, int]]:
    return _by_leader(rows, pc.and_(_has_any(rows["left_isr"]), pc.is_in(rows["cause"], value_set=_OF_LEADERS)))


def _expands(rows: pa.Table) -> Counter[tuple[str, int]]:
    return _by_leader(rows, _has_any(rows["joined_isr"]))


def _by_leader(rows: pa.Table, is_counted: pa.ChunkedArray) -> Counter[tuple[str, int]]:
    """Count changes by cluster and leader; one in which the leader changed is the controller's."""
    before, after = (pc.struct_field(rows[name], "leader") for name in ("before", "after"))
    stayed = pc.and_(pc.equal(before, after), pc.not_equal(after, NO_LEADER))
    made: dict[str, list[Any]] = (
        pa.table({"cluster": rows["cluster_id"], "leader": after}).filter(pc.and_(stayed, is_counted)).to_pydict()
    )
    return Counter(zip(made["cluster"], made["leader"], strict=True))


def _has_any(lists: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater(pc.list_value_length(lists), 0), False)
