"""The tables of samples against what Kafka itself says at rest. Pure.

Of brokers that live every row has to be there, newer than the rest began, and right. What a dead broker would report is
missing, or older than that: it has no say in what is right. Rows of what is no more may stay for a minute where nobody
says that it is gone, with their age.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tests.chaos_kafka.answers import Answers, Placed
from tests.chaos_kafka.compare import Row

TABLES: Final = (
    "replica_offsets",
    "log_directories",
    "groups",
    "group_offsets",
    "transactions",
    "quorum_members",
    "topic_settings",
)
FORGOTTEN_AFTER: Final = timedelta(seconds=70)
"""A minute, and the time of a batch."""


class Unequal(NamedTuple):
    """What differs, and when the row was collected; without one there is no row."""

    text: str
    collected_at: datetime | None = None


def at(seconds: float) -> datetime:
    """Return a time of this process as one of the tables."""
    return datetime.fromtimestamp(seconds, UTC)


def sample_differences(
    answers: Answers, tables: Mapping[str, Sequence[Row]], since: datetime, hanging: Iterable[int] = ()
) -> Iterator[Unequal]:
    """Yield what differs.

    Args:
        answers: of Kafka, which stay the same for now.
        tables: the rows, by table.
        since: when it came to rest; every row has to be newer.
        hanging: the producers whose transactions hang.
    """
    yield from _replica_differences(answers, tables["replica_offsets"], since)
    yield from _directory_differences(answers, tables["log_directories"], since)
    yield from _group_differences(answers, tables["groups"], since)
    yield from _committed_differences(answers, tables["group_offsets"], since)
    yield from _transaction_differences(answers, tables["transactions"], since, frozenset(hanging))
    yield from _quorum_differences(answers, tables["quorum_members"], since)
    yield from _settings_differences(answers, tables["topic_settings"], since)


def _replica_differences(answers: Answers, rows: Iterable[Row], since: datetime) -> Iterator[Unequal]:
    """Compare the positions, size and place of each replica of a live broker.

    How long the log of a replica is that is not in sync, and what leads a partition without all its replicas lacks,
    nobody else says.
    """
    placed_in = {
        (broker, *key): (size, path)
        for (broker, path), directory in answers.directories.items()
        for key, size in directory.sizes.items()
    }
    expected = {}
    for (topic, number), placed in answers.partitions.items():
        for broker in frozenset(placed.replicas) & answers.brokers:
            key = answers.topic_ids[topic], number, broker
            size, path = placed_in.get((broker, topic, number), (None, None))
            place = {"topic": topic, "size_bytes": size, "log_dir": path}
            if placed.leader in answers.brokers and (topic, number) in answers.offsets:
                expected[key] = place | _positions(answers, (topic, number), placed, broker)
    yield from _of_rows(
        "replica_offsets", expected, {_of(row, "topic_id", "partition", "broker"): row for row in rows}, since, answers
    )


def _positions(answers: Answers, key: tuple[str, int], placed: Placed, broker: int) -> dict[str, Any]:
    offsets = answers.offsets[key]
    of_leader = {
        "log_start_offset": offsets.log_start,
        "high_watermark": offsets.high_watermark,
        "last_stable_offset": offsets.last_stable,
    }
    is_leader = broker == placed.leader
    positions: dict[str, Any] = of_leader if is_leader else dict.fromkeys(of_leader)
    if placed.is_whole:
        end = offsets.high_watermark
        positions |= {"log_end_offset": end, "leader_log_end_offset": end, "lag": 0, "behind_since": None}
    return positions


def _directory_differences(answers: Answers, rows: Iterable[Row], since: datetime) -> Iterator[Unequal]:
    expected = {
        key: {"is_online": True, "hosted_replicas": len(one.sizes), "replica_bytes": one.replica_bytes}
        if one.is_online
        else {"is_online": False}
        for key, one in answers.directories.items()
    }
    found = {_of(row, "broker", "log_dir"): row for row in rows}
    yield from _of_rows("log_directories", expected, found, since, answers)


def _group_differences(answers: Answers, rows: Iterable[Row], since: datetime) -> Iterator[Unequal]:
    expected = {
        (name,): {
            "group_protocol": group.protocol,
            "group_state": group.state,
            "members": group.members,
            "coordinator": group.coordinator,
            "assignor": group.assignor,
        }
        for name, group in answers.groups.items()
    }
    yield from _of_rows("groups", expected, {_of(row, "group"): row for row in rows}, since, answers, "coordinator")


def _committed_differences(answers: Answers, rows: Iterable[Row], since: datetime) -> Iterator[Unequal]:
    """Compare what is committed, and what follows from it; a partition that is only assigned has nothing committed."""
    expected = {}
    for (group, topic, number), committed in answers.committed.items():
        if topic not in answers.topic_ids:
            continue  # it is being deleted
        offsets = answers.offsets.get((topic, number))
        expected[group, answers.topic_ids[topic], number] = {
            "topic": topic,
            "group_state": answers.groups[group].state,
            "members": answers.groups[group].members,
            "coordinator": answers.groups[group].coordinator,
            "committed_offset": committed,
            "high_watermark": offsets and offsets.high_watermark,
            "last_stable_offset": offsets and offsets.last_stable,
            "log_start_offset": offsets and offsets.log_start,
            "lag": offsets and max(0, offsets.high_watermark - max(committed, offsets.log_start)),
            "stable_lag": offsets and max(0, offsets.last_stable - max(committed, offsets.log_start)),
        }
    found = {_of(row, "group", "topic_id", "partition"): row for row in rows if row["committed_offset"] is not None}
    yield from _of_rows("group_offsets", expected, found, since, answers, "coordinator")


def _transaction_differences(
    answers: Answers, rows: Sequence[Row], since: datetime, hanging: frozenset[int]
) -> Iterator[Unequal]:
    """Compare what coordinators have open. Of those that hang no coordinator knows."""
    expected = {
        key: {
            "transactional_id": one.transactional_id,
            "transaction_state": one.state,
            "timeout_ms": one.timeout_ms,
            "started_at": None if one.started_ms is None else at(one.started_ms / 1000),
            "transaction_partitions": sorted(one.partitions),
            "coordinator": one.coordinator,
            "is_hanging": False,
        }
        for key, one in answers.transactions.items()
    }
    found = {
        _of(row, "producer_id", "producer_epoch"): {
            **row,
            "transaction_partitions": sorted(row["transaction_partitions"]),
        }
        for row in rows
        if not row["is_hanging"]
    }
    yield from _of_rows("transactions", expected, found, since, answers, "reporter")
    said = {row["producer_id"]: row for row in rows if row["is_hanging"]}
    for producer in said.keys() - hanging:
        yield Unequal(f"transactions: {_text(said[producer])} does not hang", said[producer]["collected_at"])


def lacks_hanging(rows: Iterable[Row], hanging: Iterable[int]) -> Iterator[str]:
    """Yield the producers whose transactions hang without a row that says so."""
    for producer in set(hanging) - {row["producer_id"] for row in rows if row["is_hanging"]}:
        yield f"transactions: that of producer {producer} hangs, and no row says it"


def _quorum_differences(answers: Answers, rows: Iterable[Row], since: datetime) -> Iterator[Unequal]:
    quorum = answers.quorum
    expected = {
        (node,): {"is_voter": node in quorum.voters, "controller": quorum.leader, "controller_epoch": quorum.epoch}
        for node in quorum.voters | quorum.observers
    }
    yield from _of_rows("quorum_members", expected, {_of(row, "node"): row for row in rows}, since, answers)


def _settings_differences(answers: Answers, rows: Iterable[Row], since: datetime) -> Iterator[Unequal]:
    expected = {
        (answers.topic_ids[topic],): {"topic": topic, **settings._asdict()}
        for topic, settings in answers.settings.items()
    }
    found = {_of(row, "topic_id"): row for row in rows}
    yield from _of_rows("topic_settings", expected, found, since, answers, "source")


def _of_rows(  # noqa: PLR0913, PLR0917 - one call per table
    table: str,
    expected: Mapping[tuple[Any, ...], Row],
    found: Mapping[tuple[Any, ...], Row],
    since: datetime,
    answers: Answers,
    reporter: str = "",
) -> Iterator[Unequal]:
    """Compare rows by key, in the columns that are expected.

    Where a ``reporter`` says what is no more, nothing else may be there, but for what a dead one has reported.
    """
    for key in expected:
        row = found.get(key)
        if row is None:
            yield Unequal(f"{table} lacks {key}: {_text(expected[key])}")
        elif wrong := {name: row[name] for name, value in expected[key].items() if row[name] != value}:
            right = {name: expected[key][name] for name in wrong}
            text = (
                f"{table}, {key}, collected at {row['collected_at']:%H:%M:%S.%f}:\n  Kafka: {right}\n  table: {wrong}"
            )
            yield Unequal(text, row["collected_at"])
        elif row["collected_at"] < since:
            yield Unequal(f"{table}, {key}: the row is of {row['collected_at']}, before {since}", row["collected_at"])
    newest = max((row["collected_at"] for row in found.values()), default=since)
    for key in found.keys() - expected.keys():
        row = found[key]
        is_of_the_dead = bool(reporter) and row[reporter] not in answers.brokers and reporter != "source"
        is_aged = row["collected_at"] < since and row["collected_at"] > newest - FORGOTTEN_AFTER
        if not (is_aged and (not reporter or is_of_the_dead)):
            yield Unequal(f"{table}: there is no {key}: {_text(row)}", row["collected_at"])


def _of(row: Row, *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _text(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items() if value is not None and name != "cluster_id")
