"""The metadata quorum, open transactions, and metrics that agents of brokers export, from the newest samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.answers.answer import Row, Sentence, Tone
from exporters.answers.brokers import BROKER_FILTER
from exporters.answers.partitions import TOPIC_HELP
from exporters.answers.replicas import ages_of, was_asked
from exporters.answers.subject import OF_SAMPLES, ClusterSubject, Inquiry, NameFilter
from exporters.metrics.quorum import looked_at
from exporters.read_model.cluster_samples import behind_seconds, member_of
from exporters.read_model.times import SECOND
from streaming.contracts.health import is_late, lag
from streaming.contracts.quorum_members import doubled, doubled_sentence, replaced, replaced_sentence
from streaming.contracts.sample_tables import BROKER_METRICS, QUORUM_MEMBERS, TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.snapshot import ClusterSnapshot

_ROLES: Final = ("leader", "voter", "observer")


def quorum_rows(asked: Inquiry) -> list[Row]:
    """Return the members of each cluster's metadata quorum: its leader, the other voters, the observers.

    ``lag`` is in records, ``behind_seconds`` the time since a member had all that the leader has, both as the leader
    saw it, by its clock.
    """
    rows = asked.samples(QUORUM_MEMBERS)
    leaders = {row["cluster_id"]: row for row in rows if row["node"] == row["controller"] and row["is_voter"]}
    for row in rows:
        leader = leaders.get(row["cluster_id"])
        row["role"] = "leader" if row is leader else "voter" if row["is_voter"] else "observer"
        row["lag"] = None if leader is None else lag(row["log_end_offset"], leader["log_end_offset"])
        row["behind_seconds"] = (
            None if leader is None else behind_seconds(row["last_caught_up_at"], leader["last_caught_up_at"])
        )
    return sorted(rows, key=lambda row: (row["cluster"], _ROLES.index(row["role"]), row["node"]))


def said_of_quorum(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say as which member several processes run, and which was replaced by one with an empty disk; or why none is."""
    if not rows:
        needs = "a cluster with ZooKeeper has none; the collector asks every collect.quorum_interval"
        yield asked.without_samples(QUORUM_MEMBERS, "the metadata quorum", needs)
    yield from asked.said_of_age(QUORUM_MEMBERS, "the metadata quorum", rows)
    for cluster, _ in asked.clusters:
        members = cluster.samples.quorum_members or ()
        for node, several in doubled(members, member_of).items():
            listed = sorted((each.directory_id or "", each.is_voter) for each in several)
            yield Sentence(doubled_sentence(node, listed), Tone.WARNING)
        for node, (voter, observer) in replaced(members, member_of).items():
            yield Sentence(replaced_sentence(node, voter.directory_id, observer.directory_id), Tone.WARNING)


QUORUM: Final = ClusterSubject(
    name="quorum",
    help="Show the members of the metadata quorum, and how far each is behind.",
    filters=(NameFilter(name="node", help="Node id.", names=lambda row: (str(row["node"]),)),),
    columns=tuple(
        dict.fromkeys(
            (*(column.name for column in QUORUM_MEMBERS.columns), OF_SAMPLES, "role", "lag", "behind_seconds")
        )
    ),
    rows=quorum_rows,
    said=said_of_quorum,
)


def transaction_rows(asked: Inquiry) -> list[Row]:
    """Return the transactions: those first that hang, then those that are late, then the oldest."""
    rows = asked.samples(TRANSACTIONS)
    for row in rows:
        started, seen = row["started_at"], row["collected_at"]
        row["is_late"] = is_late(started, row["timeout_ms"], seen)
        row["open_seconds"] = None if started is None else max(0, seen - started) / SECOND
    return sorted(
        rows,
        key=lambda row: (not row["is_hanging"], not row["is_late"], -(row["open_seconds"] or 0), row["producer_id"]),
    )


def said_of_transactions(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say what it means that there is no row, and whether rows are old."""
    yield from asked.said_of_age(TRANSACTIONS, "transactions", rows)
    if rows:
        return
    fresh = ages_of(asked, TRANSACTIONS, _transactions_asked_at)
    if not was_asked(asked, _transactions_asked_at):
        needs = "the collector asks for them every collect.transactions_interval"
        yield asked.without_samples(TRANSACTIONS, "transactions", needs)
    elif True not in fresh:
        looks = ({"cluster": each.name, OF_SAMPLES: _age(each, asked.now)} for each, _ in asked.clusters)
        yield from asked.said_of_age(TRANSACTIONS, "transactions", looks)
    else:
        none = "no transaction is open"
        yield Sentence(f"of the brokers that answer, {none}" if False in fresh else none)


def _age(cluster: ClusterSnapshot, now: int) -> float:
    return (now - (looked_at(cluster) or now)) / SECOND


def _transactions_asked_at(cluster: ClusterSnapshot) -> dict[int, int]:
    """Return when transactions were last asked for, of no broker in particular."""
    at = looked_at(cluster)
    return {} if at is None else {-1: at}


TRANSACTION_SUBJECT: Final = ClusterSubject(
    name="transactions",
    help="Show the open transactions: those that hang, then those that are late, then the oldest.",
    filters=(
        NameFilter(
            name="transaction",
            help="Transactional id, or 'payments-*'.",
            names=lambda row: (row["transactional_id"] or "",),
        ),
        NameFilter(
            name="topic",
            help=TOPIC_HELP,
            names=lambda row: [name.rpartition("-")[0] for name in row["transaction_partitions"] or ()],
            every_name=lambda asked: {topic.topic for each, _ in asked.clusters for topic in each.topics.values()},
        ),
    ),
    columns=(*(column.name for column in TRANSACTIONS.columns), OF_SAMPLES, "is_late", "open_seconds"),
    rows=transaction_rows,
    said=said_of_transactions,
)


def metric_rows(asked: Inquiry) -> list[Row]:
    """Return the metrics of every broker that has an agent."""
    return sorted(asked.samples(BROKER_METRICS), key=lambda row: (row["cluster"], row["metric"], row["broker"]))


def said_of_metrics(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say why there is none."""
    if not rows:
        needs = "they need an agent in collect.broker_metrics"
        yield asked.without_samples(BROKER_METRICS, "broker metrics", needs)
    yield from asked.said_of_age(BROKER_METRICS, "broker metrics", rows)


METRICS: Final = ClusterSubject(
    name="metrics",
    help="Show the metrics that agents of brokers export.",
    filters=(NameFilter(name="metric", help="Name, or '*_idle_*'.", names=lambda row: (row["metric"],)), BROKER_FILTER),
    columns=(*(column.name for column in BROKER_METRICS.columns), OF_SAMPLES),
    rows=metric_rows,
    said=said_of_metrics,
)
