"""Of groups: members, and how far they are behind."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, Unit
from dashboards.signals.labels import GROUP, GROUP_TOPIC

_group = partial(Signal, labels=GROUP)
_of_topic = partial(Signal, labels=GROUP_TOPIC)

INFO: Final = Signal(
    name="Group",
    meaning="State, coordinator and protocol of the group.",
    metric="group_info",
    labels=(*GROUP, "protocol", "state", "coordinator"),
)
MEMBERS: Final = _group("Members", "group_members", "Members of the group; without any nobody reads for it.")
PROGRESS_AGE: Final = _group(
    "Age of progress",
    "group_progress_age_seconds",
    "Seconds since a query of Spark last began or finished a batch.",
    unit=Unit.SECONDS,
)
LAG_AT_LEAST: Final = _of_topic(
    "Lag in time, at least",
    "group_lag_at_least_seconds",
    "For how long the group could have read the oldest record of the topic that it has yet to read, at least.",
    unit=Unit.SECONDS,
)
LOST: Final = _of_topic(
    "Lost records",
    "group_lost_records",
    "Records that were deleted before the group read them, as of its committed offsets.",
)
