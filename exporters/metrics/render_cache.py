"""The rendered lines of a cluster's topics: kept as bytes per topic and metric, concatenated by metric.

A cluster has many partitions, and few of them change between two scrapes. Two levels keep the work proportional to
the changes:

- ``TopicLines`` renders a metric of a topic again only if one of its inputs changed: the topic (another object: the
  read model shares what did not change, so comparing identity is enough), the watermark while an episode is open, or
  the offsets.
- ``ClusterLines`` compresses the lines of a metric in parts of a few topics, and again only if the bytes of one of them
  changed. A topic that was rendered to the same bytes costs no compression.
"""

from __future__ import annotations

import math
import operator
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.compression import Block
from exporters.metrics.metric import PartitionMetric, ReplicaMetric, SampledMetric, SampleInput, TopicMetric, TopicView
from exporters.metrics.quorum import READ_TOGETHER
from exporters.metrics.sample_ages import oldest_moment
from exporters.metrics.text import escaped, line
from streaming.contracts.sample_tables import BROKER_SETTINGS, REPLICA_OFFSETS, TOPIC_SETTINGS, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from exporters.metrics.metric import Number
    from exporters.metrics.series_filter import Detail, SeriesFilter
    from exporters.read_model.cluster_samples import PartitionOffsets
    from exporters.read_model.snapshot import ClusterSnapshot, TopicPartitions
    from streaming.contracts.state import PartitionState

TopicLevelMetric = PartitionMetric | ReplicaMetric | TopicMetric

PER_TOPIC: Final[tuple[TopicLevelMetric, ...]] = tuple(
    metric for metric in CATALOGUE if isinstance(metric, (PartitionMetric, ReplicaMetric, TopicMetric))
)
TOPICS_OF_A_PART: Final = 16
OFFSETS_OF_A_STEP: Final = 5_000
"""Partitions whose offsets are rendered in one step, at least; and at least a sixteenth of all, so that steps end."""
_ALL: Final = tuple(range(len(PER_TOPIC)))
_OF_DETAIL: Final = tuple(
    index for index, metric in enumerate(PER_TOPIC) if not isinstance(metric, TopicMetric) and not metric.is_drop_in
)


def _depending_on(depends: SampleInput) -> tuple[int, ...]:
    return tuple(
        index
        for index, metric in enumerate(PER_TOPIC)
        if not isinstance(metric, ReplicaMetric) and metric.depends is depends
    )


_ON_WATERMARK: Final = _depending_on(SampleInput.WATERMARK)
_ON_OFFSETS: Final = _depending_on(SampleInput.OFFSETS)


