"""Random histories made by the model, seen by several sources, cut and mixed at random.

A world is a number: the same number gives the same history, so a failure is repeated by the numbers that are printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from streaming.changes.fold import fold
from streaming.changes.state import Change, ReplicationState
from streaming.changes.tombstones import without_expired
from streaming.contracts.codec import encode
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import (
    DISKLESS,
    BrokerObserved,
    Channel,
    ConfigObserved,
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.jobs.shards.decoded_batch import RepeatedBlocks, decode_batch
from streaming.jobs.streams.bus_source import SCHEMA
from streaming.model.constants import Constants
from streaming.sources.simulated import Scenario, SimulatedSource
from streaming.sources.simulated.scenario import Action, Fault, TopicPlan
from tests.swarm.swarm import SHORT

SECOND: Final = 1_000_000
START: Final = 1_700_000_000 * SECOND
SECONDS: Final = 40
WORLDS: Final = 40  # how many there are; one is played once, in a quarter of a second
_ACTIONS: Final = (Action.KILL, Action.START, Action.STOP, Action.PAUSE, Action.RESUME, Action.LOSE_POWER, Action.WIPE)
_POLL_MICROS: Final = 2_000_000


@lru_cache(maxsize=100)
def log_of(world: int, cluster_id: str = "c1") -> tuple[Observation, ...]:
    """What one collector of the metadata log tells of a world: brokers 1 to 3 suffer, ``clicks`` comes and goes."""
    dice = Random(f"world {world}")
    scenario = Scenario(
        name="world",
        brokers=tuple(map(BrokerId, (1, 2, 3, 4))),
        duration=SECONDS,
        constants=replace(Constants(), **SHORT),  # type: ignore[arg-type]
        topics=tuple(_topics()),
        faults=tuple(
            Fault(
                at=round(dice.uniform(0, SECONDS - 5), 3),
                action=dice.choice(_ACTIONS),
                broker=BrokerId(dice.choice((1, 2, 3))),
            )
            for _ in range(dice.randint(6, 24))
        ),
    )
    source = SimulatedSource(
        scenario, seed=world, cluster_id=ClusterId(cluster_id), cluster="demo", name="metadata_log:a",
        epoch=Micros(START),
    )  # fmt: skip
    told: list[Observation] = []
    for second in (*sorted(dice.sample(range(1, SECONDS), 3)), SECONDS):
        told += source.poll(Micros(START + second * SECOND))
        source._snapshot(SnapshotReason.PERIODIC)
    told = [it for it in told if it.channel is Channel.REPLICATION and it.source_kind is not SourceKind.NONE]
    return numbered(_with_diskless(told, dice) if world % 3 == 0 else told)


def _with_diskless(told: Iterable[Observation], dice: Random) -> Iterable[Observation]:
    """Configure some lives of ``clicks`` as diskless, which full reports repeat."""
    value, is_report = None, False
    for it in told:
        is_report = isinstance(it, SnapshotBegin) or (is_report and not isinstance(it, SnapshotEnd))
        if not isinstance(it, ConfigObserved) or it.topic != "clicks":
            yield it
        elif it.key == DISKLESS:
            yield replace(it, value=value)
        else:
            yield it
            if not is_report:
                value = "true" if it.value is not None and dice.random() < 0.7 else None
                yield replace(it, key=DISKLESS, value=value)


def _topics() -> Iterable[TopicPlan]:
    """Deleted and made again within a poll's period, and after a while."""
    orders = tuple(tuple(map(BrokerId, replicas)) for replicas in ((1, 2, 3), (2, 3, 1), (4, 1, 2)))
    clicks = tuple(tuple(map(BrokerId, replicas)) for replicas in ((1, 4, 2), (4, 3, 1)))
    yield TopicPlan(name="orders", partitions=3, min_insync_replicas=2, assignments=orders)
    for minimum, begin, end in ((1, 3.0, 12.1), (2, 12.4, 12.9), (3, 13.3, 25.0), (2, 30.0, None)):
        yield TopicPlan(
            name="clicks", partitions=2, min_insync_replicas=minimum, assignments=clicks, create_at=begin, delete_at=end
        )


