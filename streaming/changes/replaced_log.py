"""What follows when a log on the bus is another one than before: replaced, restored from a copy, or cut.

It numbers its observations anew, so no number of the old log says that one of the new log was applied. Until the next
numbers say it again, the content alone does: offsets and epochs, or the times of polls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.changes.change import Change
from streaming.changes.partition_events import with_event_ids
from streaming.contracts.events import EventKind, Subject
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.contracts.log_position import LogPosition
    from streaming.contracts.state import SourceState


def of_replaced_logs(sources: Iterable[SourceState], now_at: Mapping[str, LogPosition]) -> Iterator[Change]:
    """Yield one change per source whose log is another one: it begins again, and what is lost is recorded.

    Nobody can say how much the old log held beyond what was applied, so the event names where that ends. If it was a
    change of a partition, the partition's epochs will show it.

    Args:
        sources: all of them.
        now_at: the last record that the new log has in common with what was applied, by the name of the source.
    """
    for before in sources:
        at = now_at.get(before.source)
        if at is None:
            continue
        detail = (
            f"the log of {before.source} on the bus was replaced, restored from a copy, or cut: what it held after "
            f"number {before.sequence}, and had not been applied, is missing"
        )
        identity = f"{before.cluster_id}/log/{before.source}/{before.log_id or 0}/{before.position}"
        yield Change(
            subject=Subject.SOURCE,
            observation=newest_of(before),
            events=with_event_ids(identity, iter([(EventKind.CHANGES_MISSED, None, detail)])),
            source_after=before._replace(position=at.position, log_id=at.log_id, sequence=0, observed_until=None),
        )


def newest_of(source: SourceState) -> Heartbeat:
    """Return an observation with the times of the newest one that was applied."""
    moment = source.observed_until or Micros(0)
    return Heartbeat(
        cluster_id=source.cluster_id,
        cluster=source.cluster,
        source=source.source,
        authority=source.authority,
        sequence=source.sequence,
        occurred_not_before=moment,
        occurred_not_after=moment,
        collected_at=source.collected_at or moment,
    )
