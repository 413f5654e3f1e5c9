"""Sentences below a table of samples: brokers that have not answered lately or take no replicas, and old samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.read_model.times import SECOND, span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from exporters.read_model.cluster_samples import LogDirectoryRow
    from exporters.read_model.snapshot import ClusterSnapshot
    from exporters.terminal.state_selection import StateSelection

    AskedAt = Callable[[ClusterSnapshot], Mapping[int, int]]

REPLICAS: Final = "replicas"
DIRECTORIES: Final = "log directories"


def replicas_asked_at(cluster: ClusterSnapshot) -> dict[int, int]:
    """Return when each broker that holds a replica last answered what it has of them; 0 is never. UTC microseconds."""
    asked_at = dict.fromkeys((number for number, count in cluster.counts.hosted.items() if count), 0)
    asked_at |= dict(cluster.samples.broker_offsets_at or ())
    return asked_at | _not_up(cluster)


def directories_asked_at(cluster: ClusterSnapshot) -> dict[int, int]:
    """Return when each registered broker last answered what log directories it has; 0 is never. UTC microseconds."""
    asked_at = {number: 0 for number, each in cluster.brokers.items() if cluster.is_registered(each) is not False}
    for row in cluster.samples.log_directories or ():
        asked_at[row.broker] = max(row.collected_at, asked_at.get(row.broker, 0))
    return asked_at | _not_up(cluster)


def _not_up(cluster: ClusterSnapshot) -> dict[int, int]:
    """Return the brokers that are fenced: what they answered before says nothing of them now."""
    return {number: 0 for number, each in cluster.brokers.items() if each.is_fenced}


def is_any_fresh(selection: StateSelection, asked_at: AskedAt, oldest: float, now: int) -> bool:
    """Return whether a broker of any of the clusters has answered lately: then a table without rows says something.

    Args:
        selection: of clusters.
        asked_at: when each broker of a cluster last answered, UTC microseconds.
        oldest: age up to which an answer counts, in seconds.
        now: UTC microseconds.
    """
    return any(now - at <= oldest * SECOND for cluster, _ in selection.clusters for at in asked_at(cluster).values())


def is_any_silent(selection: StateSelection, asked_at: AskedAt, oldest: float, now: int) -> bool:
    """Return whether a broker of any of the clusters does not answer; the arguments are as above."""
    return any(now - at > oldest * SECOND for cluster, _ in selection.clusters for at in asked_at(cluster).values())


def said_of_silent(
    selection: StateSelection, asked_at: AskedAt, oldest: float, now: int, *, subject: str
) -> Iterator[str]:
    """Say of which brokers nothing is known because they do not answer; or, where none has, how old the samples are."""
    for cluster, _ in selection.clusters:
        answered = asked_at(cluster)
        silent = sorted(number for number, at in answered.items() if now - at > oldest * SECOND)
        of_cluster = f" of cluster {cluster.name}" if len(selection.clusters) > 1 else ""
        newest = max(answered.values(), default=0)
        if len(silent) < len(answered):
            for number in silent:
                yield f"of the {subject} on broker {number}{of_cluster} nothing is known: it does not answer"
        elif newest:
            yield f"the newest samples of {subject}{of_cluster} are {span((now - newest) / SECOND)} old"


def said_of_cordoned(selection: StateSelection) -> Iterator[str]:
    """Say which brokers put new replicas into none of their log directories that are online, or only into some."""
    for cluster, _ in selection.clusters:
        of_broker: dict[int, list[LogDirectoryRow]] = {}
        for row in cluster.samples.log_directories or ():
            of_broker.setdefault(row.broker, []).append(row)
        of_cluster = f" of cluster {cluster.name}" if len(selection.clusters) > 1 else ""
        for broker, rows in sorted(of_broker.items()):
            cordoned = [row.log_dir for row in rows if row.is_cordoned]
            is_all = all(row.is_cordoned for row in rows if row.is_online)
            if cordoned:
                what = "any log directory" if is_all else ", ".join(sorted(cordoned))
                gets = "it gets none, also by a reassignment" if is_all else "the others get them"
                yield (
                    f"broker {broker}{of_cluster} puts no new replica into {what}: {gets}, until cordoned.log.dirs of "
                    "the broker changes (kafka-configs)"
                )
