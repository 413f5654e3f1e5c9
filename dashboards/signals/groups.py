"""Groups of every protocol and of Spark's queries: state, members, lag."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.labels import GROUP

_group = partial(Signal, labels=GROUP)
_group_topic = partial(Signal, labels=(*GROUP, "topic"))

INFO: Final = Signal(
    name="Group",
    meaning="State, coordinator and protocol of each group.",
    metric="group_info",
    labels=(*GROUP, "protocol", "state", "coordinator"),
)
MEMBERS: Final = _group("Members", "group_members", "Members of the group.")
PROGRESS_AGE: Final = _group(
    "Last batch",
    "group_progress_age_seconds",
    "Time since a query of Spark last began or finished a batch.",
    unit=Unit.SECONDS,
)
LAG: Final = Signal(
    name="Lag",
    meaning=(
        "Records that each group has yet to read. A steady rise: its consumers are too slow, or gone. A step: one "
        "partition stands still, or many records were produced at once."
    ),
    metric="group_lag_records",
    labels=(*GROUP, "topic", "partition"),
)
LAG_SECONDS: Final = _group_topic(
    "Lag in time",
    "group_lag_at_least_seconds",
    (
        "For how long, at least, each group could have read the oldest record that it has yet to read. Compare it with "
        "the retention of the topic: beyond that, records are lost."
    ),
    unit=Unit.SECONDS,
)
RETENTION_USED: Final = _group_topic(
    "Retention used",
    "group_retention_used_ratio",
    "Share of the records kept that the group has yet to read: at 100 % records are deleted before it reads them.",
    unit=Unit.SHARE,
)
LOST: Final = _group_topic(
    "Lost", "group_lost_records", "Records that were deleted before the group read them, as of its committed offsets."
)
