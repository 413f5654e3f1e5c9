"""Replicas that are behind, reassignments, and log directories, from the newest samples. Unknown stays unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exporters.answers.answer import Row, Sentence, Tone
from exporters.answers.brokers import BROKER_FILTER
from exporters.answers.partitions import TOPIC_FILTER
from exporters.answers.subject import FRESHNESS, OF_SAMPLES, ClusterSubject, Inquiry
from exporters.read_model.cluster_samples import bytes_to_go, is_reassigned, replicas_to_go
from exporters.read_model.times import SECOND, span
from streaming.contracts.sample_tables import LOG_DIRECTORIES, REPLICA_OFFSETS
from streaming.delta.log.queries import open_ours, plain, select
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.read_model.cluster_samples import LogDirectoryRow
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.columns import Table

_FULL: Final = 100


class Sampled(NamedTuple):
    """Kind of samples of brokers: the table, the words for it, and when each broker of a cluster last answered.

    ``asked_at`` returns UTC microseconds by broker; 0 is never.
    """

    table: Table
    what: str
    asked_at: Callable[[ClusterSnapshot], Mapping[int, int]]


def _replicas_asked_at(cluster: ClusterSnapshot) -> dict[int, int]:
    asked_at = dict.fromkeys((number for number, count in cluster.counts.hosted.items() if count), 0)
    return asked_at | dict(cluster.samples.broker_offsets_at or ()) | _not_up(cluster)


def _directories_asked_at(cluster: ClusterSnapshot) -> dict[int, int]:
    asked_at = {number: 0 for number, each in cluster.brokers.items() if cluster.is_registered(each) is not False}
    for row in cluster.samples.log_directories or ():
        asked_at[row.broker] = max(row.collected_at, asked_at.get(row.broker, 0))
    return asked_at | _not_up(cluster)


def _not_up(cluster: ClusterSnapshot) -> dict[int, int]:
    """Return the brokers that are fenced: what they answered before says nothing of them now."""
    return {number: 0 for number, each in cluster.brokers.items() if each.is_fenced}


_REPLICAS: Final = Sampled(REPLICA_OFFSETS, "replicas", _replicas_asked_at)
_DIRECTORIES: Final = Sampled(LOG_DIRECTORIES, "log directories", _directories_asked_at)


def ages_of(asked: Inquiry, table: Table, asked_at: Callable[[ClusterSnapshot], Mapping[int, int]]) -> set[bool]:
    """Return whether brokers have answered lately: True if any has, False if any has not, or both."""
    oldest = asked.tables.limits.oldest_ages[table.name] * SECOND
    return {asked.now - at <= oldest for cluster, _ in asked.clusters for at in asked_at(cluster).values()}


def was_asked(asked: Inquiry, asked_at: Callable[[ClusterSnapshot], Mapping[int, int]]) -> bool:
    """Return whether any broker has ever answered."""
    return any(at for cluster, _ in asked.clusters for at in asked_at(cluster).values())


def _said_of_silent(asked: Inquiry, sampled: Sampled) -> Iterator[Sentence]:
    """Say of which brokers nothing is known because they do not answer; or, where none has, how old the samples are."""
    oldest = asked.tables.limits.oldest_ages[sampled.table.name] * SECOND
    for cluster, _ in asked.clusters:
        answered, of_cluster = sampled.asked_at(cluster), asked.of_cluster(cluster.name)
        silent = sorted(number for number, at in answered.items() if asked.now - at > oldest)
        newest = max(answered.values(), default=0)
        if len(silent) < len(answered):
            for number in silent:
                text = f"of the {sampled.what} on broker {number}{of_cluster} nothing is known: it does not answer"
                yield Sentence(text, Tone.WARNING)
        elif newest:
            age = span((asked.now - newest) / SECOND)
            yield Sentence(f"the newest samples of {sampled.what}{of_cluster} are {age} old", Tone.WARNING)


# Replicas.


def replica_rows(asked: Inquiry) -> list[Row]:
    """Return the replicas that are behind, longest first; one that only lacks what came since the last look is not."""
    rows = asked.samples(REPLICA_OFFSETS)
    for row in rows:
        since, seen = row["behind_since"], row["collected_at"]
        row["behind_seconds"] = None if row["lag"] is None else (seen - (since or seen)) / SECOND
    return sorted(
        (row for row in rows if asked.question.everything or row["behind_seconds"]),
        key=lambda row: (-(row["behind_seconds"] or 0), row["cluster"], row["topic"], row["partition"], row["broker"]),
    )


def said_of_replicas(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say what it means that there is no row, and of which replicas nothing is known."""
    if not rows:
        fresh = ages_of(asked, REPLICA_OFFSETS, _replicas_asked_at)
        if not was_asked(asked, _replicas_asked_at):
            yield asked.without_samples(
                REPLICA_OFFSETS, "replicas", "the collector asks brokers for them every collect.offsets_interval"
            )
        elif True in fresh:
            yield Sentence(
                "of the brokers that answer, no replica is behind" if False in fresh else "no replica is behind"
            )
    yield from _said_of_silent(asked, _REPLICAS)


REPLICAS: Final = ClusterSubject(
    name="replicas",
    help="Show the replicas that are behind their leader, longest first; with --all every one.",
    filters=(TOPIC_FILTER, BROKER_FILTER),
    columns=(*(column.name for column in REPLICA_OFFSETS.columns), OF_SAMPLES, "behind_seconds"),
    rows=replica_rows,
    said=said_of_replicas,
)


