"""What is said of a group in a partition, against the truth that changes between any two readings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.group_positions import (
    MOVING,
    REMEMBERED,
    RESTARTING,
    RESTS,
    GroupPosition,
    GroupReadings,
    position_after,
)
from streaming.contracts.group_readers import (
    COMMITTING,
    LOSING,
    STANDING,
    GroupOffsetsRow,
    PartitionReader,
    is_beyond,
    is_losing,
    is_losing_still,
    is_stuck,
    is_stuck_still,
    reader_of,
    retention_used,
)
from streaming.contracts.identifiers import Micros

SECOND = 1_000_000
ROUND = 10 * SECOND


class Partition:
    """A partition, a group in it, and what isrwatch reads of both, one step after the other.

    ``readable_at`` is what its leader proves: of a plain partition, as each is at first, always.
    """

    def __init__(
        self, end: int = 0, committed: int | None = None, member: str | None = None, topic: str = "orders"
    ) -> None:
        self.topic, self.start, self.end, self.open = topic, 0, end, 0
        self.committed, self.member, self.members, self.state = committed, member, 1, "Stable"
        self.start_offset: int | None = None
        self.is_plain, self.readable_at, self.is_transactional = True, None, None
        self.at = Micros(1_000 * ROUND)
        self.readings: GroupReadings | None = None
        self.position = GroupPosition()

    def set(self, **values: Any) -> Partition:
        vars(self).update(values)
        return self

    def sample(self, *, between: Any = lambda: None, **unknown: None) -> GroupOffsetsRow:
        """The leader is asked, something happens, the coordinator is asked; None is what one does not answer."""
        self.at = Micros(self.at + ROUND)
        positions = {"log_start_offset": self.start, "high_watermark": self.end,
                     "last_stable_offset": self.end - self.open, "positions_at": Micros(self.at - 1)}  # fmt: skip
        between()
        group = {"committed_offset": self.committed, "start_offset": self.start_offset, "member": self.member,
                 "group_state": self.state, "members": self.members}  # fmt: skip
        values: dict[str, Any] = positions | group | unknown
        share = None if self.start_offset is None else self.end - self.start_offset
        proof = {"readable_at": self.at if self.is_plain else self.readable_at,
                 "is_transactional": False if self.is_plain else self.is_transactional}  # fmt: skip
        now = GroupReadings(at=self.at, source="samples:a", share_lag=share, **values, **proof)
        before = None if self.readings is None else (self.readings, self.position)
        self.readings, self.position = now, position_after(before, now)
        columns = now._asdict() | self.position._asdict()
        rest = {"group": "g", "topic": self.topic, "partition": 0, "lag_seconds": None}
        return GroupOffsetsRow.of(rest | columns | {"collected_at": self.at})

    def sampled(self, micros: int, each: Any = lambda: None) -> GroupOffsetsRow:
        """Rounds for so long, each after something happened; the row of the last one."""
        for _ in range(micros // ROUND + 1):
            each()
            row = self.sample()
        return row


# The truth, between any two readings.

STEPS = st.lists(
    st.tuples(
        st.sampled_from(("append", "read", "delete", "truncate", "leader", "coordinator")), st.integers(1, 60_000)
    ),
    max_size=40,
)


@given(STEPS)
def test_what_is_beyond_and_what_is_lost_was_so_at_some_moment(steps: list[tuple[str, int]]) -> None:
    """The group reads all, some or nothing; the log is deleted and truncated at any time, also between the readings."""
    start = end = committed = read = 0
    lost = most_beyond = 0
    positions, at, before = (0, 0, 0), 0, None
    for step, (kind, number) in enumerate(steps):
        if kind == "append":
            end += number
        elif kind == "read":
            read = committed = max(committed, start, min(end, committed + number))
        elif kind == "delete":
            gone = min(end, start + number)
            lost += max(0, gone - max(committed, start))
            start = max(start, gone)
        elif kind == "truncate":
            end = max(start, end - number)
        elif kind == "leader":
            positions, at = (start, end, end), step
        else:
            log_start, high_watermark, stable = positions
            now = GroupReadings(at=Micros(step), source="a", positions_at=Micros(at), committed_offset=committed,
                                log_start_offset=log_start, high_watermark=high_watermark,
                                last_stable_offset=stable)  # fmt: skip
            before = now, position_after(before, now)
            found = before[1]
            assert found.lag is not None
            assert 0 <= found.lag <= max(0, high_watermark - log_start)
            assert (found.records_lost or 0) <= lost
            assert (found.beyond or 0) <= most_beyond
            assert not (found.beyond and found.lag)
        most_beyond = max(most_beyond, committed - end)
    assert read == committed


@given(st.lists(st.integers(1, 500_000), min_size=2, max_size=30), st.booleans())
def test_a_group_that_reads_50_000_records_a_second_is_never_beyond_or_losing(
    written: list[int],
    is_deleted: bool,  # noqa: FBT001 - of Hypothesis
) -> None:
    """It commits between the two readings what is written between them, and what it has read is deleted."""
    partition = Partition(member="app", committed=0)

    def reads() -> None:
        partition.end += 50_000
        partition.committed = partition.end

    for number in written:
        partition.end += number
        partition.start = partition.committed if is_deleted else 0
        row = partition.sample(between=reads)
        assert (row.beyond in {0, None}, row.records_lost, row.lag) == (True, 0, 0)
        assert not is_beyond(row)
        assert not is_losing(row)


def test_lag_is_never_larger_than_what_the_leader_had_when_it_was_asked() -> None:
    partition = Partition(end=100, committed=40)
    assert partition.sample(between=lambda: partition.set(committed=150, end=150)).lag == 0
    assert partition.sample().lag == 0


# Rows of the trials.


def test_a_drained_topic_has_no_lag_and_what_was_lost_there_is_news_for_a_while_only() -> None:
    partition = Partition(end=100, committed=10, member="app")
    partition.sample()
    partition.set(start=100)
    row = partition.sample()
    assert (row.lag, row.records_lost, row.lost_at) == (0, 90, partition.at)
    assert is_losing(row)
    row = partition.sampled(LOSING + ROUND)
    assert (row.lag, row.records_lost) == (0, 90)
    assert not is_losing(row)
    assert not is_stuck(row)


def test_a_loss_is_news_for_a_while_though_the_group_goes_on_and_the_next_one_is_added() -> None:
    """A consumer that is reset goes on behind the loss within seconds; losses that follow are one with it."""
    partition = Partition(end=200, committed=10, member="app")
    partition.sample()
    assert is_losing(partition.set(start=50).sample())
    row = partition.set(committed=60).sample()
    assert (row.records_lost, is_losing(row)) == (40, True)
    row = partition.set(start=70).sample()
    assert (row.records_lost, row.lost_at, is_losing(row)) == (50, partition.at, True)
    row = partition.set(committed=200).sampled(LOSING)
    assert (row.records_lost, is_losing(row)) == (50, False)


def test_what_was_lost_before_a_silence_is_not_over_because_it_is_forgotten() -> None:
    partition = Partition(end=200, committed=10, member="app")
    partition.sample()
    lost_at = partition.set(start=50).sample().collected_at
    partition.at = Micros(partition.at + MOVING)
    row = partition.sample()
    assert (row.lost_at, is_losing_still(row)) == (lost_at, True)
    row = partition.sampled(lost_at + LOSING + ROUND - partition.at)
    assert (row.lost_at, is_losing_still(row)) == (lost_at, False)


def test_what_was_lost_before_the_position_was_forgotten_is_unknown_for_a_while() -> None:
    partition = Partition(end=200, committed=10, member="app")
    partition.sample()
    assert is_losing_still(partition.set(start=50).sample())
    partition.at = Micros(partition.at + REMEMBERED)
    assert is_losing_still(partition.sample()) is None
    assert is_losing_still(partition.sampled(LOSING - ROUND)) is None
    assert is_losing_still(partition.sampled(ROUND)) is False
    assert is_losing_still(partition.set(start=60).sample())
    partition.set(member=None, members=0, state="Empty").sampled(RESTARTING)
    assert is_losing_still(partition.sample()) is None


def test_what_was_lost_before_the_first_sample_has_no_time_and_what_is_set_back_is_not_lost() -> None:
    row = Partition(end=200, committed=10, member="app").set(start=50).sample()
    assert (row.records_lost, row.lost_at, is_losing(row)) == (40, None, False)
    partition = Partition(end=200, committed=150, member="app").set(start=50)
    partition.sample()
    row = partition.set(committed=0).sample()
    assert (row.records_lost, row.lag) == (0, 150)


def test_a_loss_while_the_leader_does_not_answer_is_shown_with_its_next_answer() -> None:
    partition = Partition(end=200, committed=10, member="app")
    partition.sample()
    unknown = dict.fromkeys(("log_start_offset", "high_watermark", "last_stable_offset"))
    assert partition.set(start=50).sample(**unknown).records_lost == 0
    row = partition.sample()
    assert (row.records_lost, row.lost_at) == (40, partition.at)


def test_a_loss_is_not_over_while_the_leader_does_not_say_whether_more_was_lost() -> None:
    partition = Partition(end=200, committed=10, member="app")
    partition.sample()
    partition.set(start=50).sample()
    partition.sampled(LOSING)
    unknown = dict.fromkeys(("log_start_offset", "high_watermark", "last_stable_offset"))
    assert is_losing_still(partition.sample(**unknown)) is None
    assert is_losing_still(partition.sample()) is False
    partition.sample(**unknown)
    assert is_losing_still(partition.set(start=60).sample()) is True


def test_a_group_that_stands_beyond_the_end_is_so_by_an_end_that_was_read_later() -> None:
    """AdminClient commits 1000 on a topic of two records, with or without a member."""
    partition = Partition(end=2, committed=1_000)
    assert partition.sample().beyond is None, "no end was read after the commit yet"
    row = partition.sample()
    assert (row.beyond, row.lag, is_beyond(row)) == (998, 0, True)
    assert partition.set(end=1_000).sample().beyond == 0
    assert partition.set(committed=7).sample().beyond == 0


def test_an_unclean_election_leaves_the_group_beyond_the_end_until_the_end_has_passed_it() -> None:
    partition = Partition(end=60, committed=60, member="app")
    assert partition.sample().beyond == 0
    assert partition.set(end=10).sample().beyond == 50
    assert partition.set(end=30).sample().beyond == 30
    assert partition.set(end=61).sample().beyond == 0


@pytest.mark.parametrize("source", ["samples:a", "samples:b"])
def test_two_collectors_have_two_clocks_which_order_nothing(source: str) -> None:
    early = GroupReadings(at=Micros(5), source="samples:a", committed_offset=9, high_watermark=9, log_start_offset=0)
    later = early._replace(at=Micros(20), positions_at=Micros(10), high_watermark=3, source=source)
    assert position_after((early, GroupPosition()), later).beyond == (6 if source == "samples:a" else None)


def test_a_topic_that_a_living_group_has_left_is_read_by_nobody_at_once() -> None:
    """It owns nothing there, in a stable group; its commit of a moment ago was its last one."""
    partition = Partition(end=20, committed=10, member="app")
    partition.sample()
    partition.set(committed=20).sample()
    row = partition.set(member=None, end=40).sample()
    assert reader_of(row) is PartitionReader.NONE
    partition.set(start=40)
    row = partition.sampled(STANDING + ROUND, lambda: partition.set(end=partition.end + 10))
    assert (is_stuck(row), is_losing(row), row.records_lost) == (False, False, 20)
    assert retention_used(row) is None


def test_a_group_between_two_assignments_still_owns_what_it_did() -> None:
    partition = Partition(end=20, committed=10, member="app")
    partition.sampled(STANDING)
    row = partition.set(member=None, state="PreparingRebalance").sample()
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.OWNER, True)


@pytest.mark.parametrize("state", ["PreparingRebalance", "Reconciling", "NotReady"])
def test_a_group_that_does_not_get_through_a_rebalance_is_stuck_and_loses(state: str) -> None:
    """One member works on a record for an hour, ``max.poll.interval.ms``; another one has joined, and waits for it."""
    partition = Partition(end=20, committed=10, member="app")
    partition.sample()
    row = partition.set(member=None, members=2, state=state).sampled(STANDING)
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.OWNER, True)
    assert is_losing(partition.set(start=15).sample())
    row = partition.set(state="Stable").sample()
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.NONE, False)


def test_a_topic_that_was_left_stays_left_in_a_rebalance() -> None:
    partition = Partition(end=20, committed=10, member="app")
    partition.sampled(STANDING)
    assert reader_of(partition.set(member=None).sample()) is PartitionReader.NONE
    row = partition.set(state="PreparingRebalance").sample()
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.NONE, False)


def test_an_application_that_was_stopped_for_long_does_not_read_while_it_joins() -> None:
    partition = Partition(end=20, committed=10, member="app")
    partition.sampled(STANDING)
    partition.set(member=None, members=0, state="Empty")
    assert reader_of(partition.sampled(RESTARTING - ROUND)) is PartitionReader.OWNER
    back = partition.set(members=1, state="PreparingRebalance").sample()
    assert reader_of(back) is PartitionReader.OWNER, "it was restarted"
    partition.set(members=0, state="Empty").sampled(RESTARTING)
    row = partition.set(members=1, state="PreparingRebalance").sample()
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.NONE, False)


def test_a_replay_is_not_stuck_and_a_pause_is() -> None:
    partition = Partition(end=2_000, committed=2_000, member="app")
    partition.sampled(STANDING * 2)
    partition.set(committed=0)
    assert not is_stuck(partition.sample())
    row = partition.sampled(STANDING * 2, lambda: partition.set(committed=(partition.committed or 0) + 3))
    assert not is_stuck(row)
    assert is_stuck(partition.sampled(STANDING))


def test_a_group_that_commits_each_half_hour_is_stuck_after_twice_as_long() -> None:
    """Flink with such a checkpoint, a batch of Spark; one that commits at once is stuck after a quarter, as before."""
    partition = Partition(end=20, committed=10, member="app")

    def is_written() -> None:
        partition.end += 10

    for _ in range(2):
        assert is_stuck(partition.sampled(2 * STANDING, is_written)), "once is no habit"
        assert not is_stuck(partition.set(committed=partition.end).sample())
    for _ in range(3):
        assert not is_stuck(partition.sampled(2 * STANDING, is_written))
        assert not is_stuck(partition.set(committed=partition.end).sample())
    partition.sampled(2 * STANDING, is_written)
    assert is_stuck(partition.sampled(2 * STANDING + 3 * ROUND, is_written))
    partition.set(committed=partition.end).sample()
    partition.sampled(STANDING, lambda: partition.set(end=partition.end + 10, committed=partition.end))
    assert is_stuck(partition.sampled(STANDING, is_written))


def test_a_record_that_arrives_after_hours_of_silence_does_not_make_a_group_stuck() -> None:
    partition = Partition(end=20, committed=20, member="app")
    partition.sampled(STANDING * 2)
    row = partition.set(end=30).sample()
    assert (row.standing_since, is_stuck(row)) == (partition.at, False)


def test_a_gap_in_the_answers_of_a_leader_neither_ends_nor_begins_a_standstill() -> None:
    partition = Partition(end=20, committed=10, member="app")
    since = partition.sample().standing_since
    unknown = dict.fromkeys(("log_start_offset", "high_watermark", "last_stable_offset"))
    row = partition.sample(**unknown)
    assert (row.standing_since, row.lag) == (since, None)
    partition.sampled(STANDING)
    assert is_stuck(partition.sample())
    assert is_stuck(partition.sample(**unknown)) is None


def test_nothing_that_cannot_be_read_makes_a_group_stand_still() -> None:
    """The marker of the last transaction; records behind an open one; one that was aborted, after one was seen open."""
    marker = Partition(end=2, committed=1, member="app")
    assert not is_stuck(marker.sampled(STANDING * 2))

    held = Partition(end=25, committed=5, member="app").set(open=20, is_plain=False)
    row = held.sampled(STANDING * 2)
    assert (row.stable_lag, row.lag, is_stuck(row)) == (0, 20, False)

    held.set(open=0)
    assert not is_stuck(held.sampled(STANDING * 2)), "all of it may be aborted"
    assert not is_stuck(held.sampled(STANDING, lambda: held.set(end=held.end + 2))), "whatever comes"
    row = held.set(readable_at=held.at).sample()
    assert not is_stuck(row), "a transaction was committed right now"
    assert is_stuck(held.sampled(STANDING)), "nobody has read it since"


def standing_group(**values: Any) -> Partition:
    """A group that commits record by record stands behind the last record that it has read, before a marker."""
    partition = Partition(end=2, committed=0, member="app").set(is_plain=False, **values)
    partition.sample()
    partition.set(committed=1).sample()
    return partition


@pytest.mark.parametrize("seen", [None, True], ids=["unseen", "its leader knows"])
def test_markers_and_aborted_records_of_short_transactions_make_nothing_stand_still(*, seen: bool | None) -> None:
    """Of several producers the markers come last; all records are aborted for half an hour. None is seen open."""
    markers = standing_group(is_transactional=seen)
    assert is_stuck(markers.set(end=6).sampled(STANDING * 2)) is None
    aborted = standing_group(is_transactional=seen)
    row = aborted.sampled(STANDING * 2, lambda: aborted.set(end=aborted.end + 3))
    assert is_stuck(row) is (None if seen else True), "where nobody could be asked, it is taken for records"


@pytest.mark.parametrize(
    ("after", "is_so"), [(-1, None), (4, None), (5, True)], ids=["before it moved", "clocks differ", "since"]
)
def test_a_committed_transaction_that_began_since_the_group_stands_is_a_reason(
    after: int, *, is_so: bool | None
) -> None:
    """The last records may be aborted ones, many of them."""
    partition = standing_group(is_transactional=True)
    partition.set(readable_at=Micros(partition.at + after * SECOND), end=5)
    partition.sampled(STANDING, lambda: partition.set(end=partition.end + 3))
    row = partition.set(readable_at=None).sample()
    assert is_stuck(row) is is_so, "it stays proven while its collector starts again"
    assert is_stuck(partition.set(committed=4).sample()) is False
    assert is_stuck(partition.sampled(STANDING + ROUND)) is None, "that was before the group moved"


def test_among_transactions_a_group_is_stuck_from_the_first_record_that_it_could_have_read() -> None:
    """Markers and aborted records come first; then a transaction is committed that was open for long, and another."""
    partition = standing_group(is_transactional=True)
    partition.set(end=5).sampled(STANDING // 2)
    began = partition.at
    partition.sampled(STANDING)
    row = partition.set(readable_at=began, end=9).sample()
    committed = partition.at
    assert (row.readable_at, is_stuck(row)) == (committed, False), "no consumer could read it before"
    partition.set(readable_at=committed, end=12).sampled(STANDING // 2)
    row = partition.sampled(committed + STANDING - partition.at - 2 * ROUND)
    assert (row.readable_at, is_stuck(row)) == (committed, False)
    assert is_stuck(partition.sample())


def test_a_group_that_was_stuck_stays_so_while_nothing_is_proven() -> None:
    partition = Partition(end=9, committed=0, member="app")
    assert is_stuck_still(partition.sampled(STANDING))
    partition.at = Micros(partition.at + MOVING)
    assert is_stuck_still(partition.set(is_plain=False).sampled(STANDING)) is None
    assert is_stuck_still(partition.set(committed=9).sample()) is False


def test_what_cannot_be_asked_for_is_shown_by_how_the_group_moved() -> None:
    """No permission: a group that was at the end again and again passes all there is, but none that stops before it."""
    for stops, is_so in ((0, True), (1, None)):
        partition = Partition(end=2, committed=0, member="app").set(is_plain=False)
        partition.sample()
        for _ in range(RESTS):
            partition.set(end=partition.end + 3, committed=partition.end + 3 - stops).sample()
        assert is_stuck(partition.set(end=partition.end + 3).sampled(STANDING)) is is_so
        if stops:
            partition.set(committed=partition.end).sample()
            partition.set(end=partition.end + 3, committed=partition.end + 2).sample()
            assert partition.position.rests == 0, "it was between two transactions"


def test_a_transaction_that_was_open_for_long_and_then_aborted_does_not_make_a_group_stuck() -> None:
    """It commits the offset of each record, so it stands before the marker of the one before."""
    partition = Partition(end=12, committed=11, member="app").set(open=0, is_plain=False)
    partition.sample()
    partition.set(end=20, open=8).sampled(STANDING * 2)
    assert not is_stuck(partition.set(end=21, open=0).sample())
    assert not is_stuck(partition.sampled(STANDING * 2))


def test_a_record_behind_a_marker_is_not_waiting_for_as_long_as_that() -> None:
    partition = Partition(end=12, committed=11, member="app")
    partition.sampled(STANDING * 2)
    row = partition.set(end=14).sample()
    assert (row.standing_since, is_stuck(row)) == (partition.at, False)
    assert is_stuck(partition.sampled(STANDING))


def test_one_record_at_the_end_makes_a_group_stuck_if_it_came_after_all_was_read() -> None:
    unknown = dict.fromkeys(("log_start_offset", "high_watermark", "last_stable_offset"))
    partition = Partition(end=12, committed=12, member="app")
    partition.sampled(STANDING)
    partition.set(end=13).sample(**unknown)
    assert not is_stuck(partition.sample())
    assert is_stuck(partition.sampled(STANDING))
    assert not is_stuck(partition.set(committed=13).sample())


@pytest.mark.parametrize(("rests", "is_so"), [(RESTS, True), (RESTS - 1, False)])
def test_a_group_that_commits_positions_is_stuck_behind_the_first_transaction(rests: int, *, is_so: bool) -> None:
    """It was seen at the last stable offset, behind a marker, some times: so it passes markers and aborted records."""
    partition = Partition(end=2, committed=0, member="app").set(open=1, is_plain=False)
    partition.sample()
    for _ in range(rests):
        partition.set(open=0, end=partition.end + 3, committed=partition.end + 3).sample()
    partition.set(end=partition.end + 3).sample()
    assert is_stuck(partition.sampled(STANDING)) is (is_so or None)


@pytest.mark.parametrize(("seen", "is_so"), [(True, None), (None, True)], ids=["its leader knows", "unseen"])
def test_rests_at_plain_records_do_not_show_that_a_group_passes_aborted_ones(
    *, seen: bool | None, is_so: bool | None
) -> None:
    """It commits record by record, as librdkafka does; then the first transaction is written, and aborted."""
    partition = Partition(end=2, committed=0, member="app")
    partition.sample()
    for _ in range(RESTS):
        partition.set(end=partition.end + 3, committed=partition.end + 3).sample()
    partition.set(end=partition.end + 6, is_plain=False).sample()
    assert is_stuck(partition.set(is_transactional=seen).sampled(STANDING)) is is_so


@pytest.mark.parametrize(("plain", "is_so"), [(1, None), (0, True)], ids=["mixed", "transactions alone"])
def test_rests_show_nothing_where_plain_records_come_among_transactions(plain: int, *, is_so: bool | None) -> None:
    """It commits record by record: it rests behind plain records, and stands before aborted ones, however long."""
    partition = Partition(end=3, committed=0, member="app").set(is_plain=False, is_transactional=True)
    partition.sample()
    for _ in range(2 * RESTS):
        partition.set(end=partition.end + 4).sample()
        partition.set(end=partition.end + plain, committed=partition.end + plain).sample()
    partition.set(end=partition.end + 4)
    assert is_stuck(partition.sampled(STANDING)) is is_so
    partition.set(readable_at=Micros(partition.at), end=partition.end + 2).sample()
    assert is_stuck(partition.sampled(STANDING)), "what was committed is there"


def test_commits_are_the_reader_where_nobody_is_a_member() -> None:
    """As of Flink's source: ``assign`` and commits; then it stands still, and an hour later it is gone."""
    partition = Partition(end=100, committed=10).set(state="Empty")
    assert reader_of(partition.sample()) is PartitionReader.NONE
    assert reader_of(partition.set(committed=15).sample()) is PartitionReader.NONE
    row = partition.set(committed=20).sample()
    assert (reader_of(row), row.committed_at) == (PartitionReader.COMMITS, partition.at)
    assert is_stuck(partition.sampled(STANDING))
    row = partition.sampled(COMMITTING)
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.NONE, False)