class TopicLines:
    """The lines of one topic: one piece of bytes per metric of ``PER_TOPIC``."""

    __slots__ = ("_has_open_episode", "_partitions", "_prefixes", "_topic_prefixes", "_view", "pieces")

    def __init__(self) -> None:
        """Render nothing yet."""
        self._view: TopicView | None = None
        self._has_open_episode = False
        self._partitions: list[PartitionState] = []
        self._prefixes: tuple[list[str], list[str]] = ([], [])
        self._topic_prefixes = ("", "")
        self.pieces = [b""] * len(PER_TOPIC)

    @property
    def offsets(self) -> PartitionOffsets | None:
        """The offsets that are rendered; None before the first time."""
        return None if self._view is None else self._view.offsets

    def is_current(self, topic: TopicPartitions, offsets: PartitionOffsets, detailed: object, unobserved: int) -> bool:
        """Return whether nothing of a topic has to be rendered again: of most, at nearly every change of others."""
        last = self._view
        return (
            last is not None
            and not self._has_open_episode
            and last.topic is topic
            and last.offsets is offsets
            and last.observed.unobserved == unobserved
            and last.detailed == detailed
        )

    def update(self, view: TopicView, cluster: str) -> list[int]:
        """Render the metrics of which an input changed; return by index those whose lines changed."""
        changed: list[int] = []
        outdated = self._outdated(view)
        if outdated is _ALL:
            self._prepare(view.topic, cluster)
        for index in outdated:
            piece = self._render(PER_TOPIC[index], view)
            if piece != self.pieces[index]:
                self.pieces[index] = piece
                changed.append(index)
        self._view = view
        return changed

    def _outdated(self, view: TopicView) -> tuple[int, ...]:
        last = self._view
        if last is None or last.topic is not view.topic:
            return _ALL
        # The watermark moves with every heartbeat: without this condition each would render every topic.
        # Time without observation is unknown time of every partition.
        is_unknown_longer = last.observed.unobserved != view.observed.unobserved
        is_longer = self._has_open_episode and last.observed != view.observed
        grown = _ON_WATERMARK if is_unknown_longer or is_longer else ()
        moved = _ON_OFFSETS if last.offsets is not view.offsets else ()
        chosen = _OF_DETAIL if last.detailed != view.detailed else ()
        return tuple({*grown, *moved, *chosen})

    def _prepare(self, topic: TopicPartitions, cluster: str) -> None:
        """Format what the lines of all metrics share: the labels of each partition, escaped once."""
        name, owner = escaped(topic.topic), escaped(cluster)
        self._partitions = [topic.partitions[number] for number in sorted(topic.partitions)]
        drop_in = [f'{{topic="{name}",partition="{each.partition}"' for each in self._partitions]
        own = [f'{{cluster="{owner}",topic="{name}",partition="{each.partition}"' for each in self._partitions]
        self._prefixes = (own, drop_in)
        self._topic_prefixes = (f'{{cluster="{owner}",topic="{name}"', f'{{topic="{name}"')
        self._has_open_episode = any(map(_is_open, topic.partitions.values()))

    def _render(self, metric: TopicLevelMetric, view: TopicView) -> bytes:
        name = metric.name
        if isinstance(metric, TopicMetric):
            of_topic = metric.value(view)
            return (
                b"" if of_topic is None else f"{name}{self._topic_prefixes[metric.is_drop_in]}}} {of_topic}\n".encode()
            )
        shown: Iterable[tuple[str, PartitionState]]
        shown = zip(self._prefixes[metric.is_drop_in], self._partitions, strict=True)
        if not metric.is_drop_in:
            if not view.detailed:
                return b""
            shown = ((prefix, each) for prefix, each in shown if each.partition in view.detailed)
        if isinstance(metric, PartitionMetric):
            value = metric.value
            lines = [
                f"{name}{prefix}}} {sample}\n"
                for prefix, partition in shown
                if (sample := value(partition, view)) is not None
            ]
        else:
            lines = [
                f'{name}{prefix},broker="{broker}"}} {member}\n'
                for prefix, partition in shown
                for broker in partition.replicas
                if (member := metric.value(partition, broker)) is not None
            ]
        return "".join(lines).encode()


def _is_open(partition: PartitionState) -> bool:
    episodes = (partition.offline_since, partition.under_replicated_since, partition.under_min_isr_since)
    return episodes != (None, None, None)


