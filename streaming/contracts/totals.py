"""What is counted of a partition for as long as it is remembered, and how an open episode adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECOND: Final = 1_000_000
# States that have a ``_since`` while they last and a ``_seconds`` of those that ended.
EPISODES: Final = ("offline", "under_replicated", "under_min_isr")
SECONDS: Final = (*(f"{name}_seconds" for name in EPISODES), "unknown_seconds")
COUNTS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "missed_changes")
TOTALS: Final = (*COUNTS, *SECONDS)


def seconds_until(closed: float, since: int | None, watermark: int | None) -> float:
    """Add an open episode, counted up to the watermark and never past it, to the closed ones.

    Args:
        closed: seconds of the closed episodes.
        since: begin of the open one in microseconds, None where there is none.
        watermark: newest time that the cluster's primary source has reported, None before its first report.
    """
    if since is None or watermark is None:
        return closed
    return closed + max(0, watermark - since) / _SECOND


def durations_until(partition: Any, watermark: int | None) -> dict[str, float]:  # noqa: ANN401 - any row with these columns
    """Return all the seconds of one partition, open episodes counted up to the watermark.

    Args:
        partition: a state of the job or a row of the exporter: the columns of ``partition_state`` as attributes.
        watermark: newest time that the cluster's primary source has reported.
    """
    totals = {
        f"{name}_seconds": seconds_until(
            getattr(partition, f"{name}_seconds"), getattr(partition, f"{name}_since"), watermark
        )
        for name in EPISODES
    }
    return {**totals, "unknown_seconds": partition.unknown_seconds}


def totals_until(partitions: Iterable[Any], watermark: int | None) -> dict[str, int | float]:
    """Add the totals of some partitions up, those of one topic for example; tombstones count as what they were."""
    sums: dict[str, int | float] = {**dict.fromkeys(COUNTS, 0), **dict.fromkeys(SECONDS, 0.0)}
    for partition in partitions:
        counts = {name: getattr(partition, name) for name in COUNTS}
        for name, value in {**counts, **durations_until(partition, watermark)}.items():
            sums[name] += value
    return sums
