"""A long, seeded story of one cluster, and what the tables must say of it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence, Subject
from streaming.contracts.observations import Observation
from streaming.contracts.state import PARTITION_STATE
from streaming.delta.changes.log import changes_to_arrow
from tests.changes.conftest import Story

PARTITIONS = 12
ISRS = ((1, 2, 3), (1, 2), (1, 3), (1,), (2, 3))
COUNTED = ("isr_shrinks", "isr_expands", "leader_changes", "under_replicated_seconds", "change_number")


def long_story(seed: int, steps: int = 400) -> list[Observation]:
    """Tell a baseline, then random steps of random partitions, brokers that are fenced, heartbeats."""
    dice = random.Random(seed)
    story = Story()
    story.controller(101, 1)
    story.config("2")
    story.snapshot([{}] * PARTITIONS)
    epochs = [0] * PARTITIONS
    for _ in range(steps):
        number = dice.randrange(PARTITIONS)
        epochs[number] += 1
        isr = dice.choice(ISRS)
        story.later(dice.random())
        story.partition(
            number,
            isr=isr,
            leader=isr[0],
            partition_epoch=epochs[number],
            leader_epoch=epochs[number],
            cause=Cause.LAG,
            evidence=Evidence.PROVEN,
        )
        if dice.random() < 0.1:
            story.broker(3, fenced=dice.random() < 0.5)
        if dice.random() < 0.1:
            story.heartbeat()
    return story.seen


def expected_changes(observations: Iterable[Observation]) -> list[dict[str, Any]]:
    """Fold a story in one go: the rows of ``partition_changes`` that are about partitions and brokers."""
    folded = fold(ReplicationState(), observations)
    return essence(changes_to_arrow(folded.changes).to_pylist())


def essence(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep what must be equal, in an order of its own; source rows tell how batches were cut, so they may differ."""
    names = [column.name for column in PARTITION_STATE]
    kept = [
        {
            "subject": row["subject"],
            "key": (row["topic_id"] or "", -1 if row["partition"] is None else row["partition"], row["broker"] or -1),
            "offset": row["offset"] or -1,
            "cause": row["cause"],
            "events": [event["event_id"] for event in row["events"] or ()],
            "after": None if row["after"] is None else {name: row["after"][name] for name in names},
            "broker_after": row["broker_after"],
        }
        for row in rows
        if row["subject"] != Subject.SOURCE
    ]
    return sorted(kept, key=lambda row: (row["subject"], row["key"], row["offset"]))
