"""The page of a topic: its partitions, worst first, its settings, and who reads it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.answers.event_text import causes_explained
from exporters.read_model.cluster_health import late_elections
from exporters.web.pages.cluster import cluster_named, notice_of_age, trail_of
from exporters.web.pages.fleet import risks_of
from exporters.web.pages.page import (
    Inputs,
    Level,
    PageLink,
    PageModel,
    PageRefused,
    count,
    frame_of,
    notices_of,
    visible_name,
    words_of,
)
from streaming.contracts import health
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER, Micros
from streaming.contracts.topic_roles import consequence, role_of
from streaming.contracts.words import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.state import PartitionState

PARTITIONS_SHOWN: Final = 500
_STATES: Final = ("offline", "under min ISR", "at min ISR", "under-replicated")


class PartitionRow(NamedTuple):
    """One partition; ``since`` when it is in the worst of its states."""

    name: str
    level: Level
    states: str
    leader: str
    isr: str
    missing: str
    min_isr: int | None
    since: int | None
    cause: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage(PageModel):
    """One topic; ``readers`` None: they are not kept, or could not be read."""

    template: ClassVar[str] = "topic.html"
    level: Level
    sentence: str
    facts: tuple[tuple[str, str | None], ...]
    partitions: tuple[PartitionRow, ...]
    left_out: int
    causes: tuple[tuple[str, str], ...]
    readers: tuple[tuple[str, str], ...] | None


def topic_page(inputs: Inputs, cluster_name: str, name: str) -> TopicPage:
    """Return the page of a topic."""
    cluster = cluster_named(inputs, cluster_name, links.topic, name)
    partitions = [
        each for topic in cluster.topics.values() if topic.topic == name for each in topic.partitions.values()
    ]
    if not partitions:
        raise PageRefused(
            404,
            f"cluster {cluster_name} has no topic {name!r}, as far as is known",
            [PageLink(visible_name(cluster_name), links.cluster(cluster_name, inputs.at))],
        )
    rows = partition_rows(partitions, is_old=inputs.is_stale(cluster))
    level, sentence = _worst(inputs, cluster, name, partitions)
    return TopicPage(
        **frame_of(inputs),
        title=f"{level.sign} topic {name} of {cluster_name}: {sentence} - isrwatch",
        heading=f"Topic {name}",
        trail=trail_of(inputs, cluster_name),
        notices=(*notices_of(inputs), *notice_of_age(inputs, cluster)),
        level=level,
        sentence=sentence,
        facts=tuple(_facts(inputs, cluster, name, partitions)),
        partitions=tuple(rows[:PARTITIONS_SHOWN]),
        left_out=max(0, len(rows) - PARTITIONS_SHOWN),
        causes=tuple(
            (words_of(cause), said) for cause, said in causes_explained(each.last_cause for each in partitions).items()
        ),
        readers=_readers(inputs, cluster, cluster_name, name),
    )


def partition_rows(partitions: Iterable[PartitionState], *, is_old: bool = False) -> list[PartitionRow]:
    """Return partitions as rows, the worst first; ``is_old``: nothing newer is known of them, so none is well."""
    rows = [partition_row(each) for each in sorted(partitions, key=_worst_first)]
    return [row._replace(level=Level.UNKNOWN) if is_old and row.level is Level.HEALTHY else row for row in rows]


def _worst_first(partition: PartitionState) -> tuple[object, ...]:
    return [not holds for holds in risks_of(partition)], partition.topic, partition.partition


def partition_row(partition: PartitionState) -> PartitionRow:
    """Return a partition as a row."""
    risks = risks_of(partition)
    isr = {*partition.isr}
    lacking_since = partition.under_replicated_since
    since = (partition.offline_since, partition.under_min_isr_since, lacking_since, lacking_since)
    return PartitionRow(
        name=f"{partition.topic}-{partition.partition}",
        level=_level(risks),
        states=", ".join(_states(partition, risks)) or _quiet(partition),
        leader=_leader(partition.leader),
        isr=", ".join(map(str, partition.isr)) or "empty",
        missing=", ".join(str(each) for each in partition.replicas if each not in isr),
        min_isr=partition.min_isr_effective,
        since=next(compress(since, risks), None),
        cause=None if partition.last_cause is None else words_of(partition.last_cause),
    )


def _states(partition: PartitionState, risks: tuple[bool, ...]) -> Iterator[str]:
    yield from compress(_STATES, risks)
    if partition.is_under_replicated and partition.min_isr_effective is None and not partition.is_diskless:
        yield "may refuse writes: its min ISR is unknown"


def _quiet(partition: PartitionState) -> str:
    if partition.is_diskless:
        return "diskless: its ISR means nothing"
    return "being reassigned" if partition.adding_replicas or partition.removing_replicas else "in sync"


def _level(risks: tuple[bool, ...]) -> Level:
    is_offline, is_under, *lesser = risks
    if is_offline or is_under:
        return Level.CRITICAL
    return Level.WARNING if any(lesser) else Level.HEALTHY


def _leader(leader: int) -> str:
    if leader == UNSEEN_LEADER:
        return "unseen"
    return "none" if leader == NO_LEADER else str(leader)


def _worst(inputs: Inputs, cluster: ClusterSnapshot, name: str, partitions: list[PartitionState]) -> tuple[Level, str]:
    """Return how bad it is, and that in words."""
    words = risks_in_words(partitions)
    sentence = f"{words} of {count(len(partitions), 'partition')}" if words else "every partition is in sync"
    role, risks = role_of(name), [risks_of(each) for each in partitions]
    if role is not None and any(is_offline or is_under for is_offline, is_under, *_ in risks):
        sentence += f"; {consequence(role)}"
    elections = [each.since for each in late_elections(cluster) if name in each.topics]
    if elections:
        at = utc_text(Micros(max(elections)))
        sentence = f"at {at} a leader was elected that may lack acknowledged records; {sentence}"
    if inputs.is_stale(cluster):
        return Level.UNKNOWN, f"unknown now; when it was last observed: {sentence}"
    if elections:
        return Level.CRITICAL, sentence
    return min((_level(each) for each in risks), key=lambda level: level.rank), sentence


def risks_in_words(partitions: Iterable[PartitionState]) -> str:
    """Count the partitions, each by the worst that is wrong with it; empty if nothing is."""
    worst = Counter(next(compress(_STATES, risks_of(each)), None) for each in partitions)
    return ", ".join(f"{worst[state]:,} {state}" for state in _STATES if worst[state])


def _facts(
    inputs: Inputs, cluster: ClusterSnapshot, name: str, partitions: list[PartitionState]
) -> Iterator[tuple[str, str | None]]:
    factors = sorted({health.replication_factor(each.replicas, each.adding_replicas) for each in partitions})
    yield "partitions", f"{len(partitions):,}"
    yield "replication factor", " to ".join(map(str, (factors[0], factors[-1]) if factors[1:] else factors))
    minima = {each.min_isr_configured for each in partitions}
    yield "min.insync.replicas", None if None in minima else ", ".join(map(str, sorted(filter(None, minima))))
    yield "topic id", ", ".join(sorted({each.topic_id for each in partitions}))
    if inputs.past is not None:
        yield "settings and sizes", "not kept"
        return
    for setting in cluster.samples.topic_settings or ():
        if setting.topic == name:
            yield "cleanup.policy", setting.cleanup_policy
            if setting.weaknesses:
                yield "weaknesses", ", ".join(map(words_of, setting.weaknesses))


def _readers(
    inputs: Inputs, cluster: ClusterSnapshot, cluster_name: str, name: str
) -> tuple[tuple[str, str], ...] | None:
    rows = cluster.samples.group_offsets
    if inputs.past is not None or rows is None:
        return None
    groups = sorted({each.group for each in rows if each.topic == name})
    return tuple((visible_name(group), links.group(cluster_name, group)) for group in groups)
