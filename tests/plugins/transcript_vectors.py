"""Commands of transcripts about single rules: a question and what the rule answers, without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.identifiers import BrokerId, java_hash, partition_for
from streaming.model.broker.leader import RemoteReplica, fetched
from streaming.model.clients.partitioner import murmur2, partition_for_key
from streaming.model.constants import Error
from streaming.model.controller.change import Assignment, complete, reassign
from streaming.model.controller.placement import JavaRandom, UsableBroker, assign_replicas, place
from streaming.model.storage.batch import Batch
from streaming.model.storage.log import Log
from streaming.model.storage.producer_state import duplicate_of, refusal
from streaming.model.storage.replica import check_fetch, truncation_point
from tests.plugins.transcript import Script, command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PRODUCER = 7


def kafkas_mock_random() -> JavaRandom:
    """The generator of Kafka's tests: a linear congruential one of 64 bits, seeded 17, its top bits."""
    state = 17

    def bits(count: int) -> int:
        nonlocal state
        state = (state * 2862933555777941757 + 3037000493) % 2**64
        return state >> 64 - count

    return JavaRandom(bits)


def usable(words: Iterable[object]) -> list[UsableBroker]:
    """Read ``10@1 11f``: broker 10 in rack 1, broker 11 without a rack, fenced."""
    brokers = []
    for word in words:
        broker, _, rack = str(word).partition("@")
        brokers.append(UsableBroker(BrokerId(int(broker.rstrip("f"))), rack or None, broker.endswith("f")))
    return brokers


def ids(members: Iterable[int]) -> str:
    return "[" + ",".join(map(str, members)) + "]"


@command
def epoch_cache(it: Script, *entries: str, end: int) -> None:
    """``epoch-cache 1@0 3@10 end=30``: a log with these epochs (epoch@first offset) that ends there."""
    log = it.clients["log"] = Log()
    for entry in entries:
        epoch, offset = map(int, entry.split("@"))
        log.begin_epoch(epoch, offset)
    log.append(end)


@command
def end_offset_for(it: Script, *epochs: int) -> Iterator[str]:
    """``end-offset-for 0 1``: where each epoch ended, as (epoch, offset)."""
    for epoch in epochs:
        yield f"{epoch}  {it.clients['log'].end_offset_for(epoch)}"


@command
def diverges(it: Script, epoch: int, offset: int) -> Iterator[str]:
    """``diverges 2 25``: what a leader answers to a follower at this offset, after a record of this epoch."""
    answer = check_fetch(it.clients["log"], offset, epoch)
    yield "reads on" if answer is None else answer.name if isinstance(answer, Error) else f"diverges at {answer}"


@command
def truncate(it: Script, epoch: int, leader_end: int, high_watermark: int = 0) -> Iterator[str]:
    """``truncate 2 25 high_watermark=5``: where a follower cuts, told that the epoch ends there; -1 -1: unknown."""
    point = truncation_point(it.clients["log"], high_watermark, (epoch, leader_end))
    yield f"cuts at {point.offset}" + ("" if point.is_complete else ", and asks again")


@command
def follower_fetches(it: Script, offset: int, leader_end: int, at: int) -> Iterator[str]:
    """``follower-fetches 5 leader_end=10 at=1``: a fetch, and when the follower was last caught up."""
    remote = it.clients.setdefault("follower", RemoteReplica())
    fetched(remote, offset, leader_end, at, 1)
    yield f"last caught up {remote.last_caught_up_ms}"


@command
def place_with_kraft(_: Script, *brokers: object, factor: int, partitions: int) -> Iterator[str]:
    """``place-with-kraft 0 1f 2@a factor=3 partitions=5``; f is fenced, @ names a rack."""
    placed = place(usable(brokers), partitions, factor, kafkas_mock_random())
    yield " ".join(map(ids, placed))


@command
def place_with_zookeeper(_: Script, *brokers: object, factor: int, partitions: int) -> Iterator[str]:
    """``place-with-zookeeper 0 1 2 factor=3 partitions=5``."""
    yield " ".join(map(ids, assign_replicas(usable(brokers), partitions, factor)))


@command
def move(it: Script, current: tuple[int, ...], target: tuple[int, ...]) -> Iterator[str]:
    """``move [3,2,1] [3,6,2,1,5]``: what a partition stores while it moves."""
    moving = reassign(Assignment(tuple(map(BrokerId, current))), tuple(map(BrokerId, target)))
    it.clients["moving"] = moving
    yield f"replicas {ids(moving.replicas)} adding {ids(moving.adding)} removing {ids(moving.removing)}"


@command
def completes_with(it: Script, isr: tuple[int, ...]) -> Iterator[str]:
    """``completes-with [3,4,5]``: whether the move is over with this ISR."""
    done, left = complete(it.clients["moving"], tuple(map(BrokerId, isr)))
    yield "not yet" if done.is_reassigning else f"replicas {ids(done.replicas)} isr {ids(left)}"


@command
def append(it: Script, sequence: int, size: int = 1, epoch: int = 0) -> Iterator[str]:
    """``append 0 size=3 epoch=0``: a batch of one producer, and the leader's verdict."""
    log = it.clients.setdefault("producer log", Log())
    batch = Batch(0, size, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)
    entry = log.producers.entries.get(PRODUCER)
    known = duplicate_of(entry, batch) if entry is not None else None
    if known is not None:
        yield f"duplicate of offset {known.base_offset}"
        return
    error = refusal(entry, batch)
    yield f"appended at {log.append_batch(batch).base_offset}" if error is Error.NONE else error.name


@command
def coordinator_of(_: Script, *names: str, partitions: int = 50) -> Iterator[str]:
    """``coordinator-of orders-consumer``: Java's hash of a group or transactional id, and its partition."""
    for name in names:
        yield f"{name}  hash {java_hash(name)}  partition {partition_for(name, partitions)}"


@command
def key_goes_to(_: Script, *keys: object, partitions: int) -> Iterator[str]:
    """``key-goes-to 21 partitions=12``: murmur2 of a key, and its partition."""
    for key in map(str, keys):
        yield f"{key}  murmur2 {murmur2(key.encode())}  partition {partition_for_key(key.encode(), partitions)}"
