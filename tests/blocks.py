"""Blocks taken apart, for tests that look at single partitions and samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from streaming.changes.advice.slow_brokers import SpeedSample
from streaming.contracts.blocks import PartitionsChanged, PartitionsObserved
from streaming.contracts.identifiers import BrokerId
from streaming.contracts.observations import Observation, SourceKind
from streaming.contracts.sample_blocks import BrokerSpeedsObserved, SamplesBlock

ENVELOPE: dict[str, Any] = {
    "cluster_id": "c", "cluster": "c", "source": "samples:a", "source_kind": SourceKind.NONE,
    "occurred_not_before": 5, "occurred_not_after": 5, "collected_at": 5,
}  # fmt: skip
"""Of samples whose cluster and time do not matter to a test."""


def samples_of(block: SamplesBlock) -> Iterator[Observation]:
    """Yield each sample of a block as an observation of its own."""
    columns = block.values()
    for row in zip(*columns.values(), strict=True):
        yield block.sample(**block.shared(), **dict(zip(columns, row, strict=True)))


def speeds_of(block: BrokerSpeedsObserved) -> dict[BrokerId, SpeedSample]:
    """Return the speed of each broker in a round."""
    columns, unknown = block.values(), (None,) * len(block)
    rows = zip(columns["broker"], *(columns.get(name, unknown) for name in SpeedSample._fields), strict=True)
    return {BrokerId(broker): SpeedSample(*values) for broker, *values in rows}


def singly(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Yield the observations, each partition or sample of a block as one of its own."""
    for observed in observations:
        if isinstance(observed, PartitionsObserved | PartitionsChanged):
            yield from observed.observations()
        elif isinstance(observed, SamplesBlock):
            yield from samples_of(observed)
        else:
            yield observed