@pytest.mark.parametrize("offset", [0, 70])
def test_a_stopped_group_whose_offsets_are_set_is_not_read(offset: int) -> None:
    partition = Partition(end=100, committed=40, member="app")
    partition.sample()
    partition.set(committed=50, member=None, members=0, state="Empty").sampled(RESTARTING + ROUND)
    assert reader_of(partition.set(committed=offset).sample()) is PartitionReader.NONE


def test_an_operator_who_sets_the_offsets_of_a_group_without_members_does_not_read() -> None:
    """It was stopped before it was watched, so that no owner of it was ever seen."""
    partition = Partition(end=1_000, committed=10).set(members=0, state="Empty")
    partition.sample()
    row = partition.set(committed=500).sample()
    assert reader_of(row) is PartitionReader.NONE
    row = partition.sampled(STANDING, lambda: partition.set(end=partition.end + 10))
    assert (is_stuck(row), is_losing(partition.set(start=600).sample())) == (False, False)
    partition.sampled(2 * COMMITTING)
    assert reader_of(partition.set(committed=900).sample()) is PartitionReader.NONE, "he does so again, hours later"


def test_a_batch_of_every_hour_reads_all_the_time() -> None:
    partition = Partition(end=1_000, committed=10).set(members=None, state="Active")
    partition.sample()
    for committed in (20, 30, 40):
        partition.set(committed=committed).sample()
        row = partition.sampled(COMMITTING - ROUND)
    assert (reader_of(row), is_stuck(row)) == (PartitionReader.COMMITS, False)


