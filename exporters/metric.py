"""What a metric is: a name, labels, help, and a function from the snapshot to its samples.

The class tells what a metric's samples hang on, and so how often they must be rendered: the metrics of partitions are
rendered a topic at a time and only when that topic changed; the few of clusters and brokers on every scrape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporters.snapshot import ClusterSnapshot, Partition, PartitionOffsets, Topic

OWN_PREFIX: Final = "kafka_replication_"

Number = int | float
Sample = tuple[tuple[str, ...], "Number"]


class Kind(StrEnum):
    """Prometheus' types that are used here."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Sight(Enum):
    """Whose fresh sight a metric needs; it vanishes when that is older than ``stale_after``."""

    NONE = "an age or a counter: always shown"
    STATE = "the cluster's authority"
    OFFSETS = "the cluster's authority, and whoever asks for offsets"
    ADVICE = "the cluster's authority, and the job that adds up what it saw"


class Depends(Enum):
    """What, besides the topic itself, changes a partition's sample."""

    TOPIC = "nothing else"
    WATERMARK = "an open episode grows with the watermark"
    OFFSETS = "the offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The face of a metric.

    Attributes:
        name: as Prometheus sees it.
        kind: gauge or counter.
        labels: names, in the order of the samples' values.
        help: one sentence.
        unit: of the value; "" for a plain count, a flag or an id.
        stability: stable metrics keep name, labels and meaning within a major version.
        sight: when it vanishes.
    """

    name: str
    kind: Kind = Kind.GAUGE
    labels: tuple[str, ...] = ()
    help: str
    unit: str = ""
    stability: str = "stable"
    sight: Sight = Sight.STATE

    @property
    def is_drop_in(self) -> bool:
        """Tell whether it is another exporter's metric, which knows no label ``cluster``."""
        return not self.name.startswith(OWN_PREFIX)


@dataclass(frozen=True, slots=True)
class TopicView:
    """What the samples of one topic are made from."""

    topic: Topic
    offsets: PartitionOffsets
    watermark: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetric(Metric):
    """One sample a partition; None where it is unknown."""

    value: Callable[[Partition, TopicView], Number | None]
    depends: Depends = Depends.TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMetric(Metric):
    """One sample a replica: a partition and a broker that is assigned to it."""

    value: Callable[[Partition, int], Number]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetric(Metric):
    """One sample a topic."""

    value: Callable[[Topic], Number]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetric(Metric):
    """Any samples of one cluster at a moment, with the values of all labels."""

    samples: Callable[[ClusterSnapshot, int], Iterable[Sample]]


@dataclass(frozen=True, slots=True)
class Health:
    """How the exporter itself is."""

    program_version: str
    table_version: int
    refresh_seconds: float
    refresh_errors: int
    series: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterMetric(Metric):
    """Samples of the exporter itself."""

    sight: Sight = Sight.NONE
    samples: Callable[[Health], Iterable[Sample]]


def flag(holds: bool | None) -> int | None:  # noqa: FBT001 - a value to spell, not a switch
    """Spell a condition as a sample; unknown stays unknown."""
    return None if holds is None else int(holds)
