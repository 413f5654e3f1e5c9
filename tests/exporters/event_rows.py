"""Events as a snapshot has them."""

from __future__ import annotations

from typing import Any

from exporters.read_model.snapshot import EventRow

NOW = 1_700_000_000_000_000


def event_row(**values: Any) -> EventRow:
    """A shrink of orders-3: broker 2 left, fenced, proven."""
    defaults: dict[str, Any] = {
        "event_id": "1", "event": "isr_shrink", "event_broker": None, "detail": None, "cluster_id": "c",
        "cluster": "kafka", "subject": "partition", "topic": "orders", "partition": 3, "occurred_not_before": NOW,
        "occurred_not_after": NOW, "source": "metadata_log:collector-1", "cause": "fenced", "evidence": "proven",
        "candidates": (), "left_isr": (2,), "joined_isr": (), "leader_before": 1, "leader_after": 1,
        "isr_before": (1, 2, 3), "isr_after": (1, 3),
    }  # fmt: skip
    return EventRow(**{**defaults, **values})
