"""A group that is not listed is not gone: coordinators that start, move or are late, and the rows of their groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.contracts.columns import Table
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_blocks import BrokerGroupOffsetsObserved, BrokerGroupsObserved
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS, ROUNDS_OF_GROUPS
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import plain_type
from streaming.delta.samples.newest import Newest
from streaming.errors import ConnectionRefused
from streaming.jobs.streams.sample_columns import columns_of
from streaming.name_patterns import NamePatterns
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.groups import groups as module
from streaming.sources.samples.groups import listed, rounds
from streaming.sources.samples.groups.blocks import GroupValues
from streaming.sources.samples.groups.described import DescribedGroup
from streaming.sources.samples.groups.groups import GroupsKind
from streaming.sources.samples.kind import BrokerAnswer
from streaming.sources.samples.offsets import OffsetsKind
from tests.blocks import ENVELOPE
from tests.examples import examples
from tests.sources.samples.test_groups import ONE, SECOND, TWO, Versions, view_of

ROUND = 10 * SECOND
VIEW, WITHOUT_TWO = view_of({0: ONE}), view_of({0: ONE}, brokers=(ONE,))
PARTITIONS = 2


class Partition(Enum):
    """What the leader of a partition of ``__consumer_offsets`` does with it."""

    UNSEEN = auto()  # it accepts requests, and has yet to learn that it leads it
    LOADING = auto()
    LOADED = auto()


def empty(table: Table) -> Newest:
    schema = pa.schema([(each.name, plain_type(each.type)) for each in arrow_schema(table)])
    return Newest(table, schema.empty_table())


class Connected(Versions):
    """A connection to one broker of the stand-in."""

    def __init__(self, broker: BrokerId) -> None:
        super().__init__(9)
        self.broker = broker


class Coordinators:
    """Two brokers that coordinate as Kafka does, a source that samples them, and the tables of what it sends."""

    def __init__(self, *groups: str) -> None:
        self.groups = set(groups)
        self.denied, self.late, self.refused = set[str](), set[str](), set[str]()
        self.leader = dict.fromkeys(range(PARTITIONS), ONE)
        self.state = dict.fromkeys(range(PARTITIONS), Partition.LOADED)
        self.now, self.view = 10_000 * SECOND, VIEW
        period = Micros(ROUND)
        self.kind = GroupsKind(period, OffsetsKind(period, DirectoriesKind(period)), NamePatterns())
        self.offsets: dict[str, dict[str, dict[int, int]]] = {}
        self.ended: list[str] = []
        self.tables = {BrokerGroupsObserved: empty(GROUPS), BrokerGroupOffsetsObserved: empty(GROUP_OFFSETS)}

    def partition(self, group: str) -> int:
        return sum(map(ord, group)) % PARTITIONS

    def listed(self, connection: Any) -> dict[str, DescribedGroup]:
        led = [number for number, leader in self.leader.items() if leader == connection.broker]
        if any(self.state[number] is Partition.LOADING for number in led):
            raise ConnectionRefused("Kafka's error 14")
        loaded = {number for number in led if self.state[number] is Partition.LOADED}
        shown = sorted(name for name in self.groups - self.denied if self.partition(name) in loaded)
        return {name: DescribedGroup("classic", "Empty") for name in shown}

    def committed(self, connection: Any, names: Iterable[str]) -> tuple[GroupValues, ...]:
        names = [*names]
        if not self.late.isdisjoint(names):
            raise ConnectionRefused("it did not answer within 5 s")
        return tuple(self.answer(connection.broker, name) for name in names)

    def answer(self, broker: BrokerId, name: str) -> GroupValues:
        number = self.partition(name)
        state = self.state[number] if self.leader[number] == broker else Partition.UNSEEN
        loaded = 30 if name in self.denied else 14 if name in self.refused else 0
        error = {Partition.UNSEEN: 16, Partition.LOADING: 14, Partition.LOADED: loaded}[state]
        offsets = self.offsets.get(name, {"orders": {0: 7}})
        return GroupValues(error, name, offsets if not error and name in self.groups else {})

    def round(self, *, silent: tuple[BrokerId, ...] = ()) -> None:
        """Sample all brokers that are not silent."""
        self.now += ROUND
        works: list[tuple[str, BrokerId, Any]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "monotonic", lambda: Micros(self.now))
            patch.setattr(module, "list_groups", self.listed)
            patch.setattr(module, "describe_groups", lambda _, groups, _probe: (groups, ()))
            patch.setattr(module, "committed_offsets", self.committed)
            patch.setattr(listed, "committed_offsets", self.committed)
            is_due = True
            while is_due:
                works.clear()
                self.kind.ask(self.view, lambda *asked: not works.append(asked), Micros(self.now))  # type: ignore[func-returns-value]
                for _, broker, work in works:
                    self.now += 1
                    if broker not in silent:
                        self.take(broker, work)
                is_due = self.kind.next_at <= self.now

    def take(self, broker: BrokerId, work: Callable[[Any], Any]) -> None:
        at = Micros(self.now)
        try:
            answer = BrokerAnswer("groups", broker, at, work(Connected(broker)))
        except ConnectionRefused as refusal:
            answer = BrokerAnswer("groups", broker, at, refusal=refusal)
        for block in self.kind.shown(self.view, answer, {**ENVELOPE, "collected_at": at}).observations:
            assert isinstance(block, BrokerGroupsObserved | BrokerGroupOffsetsObserved)
            self.tables[type(block)].take(columns_of(block))
            self.ended += getattr(block, "ended", ())

    def rows(self) -> dict[str, int]:
        """Return the groups of the tables, which must be the same, and the rounds since each was sampled."""
        groups, offsets = ({row["group"]: row for row in table.rows.to_pylist()} for table in self.tables.values())
        assert groups.keys() == offsets.keys()
        return {name: round((self.now - row["collected_at"]) / ROUND) for name, row in offsets.items()}

    def restart(self, broker: BrokerId) -> None:
        self.state |= {number: Partition.UNSEEN for number, leader in self.leader.items() if leader == broker}

    def advance(self, state: Partition) -> None:
        self.state = dict.fromkeys(self.state, state)


def sampled(*groups: str) -> Coordinators:
    coordinators = Coordinators(*groups)
    coordinators.round()
    assert coordinators.rows() == dict.fromkeys(groups, 0)
    return coordinators


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_groups_of_a_coordinator_that_has_just_started_and_lists_none_grow_old(rounds: int) -> None:
    coordinators = sampled("a", "b")
    coordinators.restart(ONE)
    for age in range(1, rounds + 1):
        coordinators.round()
        assert coordinators.rows() == {"a": age, "b": age}, "it lists nothing, without an error"
    coordinators.advance(Partition.LOADING)
    coordinators.round()
    assert coordinators.rows() == {"a": rounds + 1, "b": rounds + 1}
    coordinators.advance(Partition.LOADED)
    coordinators.round()
    assert coordinators.rows() == {"a": 0, "b": 0}


def test_of_a_coordinator_that_has_loaded_one_partition_and_not_seen_another_only_those_groups_are_fresh() -> None:
    coordinators = sampled("a", "b")
    coordinators.state[coordinators.partition("a")] = Partition.UNSEEN
    coordinators.round()
    assert coordinators.rows() == {"a": 1, "b": 0}


def test_a_broker_that_is_in_no_view_while_it_starts_has_its_groups_when_it_is_back() -> None:
    coordinators = Coordinators("a", "b")
    coordinators.leader = dict.fromkeys(range(PARTITIONS), TWO)
    coordinators.round()
    coordinators.view = WITHOUT_TWO
    coordinators.round()
    coordinators.view = VIEW
    coordinators.restart(TWO)
    coordinators.round()
    assert coordinators.rows() == {"a": 2, "b": 2}


def test_groups_that_move_to_another_coordinator_are_in_the_table_all_the_time() -> None:
    coordinators = sampled("a", "b")
    coordinators.leader = dict.fromkeys(range(PARTITIONS), TWO)
    ages = []
    for state in (Partition.UNSEEN, Partition.LOADING, Partition.LOADED):
        coordinators.advance(state)
        coordinators.round()
        ages.append(coordinators.rows())
    assert ages == [{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 0, "b": 0}]
    coordinators.round()
    assert coordinators.rows() == {"a": 0, "b": 0}, "the one that had them keeps nothing any more"


@pytest.mark.parametrize("left", [{"b"}, set[str]()])
def test_groups_that_were_deleted_or_whose_offsets_expired_are_gone_at_once(left: set[str]) -> None:
    coordinators = sampled("a", "b")
    coordinators.groups = left
    coordinators.round()
    assert coordinators.rows() == dict.fromkeys(left, 0)
    coordinators.groups = {"a"}
    coordinators.round()
    assert coordinators.rows() == {"a": 0}, "and may come back"


@pytest.mark.parametrize(
    ("left", "ended"),
    [({"orders": {0: 8, 1: 7}}, []), ({"orders": {1: 7}}, ["a"]), ({}, ["a"]), ({"orders": {0: 7, 1: 7, 2: 7}}, [])],
)
def test_only_what_was_deleted_is_said_to_have_ended(left: dict[str, dict[int, int]], ended: list[str]) -> None:
    """Not what a coordinator does not list, refuses or may hide: a topic that is not visible."""
    coordinators = Coordinators("a", "b")
    coordinators.offsets = {"a": {"orders": {0: 7, 1: 7}}, "b": {"hidden": {0: 7, 1: 7}, "orders": {0: 1}}}
    coordinators.round()
    coordinators.restart(ONE)
    coordinators.round()
    coordinators.advance(Partition.LOADED)
    coordinators.refused = {"a"}
    coordinators.round()
    assert coordinators.ended == []
    coordinators.refused, coordinators.offsets = set(), {"a": left, "b": {"orders": {0: 1}}}
    coordinators.round()
    coordinators.round()
    assert coordinators.ended == ended
    coordinators.groups = {"b"}
    coordinators.round()
    assert coordinators.ended == [*ended, "a"]


def test_a_group_that_is_deleted_while_it_moves_is_gone_once_the_new_coordinator_says_so() -> None:
    coordinators = sampled("a", "b")
    coordinators.leader = dict.fromkeys(range(PARTITIONS), TWO)
    coordinators.advance(Partition.UNSEEN)
    coordinators.groups = {"b"}
    coordinators.round()
    assert coordinators.rows() == {"a": 1, "b": 1}
    coordinators.advance(Partition.LOADED)
    coordinators.round()
    coordinators.round()
    assert coordinators.rows() == {"b": 0}


def test_a_broker_that_had_no_group_is_believed_and_asked_for_none() -> None:
    coordinators = Coordinators()
    coordinators.round()
    coordinators.round()
    assert coordinators.rows() == {}
    assert coordinators.kind.is_group("a") is False


def test_a_group_that_may_be_described_no_longer_grows_old_and_is_forgotten() -> None:
    coordinators = sampled("a", "b")
    coordinators.denied = {"a"}
    coordinators.round()
    assert coordinators.rows() == {"a": 1, "b": 0}
    for _ in range(ROUNDS_OF_GROUPS * SECOND // ROUND + 1):
        coordinators.round()
    assert coordinators.rows() == {"b": 0}
    assert not coordinators.kind.is_group("a")


def test_groups_that_a_coordinator_is_late_with_keep_their_positions_and_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "MOST_GROUPS", 1)
    coordinators = sampled("a", "b", "c")
    coordinators.late = {"b", "c"}
    coordinators.round()
    assert coordinators.rows() == {"a": 0, "b": 1, "c": 1}
    groups = {row["group"]: row for row in coordinators.tables[BrokerGroupsObserved].rows.to_pylist()}
    assert {name: row["is_unread"] for name, row in groups.items()} == {"a": None, "b": True, "c": True}
    coordinators.late, coordinators.groups = {"b"}, {"a", "b"}
    coordinators.round()
    assert coordinators.rows() == {"a": 1, "b": 2, "c": 2}, "the late ones are asked for first, in vain"
    coordinators.round()
    assert coordinators.rows() == {"a": 0, "b": 3}, "then the others are; and what is late is listed: c is not"
    coordinators.late = set()
    coordinators.round()
    assert coordinators.rows() == {"a": 0, "b": 0}


def test_groups_whose_commits_a_coordinator_refuses_keep_their_positions() -> None:
    coordinators = sampled("a", "b")
    coordinators.refused = {"a"}
    coordinators.round()
    assert coordinators.rows() == {"a": 1, "b": 0}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("restart"), st.sampled_from([ONE, TWO])),
        st.tuples(st.just("move"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("load"), st.integers(0, PARTITIONS - 1)),
        st.tuples(st.just("delete"), st.sampled_from("abcd")),
        st.tuples(st.just("commit"), st.sampled_from("abcd")),
        st.tuples(st.just("silent"), st.sampled_from([ONE, TWO])),
        st.tuples(st.just("round"), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=examples(25))
@given(STEPS)
def test_no_group_that_is_there_leaves_the_table_and_none_that_is_gone_stays(steps: list[tuple[str, Any]]) -> None:
    coordinators, shown = sampled("a", "b", "c"), set("abc")
    for step, about in steps:
        apply(coordinators, step, about)
        if step in {"round", "silent"}:
            coordinators.round(silent=(about,) if step == "silent" else ())
            shown = (shown | coordinators.rows().keys()) & coordinators.groups
            assert shown <= coordinators.rows().keys()
        elif step == "delete":
            shown.discard(about)
    coordinators.advance(Partition.LOADED)
    for _ in range(3):
        coordinators.round()
    assert coordinators.rows() == dict.fromkeys(coordinators.groups, 0)


def apply(coordinators: Coordinators, step: str, about: Any) -> None:
    if step == "restart":
        coordinators.restart(about)
    elif step == "move":
        coordinators.leader[about] = TWO if coordinators.leader[about] == ONE else ONE
        coordinators.state[about] = Partition.UNSEEN
    elif step == "load":
        next_state = {Partition.UNSEEN: Partition.LOADING, Partition.LOADING: Partition.LOADED}
        coordinators.state[about] = next_state.get(coordinators.state[about], Partition.LOADED)
    elif step == "delete":
        coordinators.groups.discard(about)
    elif step == "commit":
        coordinators.groups.add(about)
