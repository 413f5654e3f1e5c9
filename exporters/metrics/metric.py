"""The definition of a metric: name, labels, help, and a function from the snapshot to its samples.

The class of a metric states which input its samples are computed from, and so how often they must be rendered: the
metrics of topics, partitions and replicas once per change of their topic, because there may be 100,000 of each; the
few metrics of clusters, brokers and the exporter on every scrape.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.read_model.cluster_samples import PartitionOffsets
    from exporters.read_model.conditions import ConditionInputs
    from exporters.read_model.refresher import ExporterHealth
    from exporters.read_model.snapshot import ClusterSnapshot, TopicPartitions
    from streaming.contracts.state import ObservedTime, PartitionState

OWN_PREFIX: Final = "kafka_replication_"
PROCESS_PREFIX: Final = "process_"
OWN: Final = "the exporter itself"
"""The source of what the exporter measures of itself."""

Number = int | float
Sample = tuple[tuple[str, ...], "Number"]
DatedSample = tuple[tuple[str, ...], "Number", int]
"""A sample with the time that it is of, UTC microseconds."""


class MetricType(StrEnum):
    """Prometheus metric types in use."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Freshness(Enum):
    """The input that must be fresh for a metric to be exposed; its series disappear while that input is stale.

    An age is needed most while data is stale. A counter that does not grow is not wrong, and ``increase()`` across a
    gap would lose increments. A state, in contrast, claims to be current.
    """

    NOT_REQUIRED = "none: ages and counters are always exposed"
    STATE = "the observations of the cluster's primary source"
    OFFSETS = "STATE, and the newest offset samples"
    ADVICE = "STATE, and the restart advice that the job derives from it"
    SAMPLE = "the sample itself, whatever is known of partitions"


class SampleInput(Enum):
    """The input that changes a partition's sample, besides the topic itself."""

    TOPIC = "no other input"
    WATERMARK = "the watermark: an open episode grows with it"
    OFFSETS = "the offset samples of the topic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Base of all metrics.

    Attributes:
        name: as exposed.
        kind: gauge or counter.
        labels: label names, in the order of the samples' label values.
        help: one sentence.
        unit: of the value; "" for a count, a flag or an id.
        source: the columns that its values come from, as ``table.column``, with commas between; or ``OWN``.
        freshness: the input that must be fresh for the metric to be exposed.
    """

    name: str
    kind: MetricType = MetricType.GAUGE
    labels: tuple[str, ...] = ()
    help: str
    unit: str = ""
    source: str
    freshness: Freshness = Freshness.STATE

    @property
    def is_drop_in(self) -> bool:
        """Return whether this is a metric of kafka_exporter, which has no label ``cluster``."""
        return not self.name.startswith((OWN_PREFIX, PROCESS_PREFIX))

    @property
    def stability(self) -> str:
        """Return who decides on name, labels and meaning: we, within a major version, or another exporter."""
        return "kafka_exporter's" if self.is_drop_in else "stable"


@dataclass(frozen=True, slots=True)
class TopicView:
    """The input of the samples of one topic.

    Attributes:
        topic: its partitions.
        offsets: newest offset samples, by partition number.
        observed: up to when the cluster is observed; open episodes are counted up to here.
        detailed: the numbers of the partitions that have series of their own.
    """

    topic: TopicPartitions
    offsets: PartitionOffsets
    observed: ObservedTime
    detailed: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetric(Metric):
    """One sample per partition; a value of None (unknown) has no sample.

    kafka_exporter's metrics have one of every partition, the others of those that are chosen (``detail``).
    """

    value: Callable[[PartitionState, TopicView], Number | None]
    depends: SampleInput = SampleInput.TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMetric(Metric):
    """One sample per replica, a broker assigned to a partition that is chosen (``detail``); None has no sample."""

    value: Callable[[PartitionState, int], Number | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetric(Metric):
    """One sample per topic; a value of None (unknown) has no sample."""

    value: Callable[[TopicView], Number | None]
    depends: SampleInput = SampleInput.TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetric(Metric):
    """Samples of one cluster, each with the values of all labels."""

    samples: Callable[[ClusterSnapshot], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgeMetric(Metric):
    """Samples of one cluster at a time in UTC microseconds: ages grow while no table changes."""

    samples: Callable[[ClusterSnapshot, int], Iterable[Sample]]
    unit: str = "seconds"
    freshness: Freshness = Freshness.NOT_REQUIRED


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledMetric(Metric):
    """Samples of one cluster from the newest rows of a table (the first of ``source``), each exposed while it is fresh.

    Attributes:
        samples: of one cluster.
        is_of_topics: they also depend on what is known of topics and partitions.
        is_detail: labels begin with cluster, topic and partition, and only partitions that are chosen have samples.
    """

    samples: Callable[[ClusterSnapshot], Iterable[DatedSample]]
    freshness: Freshness = Freshness.SAMPLE
    is_of_topics: bool = False
    is_detail: bool = False

    @property
    def table(self) -> str:
        """Return the table whose samples decide how fresh it is: the first of its source."""
        return self.source.partition(".")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedMetric(Metric):
    """Samples of some clusters, by name, from a judgement: of how old the data is, and of what cannot be read."""

    samples: Callable[[Mapping[str, ClusterSnapshot], ConditionInputs], Iterable[Sample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterMetric(Metric):
    """Samples of the exporter process."""

    source: str = OWN
    freshness: Freshness = Freshness.NOT_REQUIRED
    samples: Callable[[ExporterHealth], Iterable[Sample]]


def flag(holds: bool | None) -> int | None:  # noqa: FBT001 - a value to convert, not a switch
    """Convert a condition to a sample value: 1, 0, or None (unknown) for None."""
    return None if holds is None else int(holds)
