"""What the tables say against stopping a broker now, for a person who announces work on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.changes.maintenance import is_down
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import SourceState
from streaming.contracts.tables import BROKER_STATE_TABLE, SOURCE_PROGRESS
from streaming.delta.queries import open_ours, select
from streaming.delta.state_rows import states_of
from streaming.errors import NotSafe

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
    The advice is about each broker by itself, not about several that are down at the same time.

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
        if row["cluster_id"] != cluster_id or row["broker"] not in up:
            continue
        up.remove(row["broker"])
        if not row["is_safe_to_stop"]:
            certainty = "known to be " if row["is_safe_to_stop"] is None else ""
            yield f"broker {row['broker']} is not {certainty}safe to stop now: {row['restart_reason']}"
    yield from (f"whether broker {one} can be stopped is unknown: the tables lack it" for one in sorted(up))


def refuse_unsafe(tables: Path, brokers: Sequence[BrokerState], now: int) -> None:
    """Refuse work on brokers of one cluster unless the advice is fresh, and says of each that it may be stopped.

    Args:
        tables: directory of the Delta tables.
        brokers: those that work is to be announced on.
        now: microseconds since 1970.

    Raises:
        NotSafe: one of them may not be stopped, or it is unknown.
        TableUnreadable: one of the tables is damaged.
    """
    if open_ours(tables, BROKER_STATE_TABLE) is None:
        raise NotSafe(f"there are no tables in {tables} to say whether it is safe: nothing was announced or run")
    if warnings := list(stop_warnings(tables, brokers, now)):
        raise NotSafe(f"{'; '.join(warnings)}: nothing was announced or run")


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