def _last(told: Sequence[Observation]) -> Micros:
    return Micros(max(it.occurred_not_after for it in told))


def _envelope(observed: Observation) -> dict[str, Any]:
    return {item.name: getattr(observed, item.name) for item in fields(Observation)}


def numbered(told: Iterable[Observation], source: str | None = None) -> tuple[Observation, ...]:
    """Number observations as a bus does, under another source's name if one is given."""
    return tuple(replace(it, source=source or it.source, sequence=n) for n, it in enumerate(told, start=1))


def seen_by_another(
    told: Sequence[Observation], dice: Random, source: str = "metadata_log:b"
) -> tuple[Observation, ...]:
    """The same records as another collector tells them: collected at other times."""
    return numbered(
        (replace(it, collected_at=Micros(it.collected_at + dice.randint(0, 3 * SECOND))) for it in told), source
    )


def polls_of(told: Sequence[Observation], source_kind: SourceKind, source: str = "admin:a") -> tuple[Observation, ...]:
    """What a poller tells of the same world: all it can see, every few seconds, with the window it happened in."""
    state, found, before = ReplicationState(), list[Observation](), Micros(START)
    rest = list(told)
    for at in range(START + SECOND, _last(told) + 1, _POLL_MICROS):
        due = [it for it in rest if it.occurred_not_after <= at]
        rest = rest[len(due) :]
        state.apply(fold(state, due).touched)
        envelope = {
            **_envelope(told[0]), "source": source, "source_kind": source_kind, "collected_at": Micros(at + 1),
            "occurred_not_before": before, "occurred_not_after": Micros(at),
        }  # fmt: skip
        found += _poll(state, envelope)
        before = Micros(at)
    return numbered(found)


def _poll(state: ReplicationState, envelope: dict[str, Any]) -> Iterable[Observation]:
    there = [it for it in state.partitions() if not it.is_deleted]
    alive = tuple(sorted(it.broker for it in state.brokers.values() if it.is_registered and not it.is_fenced))
    counts = Counter(it.topic_id for it in there)
    yield SnapshotBegin(**envelope, snapshot_id="p", reason=SnapshotReason.PERIODIC)
    for broker in alive:
        yield BrokerObserved(**envelope, in_snapshot=True, broker=broker)
    for it in there:
        yield PartitionObserved(
            **envelope, in_snapshot=True, topic_id=it.topic_id, topic=it.topic, partition=it.partition,
            replicas=it.replicas, isr=it.isr, leader=it.leader,
        )  # fmt: skip
    yield SnapshotEnd(
        **envelope, snapshot_id="p", topic_ids=tuple(counts), partition_counts=tuple(counts.values()), brokers=alive
    )


def mixed(
    sources: Sequence[Sequence[Observation]], dice: Random, *, skew: int | None = None, replays: bool = True
) -> tuple[tuple[Observation, ...], ...]:
    """Cut sources into batches in which each keeps its own order, and let some come again from earlier on.

    Args:
        sources: each in its own order.
        dice: decides.
        skew: how many microseconds a source may be ahead of the slowest; None: any.
        replays: whether a batch may begin before the last one ended.
    """
    reached = [0] * len(sources)
    batches: list[tuple[Observation, ...]] = []
    while any(at < len(told) for at, told in zip(reached, sources, strict=True)):
        batch: list[Observation] = []
        for n, told in enumerate(sources):
            if dice.random() < 0.4:
                continue
            first = dice.randint(0, reached[n]) if replays and dice.random() < 0.2 else reached[n]
            last = min(len(told), reached[n] + dice.choice((1, 2, 5, 20, 100)))
            if skew is not None:
                last = _within(sources, reached, n, last, skew)
            batch += told[first:last]
            reached[n] = max(reached[n], last)
        batches.append(tuple(batch))
    return tuple(batches)


def _within(sources: Sequence[Sequence[Observation]], reached: Sequence[int], n: int, last: int, skew: int) -> int:
    """Hold a source back that would be too far ahead of another that has something to tell."""
    others = [told[at].occurred_not_after for m, (told, at) in enumerate(zip(sources, reached, strict=True))
              if m != n and at < len(told)]  # fmt: skip
    slowest = min(others, default=None)
    while slowest is not None and last > reached[n] and sources[n][last - 1].occurred_not_after - slowest > skew:
        last -= 1
    return last


