"""What the tables say against stopping a broker now, for a person who announces work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.maintenance import is_down
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import SourceState
from streaming.contracts.tables import BROKER_STATE_TABLE, SOURCE_PROGRESS
from streaming.delta.queries import open_ours, select
from streaming.delta.state_rows import states_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.state import BrokerState

_SECOND: Final = 1_000_000
_REPLICATION: Final = f"channel = '{Channel.REPLICATION}'"
# What was safe longer ago than this may not be any more.
FRESH_SECONDS: Final = 60


def stop_warnings(tables: Path, brokers: Sequence[BrokerState], now: int) -> Iterator[str]:
    """Return a sentence about each broker of one cluster that is not known to be safe to stop.

    A machine that shares only the bus has no tables, and says nothing. A broker that is not up is stopped already.

    Args:
        tables: directory of the Delta tables.
        brokers: those that work is announced on.
        now: microseconds since 1970.

    Raises:
        TableUnreadable: one of the tables is damaged.
    """
    table = open_ours(tables, BROKER_STATE_TABLE)
    if table is None:
        return
    cluster_id, numbers = brokers[0].cluster_id, sorted(one.broker for one in brokers)
    up = {one.broker for one in brokers if not is_down(one)}
    observed = _observed_until(tables, cluster_id)
    if observed is None or now - observed > FRESH_SECONDS * _SECOND:
        age = "have no state of its cluster" if observed is None else f"are {(now - observed) // _SECOND:,} s old"
        yield f"whether broker {', '.join(map(str, numbers))} can be stopped is unknown: the tables {age}"
        return
    for row in select(table, BROKER_STATE_TABLE).sort_by("broker").to_pylist():
        is_meant = row["cluster_id"] == cluster_id and row["broker"] in up
        if is_meant and not row["is_safe_to_stop"]:
            certainty = "known to be " if row["is_safe_to_stop"] is None else ""
            yield f"broker {row['broker']} is not {certainty}safe to stop now: {row['restart_reason']}"


def _observed_until(tables: Path, cluster_id: ClusterId) -> int | None:
    """Return up to when the state in the tables is observed; of announcements nothing follows."""
    sources = states_of(SourceState, select(open_ours(tables, SOURCE_PROGRESS), SOURCE_PROGRESS, _REPLICATION))
    return max(
        (
            source.observed_until
            for source in sources
            if source.cluster_id == cluster_id
            and source.authority is not SourceKind.NONE
            and source.observed_until is not None
        ),
        default=None,
    )
