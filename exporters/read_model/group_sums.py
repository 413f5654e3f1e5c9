"""What the partitions of a group add up to; what is unknown of one of them is unknown of the group.

In seconds the lag of a group is the largest one of its partitions; while that of one is unknown, it is at least the
largest of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def summed(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add up rows of ``group_offsets`` of one group."""
    with_lag = [row for row in rows if row["lag"] is not None]
    worst = max(with_lag, key=lambda row: row["lag"], default=None)
    seconds = [row["lag_seconds"] for row in rows]
    at_least = max((each for each in seconds if each is not None), default=None)
    return {
        "partitions": len(rows),
        "lag": sum(row["lag"] for row in with_lag) if rows and len(with_lag) == len(rows) else None,
        "lag_seconds": None if None in seconds else at_least,
        "lag_seconds_at_least": at_least,
        "partitions_of_unknown_lag": len(rows) - len(with_lag),
        "records_lost": sum(row["records_lost"] or 0 for row in rows) if rows else None,
        "worst_partition": None if worst is None else f"{worst['topic']}-{worst['partition']}",
        "worst_lag": None if worst is None else worst["lag"],
    }