class AppliedHistory(NamedTuple):
    """What the tables say after every batch."""

    state: ReplicationState
    changes: list[Change]


def applied(batches: Iterable[Sequence[Observation]], *, quick: bool = True) -> AppliedHistory:
    """Take batches the way of the job: bytes of the bus, read, folded, old tombstones let go, applied."""
    state, changes, repeats = ReplicationState(), list[Change](), RepeatedBlocks() if quick else None
    for batch in batches:
        rows = pa.Table.from_pylist([
            {"source": it.source, "position": n, "payload": encode(it), "damage": None} for n, it in enumerate(batch)
        ], schema=SCHEMA)  # fmt: skip
        understood = decode_batch(rows, {}, repeats)
        assert understood.refused == ()
        folded = without_expired(state, fold(state, understood.observations))
        state.apply(folded.touched)
        if repeats is not None:
            repeats.learn(understood.blocks, folded.touched, state)
        changes += folded.changes
    return AppliedHistory(state, changes)


def told_of_kafka(changes: Iterable[Change]) -> Counter[str]:
    """What changes say of Kafka, each by its identity: everything except who saw it first and how batches were cut."""
    return Counter(map(repr, (_of_kafka(it) for it in changes if it.subject is not Subject.SOURCE)))


def _of_kafka(change: Change) -> tuple[Any, ...]:
    seen = change.observation
    return (
        change.subject, seen.cluster_id, seen.occurred_not_before, seen.occurred_not_after, change.is_baseline,
        change.cause, change.evidence, change.candidates, change.missed, change.left_isr, change.joined_isr,
        change.events, change.before, change.after, change.broker_after, _steady(change.cluster_after), change.configs,
    )  # fmt: skip


def _steady(cluster: Any) -> Any:
    """A cluster without its watermarks, which are as far as its sources were heard."""
    return None if cluster is None else cluster._replace(watermark=None, primary_watermark=None)


def truth_of(state: ReplicationState) -> dict[str, Any]:
    """Give the final states: partitions, brokers, clusters, minima."""
    return {
        "partitions": state.topics,
        "topic_ids": state.topic_ids,
        "brokers": state.brokers,
        "clusters": state.clusters,
        "configs": {key: told.value for key, told in state.configs.items() if told.value is not None},
    }


def removals(told: Iterable[Observation]) -> int:
    """Count the topics that were deleted."""
    return sum(isinstance(it, TopicRemoved) for it in told)


def stretched(told: Iterable[Observation], factor: int) -> tuple[Observation, ...]:
    """The same history, so many times slower."""
    return tuple(
        replace(it, **{name: Micros(START + factor * (getattr(it, name) - START)) for name in _TIMES}) for it in told
    )


_TIMES: Final = ("occurred_not_before", "occurred_not_after", "collected_at")


def baseline(log: Sequence[Observation]) -> int:
    """Count the observations of the first snapshot."""
    return next(n for n, it in enumerate(log, start=1) if isinstance(it, SnapshotEnd))


def behind_the_log(
    log: Sequence[Observation], other: Sequence[Observation], dice: Random, lead: int
) -> tuple[tuple[Observation, ...], ...]:
    """Mix a log with another source that begins after its baseline and is never further ahead of it than ``lead``."""
    heard, said = baseline(log), 0
    batches = [tuple(log[:heard])]
    while heard < len(log) or said < len(other):
        batch: list[Observation] = []
        if heard < len(log) and dice.random() < 0.6:
            batch += log[heard : heard + dice.choice((1, 2, 5, 30))]
            heard = batch[-1].sequence
        until = log[heard - 1].occurred_not_after + lead
        for _ in range(dice.choice((0, 1, 5, 40, 200))):
            if said < len(other) and (heard == len(log) or other[said].occurred_not_after <= until):
                batch.append(other[said])
                said += 1
        batches.append(tuple(batch))
    return tuple(batches)
