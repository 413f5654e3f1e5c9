"""Whose answers count as those of the leader, and of which moment: nothing makes the lag of a follower too large."""

from __future__ import annotations

from typing import Any

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.samples import ReplicaOffsetsObserved
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.offset_messages import ListedOffsets
from streaming.sources.samples.directories import KIND as DIRECTORIES
from streaming.sources.samples.directories import DirectoriesKind, Directory
from streaming.sources.samples.kind import BrokerAnswer
from streaming.sources.samples.offsets import FOLLOWERS, LEADERS, ROUND_MICROS, OffsetsKind, Positions
from tests.blocks import ENVELOPE, singly

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
PERIOD = Micros(10_000_000)


def view_of(leader: BrokerId, topic_id: str = "id") -> ClusterView:
    part = PartitionView((ONE, TWO, THREE), (ONE, TWO, THREE), leader)
    addresses = {broker: ("h", int(broker)) for broker in (ONE, TWO, THREE)}
    return ClusterView(ClusterId("c"), 1, addresses, {"orders": {0: part}}, {"orders": TopicId(topic_id)})


class Asked:
    """A kind that asks, and brokers that answer what a test says."""

    def __init__(self) -> None:
        self.directories = DirectoriesKind(PERIOD)
        self.kind = OffsetsKind(PERIOD, self.directories)
        self.works: dict[tuple[str, BrokerId], Any] = {}

    def ask(self, moment: int, view: ClusterView) -> set[tuple[str, BrokerId]]:
        self.works = {}

        def ask(kind: str, broker: BrokerId, work: Any) -> bool:
            self.works[kind, broker] = work
            return True

        self.kind.ask(view, ask, Micros(moment))
        return {*self.works}

    def leads(
        self, broker: BrokerId, view: ClusterView, end: int, high_watermark: int | None, start: int | None = 0
    ) -> Any:
        """A broker answers as a leader; without a start it is none any more."""
        said = {"log_start_offset": start, **dict.fromkeys(("high_watermark", "last_stable_offset"), high_watermark)}
        fields = {
            name: ListedOffsets({"orders": {} if offset is None else {0: offset}})
            for name, offset in (said | {"log_end_offset": end}).items()
        }
        positions = Positions(view.topic_ids, fields)
        return self._row(LEADERS, broker, view, positions)

    def follows(self, broker: BrokerId, view: ClusterView, end: int, work: Any) -> Any:
        """A follower answers a question, with what that took along."""
        positions = Positions(
            view.topic_ids, {"log_end_offset": ListedOffsets({"orders": {0: end}})}, work.keywords["leader_ends"]
        )
        return self._row(FOLLOWERS, broker, view, positions)

    def _row(self, kind: str, broker: BrokerId, view: ClusterView, positions: Positions) -> ReplicaOffsetsObserved:
        shown = self.kind.shown(view, BrokerAnswer(kind, broker, Micros(1), positions), ENVELOPE)
        (row,) = singly(shown.observations)
        assert isinstance(row, ReplicaOffsetsObserved)
        return row


def test_of_a_broker_that_leads_nothing_any_more_no_positions_are_left_when_the_leader_dies() -> None:
    asked, before, after = Asked(), view_of(ONE), view_of(TWO)
    asked.ask(1, before)
    asked.leads(ONE, before, 8, 8)
    assert asked.kind.positions(before.topic_ids)["high_watermark"] == {"orders": {0: 8}}
    asked.ask(1 + ROUND_MICROS, before)
    assert asked.ask(1 + PERIOD, after) == {(LEADERS, TWO)}
    assert asked.kind.positions(after.topic_ids)["high_watermark"] == {}


def test_who_does_not_lead_any_more_does_not_say_where_the_log_of_the_leader_ends() -> None:
    asked, view = Asked(), view_of(ONE)
    asked.ask(1, view)
    row = asked.leads(ONE, view, 20, None, None)  # the last records are lost: the new leader never had them
    assert (row.log_end_offset, row.leader_log_end_offset, row.high_watermark) == (20, None, None)
    asked.ask(2, view)
    assert asked.follows(TWO, view, 12, asked.works[FOLLOWERS, TWO]).leader_log_end_offset is None


def test_a_new_leader_without_a_high_watermark_of_its_own_says_where_its_log_ends() -> None:
    asked, view = Asked(), view_of(ONE)
    asked.ask(1, view)
    assert asked.leads(ONE, view, 20, None).leader_log_end_offset == 20
    asked.ask(2, view)
    assert asked.follows(TWO, view, 12, asked.works[FOLLOWERS, TWO]).leader_log_end_offset == 20


def test_a_leader_that_answers_after_its_followers_were_asked_makes_them_lag_by_nothing() -> None:
    asked, view = Asked(), view_of(ONE)
    asked.ask(1, view)
    asked.ask(1 + ROUND_MICROS, view)
    first = dict(asked.works)
    asked.leads(ONE, view, 30, 30)  # late
    assert asked.follows(TWO, view, 10, first[FOLLOWERS, TWO]).leader_log_end_offset is None


def test_a_follower_that_answers_in_the_next_round_is_compared_with_the_leader_of_its_own() -> None:
    asked, view = Asked(), view_of(ONE)
    asked.ask(1, view)
    asked.leads(ONE, view, 10, 10)
    asked.ask(2, view)
    first = dict(asked.works)
    asked.ask(1 + PERIOD, view)
    asked.leads(ONE, view, 30, 30)
    assert asked.follows(TWO, view, 10, first[FOLLOWERS, TWO]).leader_log_end_offset == 10


def test_a_topic_that_was_created_again_has_not_the_size_and_the_directory_of_the_one_before() -> None:
    asked, before, after = Asked(), view_of(ONE), view_of(ONE, "another")
    lies = (Directory("/data", 0, 50, {"orders": {0: 50}}),)
    asked.directories.shown(before, BrokerAnswer(DIRECTORIES, ONE, Micros(1), lies), ENVELOPE)
    for view, expected in ((before, (50, "/data")), (after, (None, None))):
        asked.ask(1 + PERIOD, view)
        row = asked.leads(ONE, view, 8, 8)
        assert (row.size_bytes, row.log_dir) == expected
        asked.ask(2 + PERIOD, view)


def test_of_a_directory_that_cannot_be_used_it_is_unknown_what_lies_in_it() -> None:
    answer = BrokerAnswer(DIRECTORIES, ONE, Micros(1), (Directory("/data", 56, 0, {}),))
    (row,) = DirectoriesKind(PERIOD).shown(view_of(ONE), answer, ENVELOPE).observations
    assert (row.is_online, row.hosted_replicas, row.replica_bytes) == (False, None, None)  # type: ignore[attr-defined]


def test_a_directory_that_a_broker_cannot_describe_for_now_is_not_called_offline() -> None:
    found = (Directory("/data", -1, 0, {}), Directory("/more", 0, 0, {}))
    shown = DirectoriesKind(PERIOD).shown(view_of(ONE), BrokerAnswer(DIRECTORIES, ONE, Micros(1), found), ENVELOPE)
    assert [row.log_dir for row in shown.observations] == ["/more"]  # type: ignore[attr-defined]
    assert str(shown.refusal).startswith("broker 1 cannot describe its log directory /data (error -1), so nothing is")
