"""Groups from the newest samples: state, members, total lag, and a sentence: what is wrong, since when and where.

What is unknown stays unknown: a group without offsets has no lag, and one that is not described no members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.event_filter import matches_topic
from exporters.read_model.group_sums import GroupTrouble, summed, troubles
from exporters.read_model.incident_archive import groups_beyond as beyond
from exporters.read_model.times import SECOND
from exporters.terminal.sample_rows import samples_of
from streaming.contracts.group_readers import GroupOffsetsRow
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from exporters.read_model.group_sums import TroubledPartitions
    from exporters.read_model.times import Clock
    from streaming.delta.store.place import Place

    Row = dict[str, Any]

_MINUTES: Final = -len(":00.000")
_OWNERS: Final = 3
"""So many owners are named."""
_OF_GROUP: Final = (
    "cluster_id", "cluster", "group", "group_protocol", "group_state", "members", "assignor", "coordinator",
    "last_progress_at",
)  # fmt: skip


def group_rows(folder: Place, topics: tuple[str, ...], clock: Clock) -> Iterator[Row]:
    """Return every group, with the sums of its partitions.

    Args:
        folder: of the tables; ``groups`` and ``group_offsets`` need not exist.
        topics: patterns; only partitions of these topics are summed up, and only groups with one of them returned.
        clock: the age of the samples is measured from its present.
    """
    now = clock.now
    described = {_key(row): row for row in samples_of(folder, GROUPS, now)}
    groups: dict[tuple[str, str, str], list[Row]] = {} if topics else {key: [] for key in described}
    for row in samples_of(folder, GROUP_OFFSETS, now):
        if matches_topic(row["topic"], topics):
            groups.setdefault(_key(row), []).append(row)
    for key, rows in sorted(groups.items()):
        offsets = [*map(GroupOffsetsRow.of, rows)]
        newest = _newest([*filter(None, [described.get(key)]), *rows], now)
        yield {**newest, **summed(offsets), "reason": "; ".join(_sentence(each, clock) for each in troubles(offsets))}


def groups_beyond(folder: Place, incident: Mapping[str, Any], now: int) -> list[str]:
    """Return which groups stand beyond the end now where an unclean election lost records."""
    offsets = samples_of(folder, GROUP_OFFSETS, now)
    return beyond(incident, (row for row in offsets if row["cluster_id"] == incident["cluster_id"]))


def _sentence(troubled: TroubledPartitions, clock: Clock) -> str:
    """Return one trouble of a group in words, such as "stuck since 02:10 on orders-3, owner app-7"."""
    first, *others = troubled.partitions
    where = f"{first} and {len(others):,} more" if others else first
    number, owners = f"{troubled.offsets:,}", troubled.owners
    owner = f", owner {', '.join(owners[:_OWNERS])}{' and others' if owners[_OWNERS:] else ''}" if owners else ""
    since = "" if troubled.since is None else f" since {clock.short(troubled.since)[:_MINUTES]}"
    match troubled.trouble:
        case GroupTrouble.BEYOND:
            return f"{number} beyond the end of {where}{owner}"
        case GroupTrouble.LOSING:
            return f"has lost {number}, the first{since.replace('since', 'at')}, on {where}{owner}"
        case GroupTrouble.STUCK:
            return f"stuck{since} on {where}{owner}"
        case GroupTrouble.UNCOMMITTED:
            return f"has never committed on {where}{owner}"
        case GroupTrouble.HELD:
            return f"waits for an open transaction on {where}{owner}"
        case _:
            return f"{where} not read any more{since.replace('since', 'after')}, {number} behind"


def _key(row: Row) -> tuple[str, str, str]:
    return row["cluster"], row["group"], row["cluster_id"]


def _newest(rows: list[Row], now: int) -> Row:
    """Return what the newest sample says of the group; of equally old ones the first."""
    newest = max(rows, key=lambda row: row["collected_at"])
    progress_at = newest.get("last_progress_at")
    return {
        **{name: newest.get(name) for name in _OF_GROUP},
        "idle_seconds": None if progress_at is None else max(0, now - progress_at) / SECOND,
        "sample_age_seconds": newest["sample_age_seconds"],
    }
