"""A follower alone: what it asks, which answers it takes, and whether its leader holds it for caught up."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.broker.following import FollowedPartitions
from streaming.model.broker.leader import RemoteReplica, for_new_leader, for_reelected_leader, is_caught_up
from streaming.model.broker.purgatory import Purgatory
from streaming.model.constants import Constants, Error, Switches, Truncation
from streaming.model.messages.network import Outbox
from streaming.model.messages.replication import (
    EpochEndOffset,
    FetchedPartition,
    FetchRequest,
    FetchResponse,
    OffsetsForLeaderEpochRequest,
    OffsetsForLeaderEpochResponse,
)
from streaming.model.storage.disk import Disk
from streaming.model.storage.log import Log

KEY = TopicPartition(TopicId("t"), 0)
OLD, NEW = BrokerId(1), BrokerId(2)


class Follower:
    """Broker 3 with five records of epoch 0, and a checkpointed high watermark of 3."""

    def __init__(self, **switches: Any) -> None:
        disk, self.outbox = Disk(), Outbox()
        self.replica = disk.replica(KEY)
        self.replica.log.append_fetched(5, ((0, 0),))
        self.replica.move_high_watermark(3)
        constants = Constants(switches=Switches(**switches))
        self.following = FollowedPartitions(BrokerId(3), constants, disk.replicas, Purgatory(self.outbox), self.outbox)

    @property
    def log(self) -> Log:
        return self.replica.log

    def follow(self, leader: BrokerId, epoch: int) -> Any:
        """Follow, and give the request that follows from it."""
        self.following.follow(KEY, leader, epoch)
        return self.asks()

    def asks(self) -> Any:
        self.following.send()
        messages, self.outbox.messages = self.outbox.messages, []
        return messages[-1][1] if messages else None

    def gets(self, leader: BrokerId, request: FetchRequest, epoch: int, end: int = 7) -> None:
        answer = FetchedPartition(KEY, epoch, fetch_offset=5, end_offset=end, epochs=((epoch, 5),))
        self.following.fetched(FetchResponse(request.request_id, leader, (answer,)))


@pytest.mark.parametrize(
    ("truncation", "end", "states_epoch"), [(Truncation.HIGH_WATERMARK, 3, -1), (Truncation.FETCH, 5, 0)]
)
def test_a_follower_fetches_from_where_its_log_ends(truncation: Truncation, end: int, states_epoch: int) -> None:
    follower = Follower(truncation=truncation)
    request = follower.follow(NEW, 1)
    assert [it[1:] for it in request.partitions] == [(1, end, states_epoch)]
    assert follower.log.end == end


@pytest.mark.parametrize("truncation", [Truncation.LEADER_EPOCH_V0, Truncation.LEADER_EPOCH])
def test_a_follower_asks_where_its_last_epoch_ended_before_it_fetches(truncation: Truncation) -> None:
    follower = Follower(truncation=truncation)
    question = follower.follow(NEW, 1)
    assert isinstance(question, OffsetsForLeaderEpochRequest)
    assert [it[1:] for it in question.partitions] == [(1, 0)]
    answer = EpochEndOffset(KEY, 1, epoch=0, end_offset=4)
    follower.following.epochs_ended(OffsetsForLeaderEpochResponse(question.header.correlation_id, NEW, (answer,)))
    assert [it[1:] for it in follower.asks().partitions] == [(1, 4, -1)]


def test_an_answer_about_epochs_is_void_once_the_leader_epoch_has_changed() -> None:
    follower = Follower(truncation=Truncation.LEADER_EPOCH)
    question = follower.follow(NEW, 1)
    follower.following.follow(KEY, NEW, 2)
    answer = EpochEndOffset(KEY, 1, epoch=0, end_offset=0)
    follower.following.epochs_ended(OffsetsForLeaderEpochResponse(question.header.correlation_id, NEW, (answer,)))
    assert follower.log.end == 5
    assert [it[1:] for it in follower.asks().partitions] == [(2, 0)]


def test_an_empty_log_has_nothing_to_ask() -> None:
    follower = Follower(truncation=Truncation.LEADER_EPOCH)
    follower.log.restart_at(0)
    assert isinstance(follower.follow(NEW, 1), FetchRequest)


@pytest.mark.parametrize(("discard_stale_fetches", "end"), [(True, 5), (False, 7)])
@pytest.mark.parametrize("leader_now", [NEW, OLD])
def test_an_answer_of_the_former_leader_or_epoch_is_void(
    leader_now: BrokerId, *, discard_stale_fetches: bool, end: int
) -> None:
    follower = Follower(discard_stale_fetches=discard_stale_fetches)
    request = follower.follow(OLD, 0)
    follower.following.follow(KEY, leader_now, 1)
    follower.gets(OLD, request, epoch=0)
    assert follower.log.end == end


def test_an_answer_to_another_position_is_void_in_any_case() -> None:
    follower = Follower(discard_stale_fetches=False)
    request = follower.follow(OLD, 0)
    follower.log.truncate(2)
    follower.gets(OLD, request, epoch=0)
    assert follower.log.end == 2


@pytest.mark.parametrize(("epoch", "restarts"), [(0, False), (1, False), (2, True)])
def test_only_a_higher_leader_epoch_restarts_a_fetch(epoch: int, *, restarts: bool) -> None:
    for only_higher in (True, False):
        follower = Follower(truncation=Truncation.HIGH_WATERMARK, restart_fetchers_on_higher_epoch_only=only_higher)
        request = follower.follow(NEW, 1)
        answer = FetchedPartition(KEY, 1, fetch_offset=3, end_offset=9, epochs=((1, 3),), high_watermark=4)
        follower.following.fetched(FetchResponse(request.request_id, NEW, (answer,)))
        follower.following.follow(KEY, NEW, epoch)
        assert follower.log.end == (4 if restarts or not only_higher else 9)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        pytest.param(0, 4, (0, 4), id="the leader's log is shorter: cut"),
        pytest.param(8, 9, (8, 8), id="it starts beyond this log: start over there"),
        pytest.param(2, 9, (0, 5), id="neither: keep everything"),
    ],
)
def test_a_follower_comes_back_into_range(start: int, end: int, expected: tuple[int, int]) -> None:
    follower = Follower()
    request = follower.follow(NEW, 1)
    answer = FetchedPartition(KEY, 1, Error.OFFSET_OUT_OF_RANGE, end_offset=end, log_start_offset=start)
    follower.following.fetched(FetchResponse(request.request_id, NEW, (answer,)))
    assert expected == (follower.log.start, follower.log.end)
    assert [it.fetch_offset for it in follower.asks().partitions] == [expected[1]]


# ------------------------------------------------------------------ as its leader sees it (G23)


def test_the_window_is_inclusive() -> None:
    remote = RemoteReplica(log_end_offset=5, last_caught_up_ms=1_000)
    assert is_caught_up(remote, 6, 31_000, 30_000)
    assert not is_caught_up(remote, 6, 31_001, 30_000)


def test_a_follower_at_the_log_end_is_caught_up_however_long_ago_it_fetched() -> None:
    assert is_caught_up(RemoteReplica(log_end_offset=6), 6, 10**9, 30_000)


def test_a_new_term_gives_isr_members_one_window_and_forgets_positions() -> None:
    assert (
        for_new_leader(in_isr=True, now=500).last_caught_up_ms,
        for_new_leader(in_isr=True, now=500).log_end_offset,
    ) == (500, -1)
    assert for_new_leader(in_isr=False, now=500).last_caught_up_ms == 0


def test_a_reelected_leader_keeps_positions() -> None:
    remote = RemoteReplica(10, 10, 100, 100, 7)
    assert RemoteReplica(10, 12, 500, 500, 7) == for_reelected_leader(remote, in_isr=True, start_offset=12, now=500)
    assert RemoteReplica(10, 10, 0, 0, 7) == for_reelected_leader(remote, in_isr=False, start_offset=12, now=500)