def test_a_share_group_without_members_whose_offsets_are_set_is_not_read() -> None:
    partition = Partition(end=100).set(members=0, state="Empty")
    for offset in (10, 20, 30):
        row = partition.set(start_offset=offset).sample()
    assert (reader_of(row), is_stuck(partition.sampled(STANDING))) == (PartitionReader.NONE, False)


def test_a_consumer_without_membership_stays_stuck_through_a_silence_and_a_stopped_group_does_not() -> None:
    partition = Partition(end=100, committed=10).set(members=0, state="Empty")
    for committed in (10, 15, 20):
        partition.set(committed=committed).sample()
    assert is_stuck_still(partition.sampled(STANDING))
    partition.at = Micros(partition.at + MOVING)
    assert is_stuck_still(partition.sample()) is None
    assert is_stuck_still(partition.sampled(COMMITTING)) is False

    partition = Partition(end=100, committed=10, member="app")
    assert is_stuck_still(partition.sampled(STANDING))
    partition.set(member=None, members=0, state="Empty").sampled(RESTARTING)
    assert is_stuck_still(partition.sample()) is False


@pytest.mark.parametrize(
    ("owner", "silence", "reads"),
    [(None, REMEMBERED, True), (None, REMEMBERED + ROUND, False), ("app", MOVING + ROUND, False)],
)
def test_the_commits_of_a_consumer_without_membership_count_through_a_silence(
    owner: str | None, silence: int, *, reads: bool
) -> None:
    """One before it and one behind it: an operator sets offsets once. Not if there was an owner, which was stopped."""
    partition = Partition(end=100, committed=10, member=owner)
    partition.sample()
    partition.set(committed=15, member=None, members=0, state="Empty").sample()
    partition.at = Micros(partition.at + silence - ROUND)
    assert reader_of(partition.sample()) is PartitionReader.NONE
    row = partition.set(committed=20).sample()
    assert reader_of(row) is (PartitionReader.COMMITS if reads else PartitionReader.NONE)
    row = partition.sampled(STANDING)
    assert (is_stuck(row), row.standing_since) == (reads, partition.at - STANDING // ROUND * ROUND - ROUND)


def test_a_group_that_is_not_described_for_a_moment_has_its_last_owner() -> None:
    partition = Partition(end=100, committed=40, member="app")
    partition.sample()
    assert reader_of(partition.set(member=None, members=None).sample()) is PartitionReader.OWNER
    assert reader_of(partition.set(members=2).sample()) is PartitionReader.NONE


def test_an_owner_that_never_committed_has_no_lag_and_no_loss() -> None:
    row = Partition(end=100, member="app").sample()
    assert (reader_of(row), row.lag, row.records_lost, row.beyond) == (PartitionReader.UNCOMMITTED, None, None, None)


def test_a_share_group_has_the_lag_of_its_coordinator_but_no_more_than_there_is() -> None:
    partition = Partition(end=100, member="app").set(start_offset=40)
    row = partition.sample()
    assert (row.lag, row.records_lost, row.beyond, reader_of(row)) == (60, None, None, PartitionReader.OWNER)
    assert is_stuck(partition.sampled(STANDING))
    assert not is_stuck(partition.set(start_offset=60).sample())
    assert partition.set(start=100).sample().lag == 0


@pytest.mark.parametrize(("done", "seconds", "is_so"), [(50, 9.0, False), (50, 1_800.0, True), (0, 9.0, True)])
def test_a_share_group_is_not_stuck_while_it_gets_on_behind_a_record_that_is_renewed(
    done: int, seconds: float, *, is_so: bool
) -> None:
    """It has done so many behind its start offset, and so old is what is as far before the end as its lag."""
    partition = Partition(end=100, member="app").set(start_offset=40)
    row = partition.sampled(STANDING)._replace(lag=60 - done, lag_seconds=seconds)
    assert (is_stuck(row), is_stuck_still(row)) == (is_so, is_so)


@pytest.mark.parametrize(
    ("topic", "committed", "used"),
    [("orders", 50, 0.98), ("orders", 40, None), ("app-rekey-repartition", 50, None), ("orders", 30, 1)],
)
def test_what_is_deleted_once_it_was_committed_is_not_near_its_retention(
    topic: str, committed: int, used: float | None
) -> None:
    partition = Partition(end=540, committed=committed, member="app", topic=topic).set(start=40)
    assert retention_used(partition.sample()) == used
