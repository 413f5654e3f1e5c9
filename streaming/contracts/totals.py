"""What is counted of a partition for as long as it is remembered, and how an open episode adds to it.

Time without observation is nobody's episode: it is unknown. The metadata log proves such a time by an equal partition
epoch before and after. That of a poller is recorded once per cluster, in ``unobserved_micros``, and each partition
keeps the value as of its last change: the difference is what its totals lack. It costs nothing per partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECOND: Final = 1_000_000
# States that have a ``_since`` while they last and a ``_seconds`` of those that ended.
EPISODES: Final = ("offline", "under_replicated", "under_min_isr")
UNKNOWN: Final = "unknown_seconds"
SECONDS: Final = (*(f"{name}_seconds" for name in EPISODES), UNKNOWN)
COUNTS: Final = ("isr_shrinks", "isr_expands", "leader_changes", "unclean_elections", "missed_changes")
TOTALS: Final = (*COUNTS, *SECONDS)


class ObservedTime(NamedTuple):
    """The clock of durations: time that passes only while a cluster is observed.

    Attributes:
        watermark: newest time that its primary source has reported, None before the first report.
        unobserved: microseconds before that without observation, in all.
    """

    watermark: int | None = None
    unobserved: int = 0

    def lacking(self, partition: Any) -> int:  # noqa: ANN401 - any row with these columns
        """Return the microseconds without observation since the last change of a partition; none of a tombstone."""
        return 0 if partition.is_deleted else max(0, self.unobserved - int(partition.unobserved_micros))

    def seconds_in(self, partition: Any, name: str) -> float:  # noqa: ANN401 - as above
        """Return one of ``SECONDS`` of a partition: an open episode counts up to the watermark, and never past it.

        Args:
            partition: a state of the job or a row of the exporter: the columns of ``partition_state`` as attributes.
            name: of the column.
        """
        closed: float = getattr(partition, name) or 0.0
        if name == UNKNOWN:
            return closed + self.lacking(partition) / _SECOND
        since: int | None = getattr(partition, name.removesuffix("_seconds") + "_since")
        if since is None or self.watermark is None:
            return closed
        return closed + max(0, self.watermark - since - self.lacking(partition)) / _SECOND


def totals_until(partitions: Iterable[Any], observed: ObservedTime) -> dict[str, int | float]:
    """Add the totals of some partitions up, those of one topic for example; tombstones count as what they were."""
    sums: dict[str, int | float] = {**dict.fromkeys(COUNTS, 0), **dict.fromkeys(SECONDS, 0.0)}
    for partition in partitions:
        counts = {name: getattr(partition, name) for name in COUNTS}
        for name, value in {**counts, **{name: observed.seconds_in(partition, name) for name in SECONDS}}.items():
            sums[name] += value
    return sums
