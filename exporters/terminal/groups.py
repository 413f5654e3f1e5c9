"""Groups from the newest samples: state, members, total lag, and the partition with the largest.

What is unknown stays unknown: a group without offsets has no lag, and one that is not described no members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from exporters.read_model.sampled_settings import summed
from exporters.terminal.event_filter import matches_topic
from exporters.terminal.sample_rows import samples_of
from exporters.terminal.time_parsing import SECOND
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.delta.store.place import Place

    Row = dict[str, Any]

_OF_GROUP: Final = (
    "cluster_id", "cluster", "group", "group_protocol", "group_state", "members", "assignor", "coordinator",
    "last_progress_at",
)  # fmt: skip


def group_rows(folder: Place, topics: tuple[str, ...], now: int) -> Iterator[Row]:
    """Return every group, with the sums of its partitions.

    Args:
        folder: of the tables; ``groups`` and ``group_offsets`` need not exist.
        topics: patterns; only partitions of these topics are summed up, and only groups with one of them returned.
        now: UTC microseconds; the age of the samples is measured from it.
    """
    described = {_key(row): row for row in samples_of(folder, GROUPS, now)}
    groups: dict[tuple[str, str, str], list[Row]] = {} if topics else {key: [] for key in described}
    for row in samples_of(folder, GROUP_OFFSETS, now):
        if matches_topic(row["topic"], topics):
            groups.setdefault(_key(row), []).append(row)
    for key, rows in sorted(groups.items()):
        yield {**_newest([*filter(None, [described.get(key)]), *rows], now), **summed(rows)}


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
