"""Where a group stands still it is proven that something can be read, or unknown; nothing is asked elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, Micros, TopicId
from streaming.sources.permissions import PermissionDenied
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.samples.groups import readable as module
from streaming.sources.samples.groups.blocks import CoordinatorAnswer
from streaming.sources.samples.groups.described import DescribedGroup
from streaming.sources.samples.groups.readable import COORDINATORS, LEADERS, STANDS, ReadableKind, StandingGroups
from streaming.sources.samples.kind import NEVER, BrokerAnswer
from streaming.sources.samples.transactions import ActiveProducer, ActiveProducers
from tests.blocks import ENVELOPE

SECOND = 1_000_000
ROUND = Micros(30 * SECOND)
ONE, TWO = BrokerId(1), BrokerId(2)
IDLE = ()


class Cluster:
    """Partition 0 of orders is led by broker 1, partition 1 by broker 2; a group stands somewhere in both."""

    def __init__(self, *, has_transactions: bool = True) -> None:
        internal = ["__consumer_offsets", *["__transaction_state"] * has_transactions]
        parts = {number: PartitionView((ONE, TWO), (ONE, TWO), leader) for number, leader in ((0, ONE), (1, TWO))}
        topics = dict.fromkeys(["orders", *internal], parts)
        ids = {name: TopicId(f"id of {name}") for name in topics}
        self.view: Any = ClusterView("c", 1, {ONE: ("h", 1), TWO: ("h", 2)}, topics, ids)  # type: ignore[arg-type]
        self.at = Micros(1_000_000 * SECOND)
        self.standing = StandingGroups()
        self.kind = ReadableKind(ROUND, self.standing)
        self.offsets, self.ends = {"g": {0: 10, 1: 10}}, {0: 10, 1: 10}
        self.held: dict[int, int] = {}
        self.producers: dict[int, tuple[ActiveProducer, ...] | None] = {0: IDLE, 1: IDLE}
        self.committed: dict[int, Micros] = {}
        self.denied: str | None = None
        self.asked: list[tuple[str, BrokerId]] = []
        self.refusals: list[Exception] = []

    def round(self, seconds: int = 30, **groups: Any) -> dict[str, dict[int, Any]]:
        """Sample the groups, then ask for proofs; return what is shown with the next sample, by field and partition."""
        self.at = Micros(self.at + seconds * SECOND)
        shown = self.sampled(**groups)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "active_producers", lambda _, asked: self.answered(asked))
            patch.setattr(module, "committed_transactions", self.ended)
            while self.kind.next_at <= self.at:
                asked = len(self.asked)
                self.kind.ask(self.view, self.ask, self.at)
                if len(self.asked) == asked:
                    break
        return shown

    def sampled(self, **more: Any) -> dict[str, dict[int, Any]]:
        answer = CoordinatorAnswer(
            {name: DescribedGroup("classic", "Stable") for name in self.offsets},
            committed={name: {"orders": of} for name, of in self.offsets.items()},
            positions={"log_start_offset": {"orders": dict.fromkeys(self.ends, 0)},
                       "high_watermark": {"orders": {**self.ends}},
                       "last_stable_offset": {"orders": self.ends | self.held}},
            positions_at=self.at,
        )  # fmt: skip
        shown = self.standing.with_proofs(replace(answer, **more), self.view.topic_ids, self.at).positions
        return {
            field: {number: value for number, value in shown[field].get("orders", {}).items() if value is not None}
            for field in ("readable_at", "is_transactional")
            if field in shown
        }

    def ask(self, kind: str, broker: BrokerId, work: Any) -> bool:
        self.asked.append((kind, broker))
        answer = BrokerAnswer(kind, broker, self.at, work(object()))
        refusal = self.kind.shown(self.view, answer, {**ENVELOPE, "collected_at": self.at}).refusal
        self.refusals += [] if refusal is None else [refusal]
        return True

    def answered(self, asked: dict[str, list[int]]) -> ActiveProducers:
        of = {(topic, number): self.producers[number] for topic, numbers in asked.items() for number in numbers}
        return ActiveProducers({place: some for place, some in of.items() if some is not None}, self.denied)

    def ended(self, _: Any, producers: list[int]) -> dict[int, Micros]:
        return {producer: self.committed[producer] for producer in producers if producer in self.committed}


def standing(grows: int = 5, **values: Any) -> Cluster:
    """The group has stood still in partition 0 since a moment ago, and in partition 1 it is at the end."""
    cluster = Cluster(**values)
    cluster.round()
    cluster.ends[0] += grows
    cluster.round()
    return cluster


def rounds(cluster: Cluster, seconds: int = 300) -> dict[str, dict[int, Any]]:
    for _ in range(seconds // 30):
        shown = cluster.round()
    return shown


transacts = partial(ActiveProducer, 7, 0)


def test_nothing_is_asked_while_every_group_is_at_the_end_or_moves() -> None:
    cluster = Cluster()
    for _ in range(30):
        cluster.round()
    assert (cluster.asked, cluster.kind.next_at) == ([], NEVER)
    for _ in range(30):
        cluster.ends[0] += 50
        cluster.offsets["g"][0] += 49
        assert cluster.round() == {}
    assert cluster.asked == []


def test_a_plain_partition_is_asked_for_once_and_what_is_there_can_be_read() -> None:
    cluster = standing()
    cluster.producers[0] = (ActiveProducer(3, 0, cluster.at, False, -1),)
    shown = rounds(cluster)
    assert cluster.asked == [(LEADERS, ONE)], "after a while, of its leader, and no one else"
    assert shown["is_transactional"] == {0: False}
    assert shown["readable_at"][0] >= cluster.at - 300 * SECOND + STANDS
    cluster.offsets["g"][0] = 12
    rounds(cluster)
    assert cluster.asked == [(LEADERS, ONE)] * 2, "where it stands now, something may be aborted"


@pytest.mark.parametrize(("grows", "is_proven"), [(0, False), (1, True)])
def test_of_producers_without_an_id_nothing_is_known_unless_more_came(grows: int, *, is_proven: bool) -> None:
    """The leader knows nobody: these may be markers of more than a day ago, but not what comes now."""
    cluster = standing()
    cluster.round()
    cluster.ends[0] += grows
    shown = rounds(cluster)
    assert (0 in shown.get("readable_at", {})) is is_proven


def test_a_cluster_where_nobody_ever_wrote_a_transaction_is_not_asked() -> None:
    cluster = standing(has_transactions=False)
    shown = rounds(cluster)
    assert (cluster.asked, shown["is_transactional"]) == ([], {0: False})
    assert shown["readable_at"][0] >= cluster.at - 300 * SECOND + STANDS


def test_aborted_transactions_are_no_reason_and_a_committed_one_is() -> None:
    cluster = standing()
    cluster.producers[0] = (transacts(cluster.at, True, -1),)
    shown = rounds(cluster, 900)
    assert shown == {"readable_at": {}, "is_transactional": {0: True}}
    assert {each for each in cluster.asked if each[0] == COORDINATORS} == {(COORDINATORS, ONE), (COORDINATORS, TWO)}
    began = Micros(cluster.at + SECOND)
    cluster.producers[0] = (transacts(Micros(began + SECOND), True, -1),)
    cluster.committed[7] = began
    assert rounds(cluster, 60)["readable_at"] == {0: began}
    before = len(cluster.asked)
    cluster.committed.clear()
    assert rounds(cluster, 300)["readable_at"] == {0: began}, "an aborted one later changes nothing"
    assert len(cluster.asked) == before


@pytest.mark.parametrize("what", ["elsewhere", "open again", "another producer", "its leader is silent"])
def test_a_transaction_that_was_committed_elsewhere_proves_nothing_here(what: str) -> None:
    """It began after the newest marker that this partition has of the producer."""
    cluster = standing()
    ended, began = cluster.at, Micros(cluster.at + 1)
    cluster.committed[7 if what != "another producer" else 8] = began if what == "elsewhere" else ended
    cluster.producers[0] = {
        "open again": (transacts(Micros(began + SECOND), True, 12),),
        "its leader is silent": None,
    }.get(what, (transacts(ended, True, -1),))
    assert rounds(cluster, 600).get("readable_at", {}) == {}


def test_what_is_committed_behind_an_open_transaction_is_proven_once_that_has_ended() -> None:
    """Others write and commit while one stays open: none of it is below the last stable offset."""
    cluster = standing()
    cluster.held[0] = 15
    for _ in range(30):
        cluster.ends[0] += 3
        cluster.committed[7] = Micros(cluster.at + SECOND)
        opened = ActiveProducer(8, 0, cluster.at, False, 15)
        cluster.producers[0] = (transacts(Micros(cluster.at + 2 * SECOND), True, -1), opened)
        assert cluster.round().get("readable_at", {}) == {}
    cluster.held[0] = 20
    assert rounds(cluster)["readable_at"] == {}, "the next one is open"
    cluster.held[0] = cluster.ends[0] - 1
    assert cluster.round()["readable_at"].keys() == {0}


def test_without_the_permission_all_stays_unknown_and_it_is_asked_for_now_and_then() -> None:
    cluster = standing()
    cluster.producers[0], cluster.denied = None, "orders"
    shown = rounds(cluster, 3_600)
    assert shown == {"readable_at": {}, "is_transactional": {}}
    assert len(cluster.asked) <= 3_600 // 600 + 1
    assert isinstance(cluster.refusals[0], PermissionDenied)


def test_groups_that_are_gone_and_topics_that_were_created_again_are_forgotten() -> None:
    cluster = standing()
    cluster.offsets = {}
    cluster.sampled(gone=frozenset("g"))
    assert not cluster.standing
    cluster = standing()
    cluster.producers[0] = (ActiveProducer(3, 0, cluster.at, False, -1),)
    assert rounds(cluster)["is_transactional"] == {0: False}
    cluster.view = replace(cluster.view, topic_ids={**cluster.view.topic_ids, "orders": TopicId("new")})
    assert cluster.round() == {}, "what was proven of the one before"


def test_a_group_that_nobody_reports_any_more_is_asked_for_no_longer() -> None:
    cluster = standing()
    cluster.offsets = {}
    rounds(cluster, 2 * 3_600)
    asked = len(cluster.asked)
    rounds(cluster)
    assert (len(cluster.asked), cluster.kind.next_at) == (asked, NEVER)