# Reassignments.


def reassignment_rows(asked: Inquiry) -> Iterator[Row]:
    """Return the partitions that are being reassigned, by name, and what those that are added have yet to copy.

    ``bytes_to_go`` compares the sizes of logs, ``records_to_go`` their ends. Both are null while the leader or one of
    them has no sample.
    """
    chosen = patterns_of(*asked.patterns("topic"))
    moving = [
        (cluster, freshness, each)
        for cluster, freshness in asked.clusters
        for each in sorted(cluster.unsettled.values(), key=lambda each: (each.topic, each.partition))
        if is_reassigned(each) and chosen(each.topic)
    ]
    logs = _logs_of(asked, {each.topic_id for _, _, each in moving}) if asked.is_now else {}
    for cluster, freshness, each in moving:
        sampled = logs.get((cluster.cluster.cluster_id, each.topic_id, each.partition), {})
        waiting = replicas_to_go(each)
        yield {
            **freshness,
            "topic_id": each.topic_id,
            "topic": each.topic,
            "partition": each.partition,
            "adding_replicas": list(each.adding_replicas),
            "removing_replicas": list(each.removing_replicas),
            "replicas_to_go": waiting,
            "bytes_to_go": bytes_to_go(each, {broker: row["size_bytes"] for broker, row in sampled.items()}),
            "records_to_go": _total([sampled.get(broker, {}).get("lag") for broker in waiting]),
        }


def _logs_of(asked: Inquiry, topic_ids: set[str]) -> Mapping[tuple[str, str, int], dict[int, Row]]:
    """Return the newest samples of the replicas of some topics: by cluster id, topic id and partition, and broker."""
    logs: dict[tuple[str, str, int], dict[int, Row]] = {}
    with asked.reading(REPLICA_OFFSETS):
        samples = select(open_ours(asked.tables.folder, REPLICA_OFFSETS), REPLICA_OFFSETS) if topic_ids else None
        if samples is not None:
            for row in plain(samples.filter(pc.is_in(samples["topic_id"], pa.array(sorted(topic_ids))))).to_pylist():
                logs.setdefault((row["cluster_id"], row["topic_id"], row["partition"]), {})[row["broker"]] = row
    return logs


def _total(amounts: list[int | None]) -> int | None:
    return None if None in amounts else sum(filter(None, amounts))


def said_of_reassignments(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say that there is none."""
    if not rows:
        yield Sentence("nothing is being reassigned" if asked.clusters else asked.no_cluster)


REASSIGNMENTS: Final = ClusterSubject(
    name="reassignments",
    help="Show the partitions on the move: what is added and removed, and what is left to copy.",
    filters=(TOPIC_FILTER,),
    columns=(
        *(*FRESHNESS, "topic_id", "topic", "partition", "adding_replicas", "removing_replicas"),
        *("replicas_to_go", "bytes_to_go", "records_to_go"),
    ),
    rows=reassignment_rows,
    said=said_of_reassignments,
    has_history=True,
)


# Log directories.


def directory_rows(asked: Inquiry) -> list[Row]:
    """Return the log directories of every broker: those first that are offline, then the fullest."""
    rows = [{**row, "used_percent": _used_percent(row)} for row in asked.samples(LOG_DIRECTORIES)]
    return sorted(rows, key=lambda row: (row["is_online"], -(row["used_percent"] or 0), row["broker"], row["log_dir"]))


def _used_percent(row: Row) -> float | None:
    total, usable = row["total_bytes"], row["usable_bytes"]
    return _FULL * (total - usable) / total if total and usable is not None else None


def said_of_directories(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say which brokers put new replicas into none of their directories that are online, or only into some."""
    if not rows:
        yield asked.without_samples(
            LOG_DIRECTORIES, "log directories", "the collector asks brokers for them every collect.directories_interval"
        )
    for cluster, _ in asked.clusters:
        of_broker: dict[int, list[LogDirectoryRow]] = {}
        for row in cluster.samples.log_directories or ():
            of_broker.setdefault(row.broker, []).append(row)
        for broker, directories in sorted(of_broker.items()):
            if any(row.is_cordoned for row in directories):
                yield _cordoned(f"broker {broker}{asked.of_cluster(cluster.name)}", directories)
    yield from _said_of_silent(asked, _DIRECTORIES)


def _cordoned(who: str, directories: list[LogDirectoryRow]) -> Sentence:
    is_all = all(row.is_cordoned for row in directories if row.is_online)
    what = "any log directory" if is_all else ", ".join(sorted(row.log_dir for row in directories if row.is_cordoned))
    gets = "it gets none, also by a reassignment" if is_all else "the others get them"
    text = (
        f"{who} puts no new replica into {what}: {gets}, until cordoned.log.dirs of the broker changes (kafka-configs)"
    )
    return Sentence(text, Tone.WARNING)


DIRECTORIES: Final = ClusterSubject(
    name="directories",
    help="Show the log directories of brokers: how full they are, and when they will be full.",
    filters=(BROKER_FILTER,),
    columns=(*(column.name for column in LOG_DIRECTORIES.columns), OF_SAMPLES, "used_percent"),
    rows=directory_rows,
    said=said_of_directories,
)
