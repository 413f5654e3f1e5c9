"""How many records were appended to the logs of leaders, counted as ``MessagesInPerSec`` of ``BrokerTopicMetrics`` is.

``ReplicaManager`` adds to that meter by how much an append moves the end of a leader's log; what followers copy does
not count. Here the ends are those of two samples. Of a partition that had none before nothing is counted, and what was
appended between two samples is its newest leader's. No table has these counts: they begin at 0 with this process.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc

if TYPE_CHECKING:
    import pyarrow as pa

_KEY: Final = ["topic_id", "partition"]


def messages_in(
    counts: tuple[tuple[int, int], ...] | None, before: pa.Table | None, logs: pa.Table
) -> tuple[tuple[int, int], ...]:
    """Add to the counts, by broker, what two samples of all logs differ by.

    Args:
        counts: those up to the sample before.
        before: the sample before; None for none.
        logs: the newest sample.
    """
    added = Counter(dict(counts or ()))
    leaders = _ends_of_leaders(logs)
    added.update(dict.fromkeys(pc.unique(leaders["broker"]).to_pylist(), 0))
    if before is not None:
        both = leaders.join(
            _ends_of_leaders(before).drop_columns("broker"),
            _KEY,
            join_type="inner",
            right_suffix="_before",
            use_threads=False,
        )
        moved = pc.subtract(both["log_end_offset"], both["log_end_offset_before"])
        grown = both.append_column("grown", moved).filter(pc.greater(moved, 0))
        for row in grown.group_by("broker").aggregate([("grown", "sum")]).to_pylist():
            added[row["broker"]] += row["grown_sum"]
    return tuple(sorted(added.items()))


def _ends_of_leaders(logs: pa.Table) -> pa.Table:
    """Return where the logs of leaders end: only of these it is asked where they begin."""
    return logs.filter(logs["log_start_offset"].is_valid()).select([*_KEY, "broker", "log_end_offset"])