class ClusterLines:
    """The lines of all topics of one cluster, concatenated by metric."""

    def __init__(self, name: str, shows_topic: Callable[[str], bool]) -> None:
        """Render nothing yet."""
        self.name = name
        self._shows_topic = shows_topic
        self._ids: list[str] = []
        self._topics: dict[str, TopicLines] = {}
        self._groups: list[list[TopicLines]] = []
        self._parts: list[list[Block | None]] = [[] for _ in PER_TOPIC]
        self.blocks: list[Block] = [_NOTHING] * len(PER_TOPIC)
        self.is_complete = True

    def update(
        self,
        cluster: ClusterSnapshot,
        detail: Detail,
        *,
        in_steps: bool = False,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:
        """Render the topics that changed, and those of which other partitions are chosen.

        After this, ``blocks`` has the bytes of ``pieces`` of all topics, in order, by metric; compressed. All offsets
        may have moved at once: ``in_steps``, some are rendered now, and the others stay those of the samples before
        until the next updates. ``is_complete`` says whether there are any. ``give_way`` is called between two topics
        and between two metrics.
        """
        self._order(cluster.topics)
        observed, self.is_complete = cluster.cluster.observed, True
        left: int | None = None  # to render in this step; counted only once offsets moved
        for place, (topic_id, lines) in enumerate(self._topics.items()):
            topic, chosen = cluster.topics[topic_id], detail.of(topic_id)
            offsets = cluster.offsets.get(topic_id, _NO_OFFSETS)
            if lines.is_current(topic, offsets, chosen, observed.unobserved):
                continue
            if in_steps and lines.offsets is not offsets and lines.offsets is not None:
                left = _a_step(cluster.topics) if left is None else left
                if left <= 0:
                    offsets, self.is_complete = lines.offsets, False
                left -= len(topic.partitions)  # a topic with more than a step has would else wait for good
            give_way()
            for index in lines.update(TopicView(topic, offsets, observed, chosen), self.name):
                self._parts[index][place // TOPICS_OF_A_PART] = None
        blocks = []  # a scrape in between shows those of before, all of them
        for index in range(len(PER_TOPIC)):
            give_way()
            blocks.append(self._block(index))
        self.blocks = blocks

    def _order(self, topics: Mapping[str, TopicPartitions]) -> None:
        """Order topics by name, when there are others than before."""
        ids = list(topics)
        if ids == self._ids:
            return
        shown = [each for each in topics.values() if self._shows_topic(each.topic)]
        live = _newest_of_each_name(shown)
        # Of two topics of one name another may become the newer one.
        self._ids = ids if len(live) == len(shown) else []
        if [topic.topic_id for topic in live] != list(self._topics):
            self._topics = {topic.topic_id: self._topics.get(topic.topic_id) or TopicLines() for topic in live}
            of_topics = list(self._topics.values())
            self._groups = [of_topics[at : at + TOPICS_OF_A_PART] for at in range(0, len(of_topics), TOPICS_OF_A_PART)]
            self._parts = [[None] * len(self._groups) for _ in PER_TOPIC]
            self.blocks = [_NOTHING] * len(PER_TOPIC)

    def _block(self, index: int) -> Block:
        parts = self._parts[index]
        changed = [place for place, part in enumerate(parts) if part is None]
        for place in changed:
            pieces = [piece for lines in self._groups[place] if (piece := lines.pieces[index])]
            parts[place] = Block(pieces, sum(piece.count(b"\n") for piece in pieces))
        if not changed:
            return self.blocks[index]
        block = Block.of([part for part in parts if part is not None and part.series])
        block.checksum()  # so that no scrape computes it
        return block


def _a_step(topics: Mapping[str, TopicPartitions]) -> int:
    """Return of how many partitions one step renders the offsets."""
    return max(OFFSETS_OF_A_STEP, sum([len(topic.partitions) for topic in topics.values()]) // 16)


_NOTHING: Final = Block((), 0)
_NO_OFFSETS: Final[PartitionOffsets] = {}


def _newest_of_each_name(topics: Iterable[TopicPartitions]) -> list[TopicPartitions]:
    """Order topics by name; keep the newer one of a topic that was deleted and created again.

    The label is the name: both would expose the same series twice, and Prometheus would reject the whole scrape.
    """
    by_name: dict[str, TopicPartitions] = {}
    for topic in topics:
        other = by_name.get(topic.topic)
        if other is None or _changed_at(other) <= _changed_at(topic):
            by_name[topic.topic] = topic
    return [by_name[name] for name in sorted(by_name)]


def _changed_at(topic: TopicPartitions) -> int:
    return max(partition.changed_at or 0 for partition in topic.partitions.values())


# The rendered lines of metrics of samples: kept until their rows change, or one of them is too old to be exposed.


SAMPLED_METRICS: Final = tuple(metric for metric in CATALOGUE if isinstance(metric, SampledMetric))
_FIELDS: Final = {
    REPLICA_OFFSETS.name: ("lagging_replicas", "broker_offsets_at", "topic_sizes"),
    TOPIC_SETTINGS.name: (TOPIC_SETTINGS.name, BROKER_SETTINGS.name),
    TRANSACTIONS.name: READ_TOGETHER,
}
"""The rows of a table are in a field of its name, or in these."""


class SampleLines(NamedTuple):
    """The lines of one metric, the time of the oldest sample among them and of the newest that was too old for them.

    The times are UTC microseconds; infinite without such a sample.
    """

    block: Block
    oldest_at: float = math.inf
    too_old_at: float = -math.inf


class ClusterSampleLines:
    """The lines of all metrics of samples of one cluster.

    A preparation replaces lines whose rows changed, a scrape those with a sample that got too old. A scrape may have
    begun before the newest preparation: what it renders from older rows is for itself alone.
    """

    def __init__(self, oldest: Mapping[str, float], chosen: SeriesFilter) -> None:
        self._oldest, self._filter = oldest, chosen
        self._inputs: dict[str, tuple[Any, ...]] = {}
        self._lines: dict[str, SampleLines] = {}  # by name of a metric, of the rows in ``_inputs``
        self._both = threading.Lock()  # held while one of the two is replaced
        self._chosen: tuple[Detail | None, set[tuple[str, ...]]] = None, set()

    def update(
        self, cluster: ClusterSnapshot, detail: Detail, now: int, give_way: Callable[[], None] = lambda: None
    ) -> None:
        """Render the metrics of which an input changed; ``give_way`` is called between two of them."""
        for metric in SAMPLED_METRICS:
            give_way()
            inputs = _inputs(metric, cluster, detail)
            if not self._is_of(metric, inputs):
                lines = self._rendered(metric, cluster, detail, now)
                with self._both:
                    self._inputs[metric.name], self._lines[metric.name] = inputs, lines

    def block(self, metric: SampledMetric, cluster: ClusterSnapshot, detail: Detail, now: int) -> Block:
        """Return the lines of one metric, without those that are too old at ``now``; UTC microseconds."""
        lines = self._lines[metric.name]
        # After the clock was set back, samples may be young enough again.
        if not lines.too_old_at < self._since(metric, now) <= lines.oldest_at:
            lines = self._rendered(metric, cluster, detail, now)
            with self._both:
                if self._is_of(metric, _inputs(metric, cluster, detail)):
                    self._lines[metric.name] = lines
        return lines.block

    def _is_of(self, metric: SampledMetric, inputs: tuple[Any, ...]) -> bool:
        """Return whether the lines of a metric are of these rows."""
        before = self._inputs.get(metric.name, ())
        return len(before) == len(inputs) and all(map(operator.is_, before, inputs))

    def shown(self, metric: SampledMetric) -> tuple[float, float]:
        """Return after when and up to when the lines of one metric are as they are, in UTC microseconds."""
        lines, age = self._lines[metric.name], oldest_moment(self._oldest, metric.table, 0)
        return lines.too_old_at - age, lines.oldest_at - age

    def _since(self, metric: SampledMetric, now: int) -> int:
        return oldest_moment(self._oldest, metric.table, now)

    def _rendered(self, metric: SampledMetric, cluster: ClusterSnapshot, detail: Detail, now: int) -> SampleLines:
        """Render the samples that are not too old; of labels that come twice the newest.

        A group's topic that was deleted and created again is sampled twice while the group moves to another
        coordinator.
        """
        since = self._since(metric, now)
        newest: dict[tuple[str, ...], tuple[Number, int]] = {}
        too_old_at = -math.inf
        chosen = self._labels_chosen(cluster, detail) if metric.is_detail else None
        shows = self._filter.of_labels(metric.labels)
        for labels, value, at in metric.samples(cluster):
            if not shows(labels) or (chosen is not None and labels[1:3] not in chosen):
                continue
            if at < since:
                too_old_at = max(too_old_at, at)
            elif labels not in newest or newest[labels][1] < at:
                newest[labels] = value, at
        lines = [line(metric.name, metric.labels, labels, value) for labels, (value, _) in newest.items()]
        oldest_at = min((at for _, at in newest.values()), default=math.inf)
        return SampleLines(Block(("".join(lines).encode(),) if lines else (), len(lines)), oldest_at, too_old_at)

    def _labels_chosen(self, cluster: ClusterSnapshot, detail: Detail) -> set[tuple[str, ...]]:
        of, labels = self._chosen  # once: a scrape may replace it at any time
        if of is not detail:
            labels = _chosen(cluster, detail)
            self._chosen = detail, labels
        return labels


def _inputs(metric: SampledMetric, cluster: ClusterSnapshot, detail: Detail) -> tuple[Any, ...]:
    """Return what the lines of a metric are made of: objects that are others when they changed."""
    rows = tuple(getattr(cluster.samples, name) for name in _FIELDS.get(metric.table, (metric.table,)))
    topics = (cluster.topics, cluster.unsettled) if metric.is_of_topics else ()
    return (*rows, *topics, detail.partitions) if metric.is_detail else (*rows, *topics)


def _chosen(cluster: ClusterSnapshot, detail: Detail) -> set[tuple[str, ...]]:
    return {
        (cluster.topics[topic_id].topic, str(number))
        for topic_id, numbers in detail.partitions.items()
        if topic_id in cluster.topics
        for number in numbers
    }
