"""A metric that Kafka itself has as an MBean: its name follows from the MBean's, its value from the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.metrics.metric import ClusterMetric, Freshness, MetricType, SampledMetric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from exporters.metrics.metric import DatedSample, Sample
    from exporters.read_model.snapshot import ClusterSnapshot

LABELS: Final = ("kafka_cluster", "instance")
PARTITION_LABELS: Final = (*LABELS, "topic", "partition")


class MBeanMetric(NamedTuple):
    """A metric and where Kafka has it.

    Attributes:
        mbean: object name of the MBean.
        metric: what is exposed.
        is_of_cluster: whether every controller has the same value, so that one of them is exposed.
    """

    mbean: str
    metric: ClusterMetric | SampledMetric
    is_of_cluster: bool = False


def name_of(mbean: str) -> str:
    """Return the name of a metric as the JMX exporter's Kafka example makes it of an MBean.

    >>> name_of("kafka.server:type=ReplicaManager,name=IsrShrinksPerSec")
    'kafka_server_replicamanager_isrshrinks_total'
    """
    domain, _, properties = mbean.partition(":")
    words = [each.partition("=")[2] for each in properties.split(",")[:2]]
    name = "_".join((domain.replace(".", "_"), *words)).lower()
    return f"{name.removesuffix('persec')}_total" if name.endswith("persec") else name


def derived(  # noqa: PLR0913 - what a metric is made of
    mbean: str,
    text: str,
    source: str,
    samples: Callable[[ClusterSnapshot], Iterable[Sample]],
    labels: tuple[str, ...] = LABELS,
    *,
    is_of_cluster: bool = False,
) -> MBeanMetric:
    """Define a metric that follows from the state; a meter is a counter."""
    is_meter = mbean.endswith("PerSec")
    metric = ClusterMetric(
        name=name_of(mbean),
        kind=MetricType.COUNTER if is_meter else MetricType.GAUGE,
        labels=labels,
        help=text,
        freshness=Freshness.NOT_REQUIRED if is_meter else Freshness.STATE,
        source=source,
        samples=samples,
    )
    return MBeanMetric(mbean, metric, is_of_cluster)


def sampled(
    mbean: str,
    text: str,
    source: str,
    samples: Callable[[ClusterSnapshot], Iterable[DatedSample]],
    labels: tuple[str, ...] = LABELS,
) -> MBeanMetric:
    """Define a metric that follows from the newest rows of a table of samples."""
    metric = SampledMetric(name=name_of(mbean), labels=labels, help=text, source=source, samples=samples)
    return MBeanMetric(mbean, metric)


def running(cluster: ClusterSnapshot) -> list[int]:
    """Return the brokers that an agent could be asked on, by what the controller says."""
    brokers = sorted(cluster.brokers.items())
    return [number for number, broker in brokers if cluster.is_registered(broker) and not broker.is_fenced]
