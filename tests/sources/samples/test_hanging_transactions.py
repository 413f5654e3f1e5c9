"""Whatever happens while coordinators and leaders are asked: what a coordinator will end is never said to hang."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.identifiers import Micros, TopicId
from streaming.sources.samples.offsets import HeldPartition, HeldPartitions
from streaming.sources.samples.transactions import HangingTransactions, OpenProducer
from tests.examples import examples

PARTITION = ("orders", 0)
PRODUCERS = (1, 2, 3)


class World:
    """One partition, three producers and their coordinators, in the order in which Kafka does things.

    A coordinator adds the partition before a producer writes; it forgets a transaction after its marker is written.
    """

    def __init__(self) -> None:
        self.end = 0
        self.listed: set[int] = set()
        self.open: dict[int, int] = {}
        self.left: set[int] = set()

    def step(self, producer: int, kind: str) -> None:
        if kind == "begin":
            self.listed.add(producer)
        elif kind == "write" and producer in self.listed:
            self._write(producer)
        elif kind == "marker" and producer in self.listed:  # a marker ends what hangs, too
            self.open.pop(producer, None)
            self.left.discard(producer)
            self.end += 1
            self.listed.discard(producer)
        elif kind == "late write" and producer not in self.listed:
            self._write(producer)
            self.left.add(producer)

    def _write(self, producer: int) -> None:
        self.open.setdefault(producer, self.end)
        self.end += 1

    def writing(self) -> set[OpenProducer]:
        return {OpenProducer(producer, 0, start) for producer, start in self.open.items()}


STEPS = st.lists(
    st.tuples(st.sampled_from(PRODUCERS), st.sampled_from(["begin", "write", "marker", "late write"])), max_size=4
)
ROUND = st.tuples(STEPS, STEPS, STEPS, st.sampled_from(["whole", "whole", "refused", "moved"]))


def played(world: World, judged: HangingTransactions, rounds: Iterable[tuple]) -> Iterable[set[int]]:
    """Give who is proven to hang after each round."""
    moved_before = False
    for before, between, after, coordinators in rounds:
        for step in before:
            world.step(*step)
        held = {PARTITION: HeldPartition(min(world.open.values(), default=world.end), world.end, Micros(0))}
        for step in between:
            world.step(*step)
        listed: dict[int, set[tuple[str, int]]] | None = {producer: {PARTITION} for producer in world.listed}
        if coordinators == "moved" and not moved_before:  # one moved while they were asked: it is in no answer
            listed = {}
        elif coordinators == "refused":
            listed = None
        moved_before = coordinators == "moved"
        for step in after:
            world.step(*step)
        judged.judge(held, listed, {PARTITION: world.writing()})
        yield {producer for producer, _ in judged.in_partitions([PARTITION])}


@settings(max_examples=examples(20))
@given(st.lists(ROUND, max_size=6))
def test_what_a_coordinator_will_end_never_hangs(rounds: list[tuple]) -> None:
    world = World()
    for proven in played(world, HangingTransactions(), rounds):
        assert proven <= world.left


@settings(max_examples=examples(20))
@given(st.lists(ROUND, max_size=4))
def test_what_no_coordinator_knows_is_found_in_two_rounds(rounds: list[tuple]) -> None:
    world, judged = World(), HangingTransactions()
    list(played(world, judged, rounds))
    quiet: list[tuple] = [([], [], [], "whole")] * 2
    *_, proven = played(world, judged, quiet)
    assert proven == world.left - world.listed


def test_what_is_proven_stays_so_while_a_coordinator_does_not_answer() -> None:
    judged, held = HangingTransactions(), {PARTITION: HeldPartition(0, 5, Micros(0))}
    one, other = OpenProducer(7, 2, 0), OpenProducer(8, 0, 3)
    for listed in ({}, {}, None):
        judged.judge(held, listed, {PARTITION: {one}})
    judged.judge(held, None, {PARTITION: {one, other}})
    judged.judge(held, None, {PARTITION: {one, other}})
    assert judged.in_partitions([PARTITION]) == {(7, 2)}, "nothing new is proven"
    assert judged.of(7, 2) == [PARTITION]
    judged.retain([])
    assert judged.of(7, 2) == []


def test_two_rounds_with_another_one_between_them_prove_nothing() -> None:
    judged, held = HangingTransactions(), {PARTITION: HeldPartition(0, 5, Micros(0))}
    for listed in ({}, None, {}, {7: {PARTITION}}, {}):
        judged.judge(held, listed, {PARTITION: {OpenProducer(7, 2, 0)}})
        assert judged.in_partitions([PARTITION]) == set()


def test_a_partition_is_held_as_long_as_its_last_stable_offset_does_not_move() -> None:
    now = [Micros(10)]
    held, ids = HeldPartitions(lambda: now[0]), {"orders": TopicId("a")}
    held.put(ids, {"orders": {0: 9, 1: 5, 2: 4}}, {"created since": {0: 0}, "orders": {0: 4, 1: 5, 2: 3}})
    now[0] = Micros(20)
    held.put(ids, {"orders": {0: 30}}, {"orders": {0: 4}})  # of another leader
    held.put(ids, {"orders": {2: 7}}, {"orders": {2: 5}})
    assert held.for_long(ids, Micros(10)) == {("orders", 0): HeldPartition(4, 9, Micros(10))}
    assert held.for_long(ids, Micros(0)).keys() == {("orders", 0), ("orders", 2)}
    held.put(ids, {"orders": {0: 30}}, {"orders": {0: 30}})
    assert held.for_long(ids, Micros(0)).keys() == {("orders", 2)}


def test_what_held_a_topic_that_was_deleted_and_created_again_is_forgotten() -> None:
    held = HeldPartitions(lambda: Micros(5))
    held.put({"orders": TopicId("a")}, {"orders": {0: 9}}, {"orders": {0: 4}})
    assert held.for_long({"orders": TopicId("b")}, Micros(0)) == {}
    assert held.for_long({"orders": TopicId("a")}, Micros(0)) == {}
