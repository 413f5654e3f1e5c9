"""When coordinators are asked, which positions stand beside their answers, and what is said of those that deny."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.group_positions import GroupPosition, GroupReadings, position_after
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.sample_blocks import BrokerGroupsObserved
from streaming.contracts.samples import GroupObserved, GroupOffsetsObserved
from streaming.errors import ConnectionRefused
from streaming.name_patterns import NamePatterns
from streaming.sources.permissions import DESCRIBE_GROUPS, PermissionDenied
from streaming.sources.polling.view import ClusterView, PartitionView
from streaming.sources.protocol.connection import NodeTooOld
from streaming.sources.protocol.offset_messages import ListedOffsets
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.groups import blocks
from streaming.sources.samples.groups import groups as module
from streaming.sources.samples.groups.blocks import CoordinatorAnswer, GroupValues
from streaming.sources.samples.groups.described import NO_GROUP, DescribedGroup, list_groups
from streaming.sources.samples.groups.groups import GroupsKind
from streaming.sources.samples.kind import BrokerAnswer
from streaming.sources.samples.offsets import LEADERS, ROUND_MICROS, OffsetsKind, Positions
from tests.blocks import ENVELOPE, singly

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
SECOND = 1_000_000


def view_of(leaders: dict[int, BrokerId], *, topic_id: str = "id", brokers: tuple[BrokerId, ...] = (ONE, TWO)) -> Any:
    parts = {number: PartitionView((ONE, TWO), (ONE, TWO), leader) for number, leader in leaders.items()}
    addresses = {broker: ("h", broker) for broker in brokers}
    return ClusterView(ClusterId("c"), 1, addresses, {"orders": parts}, {"orders": TopicId(topic_id)})


VIEW = view_of({0: ONE, 1: TWO})


class Versions:
    """A connection to a broker that supports a version of OffsetFetch."""

    def __init__(self, version: int) -> None:
        self._version = version

    def newest(self, _key: int, supported: int, _name: str = "") -> int:
        return min(supported, self._version)

    required = newest


class Asked:
    """Two kinds, and what they have asked; leaders answer what a test says."""

    def __init__(self, seconds: int = 10) -> None:
        period = Micros(seconds * SECOND)
        self.offsets = OffsetsKind(period, DirectoriesKind(period))
        self.kind = GroupsKind(period, self.offsets, NamePatterns())
        self.questions: list[tuple[str, BrokerId, Any]] = []
        self.present = Micros(10_000 * SECOND)

    def round(self, moment: int, view: Any = VIEW) -> list[tuple[str, BrokerId]]:
        self.questions = []

        def ask(kind: str, broker: BrokerId, work: Any) -> bool:
            self.questions.append((kind, broker, work))
            return True

        for kind in (self.offsets, self.kind):
            kind.ask(view, ask, Micros(moment))
        return [(kind, broker) for kind, broker, _ in self.questions]

    def answer(  # noqa: PLR0913 - most of them are keywords
        self,
        broker: BrokerId,
        ends: dict[int, int] | None,
        view: Any = VIEW,
        *,
        start: int = 1,
        read_at: int = 0,
        asked_at: int = 0,
    ) -> None:
        """A leader has this log start, and these high watermarks; None: it does not answer."""
        if ends is None:
            answer = BrokerAnswer(LEADERS, broker, Micros(1), refusal=ConnectionRefused("hung"))
        else:
            fields = {name: ListedOffsets({"orders": {**ends}}) for name in ("high_watermark", "log_end_offset")}
            fields["last_stable_offset"] = ListedOffsets({"orders": {number: end - 1 for number, end in ends.items()}})
            fields["log_start_offset"] = ListedOffsets({"orders": dict.fromkeys(ends, start)})
            answer = BrokerAnswer(
                LEADERS,
                broker,
                Micros(1),
                Positions(view.topic_ids, fields, read_at=Micros(read_at), asked_at=Micros(asked_at)),
            )
        self.offsets.shown(view, answer, ENVELOPE)

    def beside(self) -> dict[str, Any]:
        """The positions that the coordinators' answers will stand beside."""
        works = {id(work.args[2]): work.args[2] for kind, _, work in self.questions if kind == "groups"}
        (positions,) = works.values()
        return {name: by_topic.get("orders", {}) for name, by_topic in positions.read.items()}


def ready() -> Asked:
    """Both leaders have answered, and the coordinators are asked."""
    asked = Asked()
    asked.round(5)
    asked.answer(ONE, {0: 8})
    asked.answer(TWO, {1: 9})
    asked.round(6)
    return asked


def test_coordinators_are_asked_after_the_leaders_have_answered() -> None:
    asked = Asked()
    assert asked.round(5) == [(LEADERS, ONE), (LEADERS, TWO)]
    assert asked.kind.next_at == 5 + ROUND_MICROS
    asked.answer(ONE, {0: 8})
    assert asked.round(6) == []
    asked.answer(TWO, {1: 9})
    assert asked.kind.next_at == 0
    assert asked.round(7)[-2:] == [("groups", ONE), ("groups", TWO)]
    assert asked.beside() == {
        "log_start_offset": {0: 1, 1: 1},
        "last_stable_offset": {0: 7, 1: 8},
        "high_watermark": {0: 8, 1: 9},
    }
    assert asked.kind.next_at == 7 + 10 * SECOND


def test_a_hung_leader_delays_coordinators_for_a_second_and_leaves_its_partitions_unknown() -> None:
    asked = ready()
    asked.round(20 * SECOND)
    asked.answer(ONE, {0: 18})
    assert ("groups", ONE) not in asked.round(20 * SECOND + ROUND_MICROS - 1)
    assert ("groups", ONE) in asked.round(20 * SECOND + ROUND_MICROS)
    assert asked.beside()["high_watermark"] == {0: 18, 1: 9}, "the last answer, of one interval before"
    asked.answer(TWO, None)
    asked.round(40 * SECOND)
    asked.answer(ONE, {0: 28})
    asked.round(40 * SECOND + ROUND_MICROS)
    assert asked.beside()["high_watermark"] == {0: 28}


def test_leaders_that_take_longer_than_the_interval_do_not_keep_coordinators_from_being_asked() -> None:
    asked = Asked(1)
    asked.round(5)
    for moment in range(SECOND, 3 * SECOND, SECOND // 4):
        if ("groups", ONE) in asked.round(moment):
            break
    assert moment <= 5 + ROUND_MICROS + SECOND // 4


def test_positions_follow_a_leader_that_moves_and_end_with_one_that_left_and_with_the_topic() -> None:
    asked = Asked()
    asked.round(5)
    asked.answer(ONE, {0: 8})
    asked.answer(TWO, {1: 9})
    moved = view_of({0: TWO, 1: TWO})
    asked.round(20 * SECOND, moved)
    asked.answer(TWO, {0: 10, 1: 11}, moved)
    assert asked.offsets.positions(moved.topic_ids)["high_watermark"] == {"orders": {0: 10, 1: 11}}
    assert asked.offsets.positions({"orders": TopicId("another")})["high_watermark"] == {}
    asked.round(40 * SECOND, view_of({0: ONE, 1: ONE}, brokers=(ONE,)))
    assert asked.offsets.positions(VIEW.topic_ids)["high_watermark"] == {"orders": {0: 8}}


OFFSETS = st.integers(0, 50)


@given(st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1, max_size=8))
def test_lag_is_never_larger_than_it_was_when_the_positions_were_read(steps: list[tuple[int, int]]) -> None:
    """A producer and a group go on between any two requests; the group never passes the producer."""
    asked, end, committed = Asked(1), 1, 0
    for number, (written, read) in enumerate(steps):
        end += written
        asked.round(number * 2 * SECOND + 1)
        asked.answer(ONE, {0: end}, start=0)
        asked.answer(TWO, {})
        asked.round(number * 2 * SECOND + 2)
        most = end - committed
        asked.answer(ONE, {0: end + written})  # a later answer changes nothing of what was asked before
        end, committed = end + written, min(end + written, committed + read)
        (sample,) = offsets_of(asked, {0: committed})
        lag = position_of(sample).lag
        assert lag is not None
        assert 0 <= lag <= most
        assert lag >= end - committed - written


@given(st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1, max_size=8))
def test_records_are_lost_only_if_they_were_deleted_before_the_group_read_them(steps: list[tuple[int, int]]) -> None:
    """Retention deletes and a group reads between any two requests; the group may be ahead of the log start."""
    asked, start, committed = Asked(1), 0, 0
    for number, (deleted, read) in enumerate(steps):
        start += deleted
        asked.round(number * 2 * SECOND + 1)
        asked.answer(ONE, {0: 1_000}, start=start)
        asked.answer(TWO, {})
        asked.round(number * 2 * SECOND + 2)
        lost = max(0, start - committed)
        start, committed = start + deleted, committed + read
        (sample,) = offsets_of(asked, {0: committed})
        found = position_of(sample).records_lost
        assert found is not None
        assert 0 <= found <= lost
        assert found >= max(0, start - committed) - deleted


def offsets_of(
    asked: Asked, committed: dict[int, int], view: Any = VIEW, collected_at: Micros | None = None
) -> list[GroupOffsetsObserved]:
    """What is shown of a group that has committed these offsets."""
    answer = BrokerAnswer("groups", ONE, Micros(1), answered(asked, {"g": {"orders": committed}}))
    envelope = ENVELOPE if collected_at is None else ENVELOPE | {"collected_at": collected_at}
    observed = asked.kind.shown(view, answer, envelope).observations
    return [one for one in singly([*observed]) if isinstance(one, GroupOffsetsObserved)]


def readings_of(sample: GroupOffsetsObserved) -> GroupReadings:
    values = {name: getattr(sample, name) for name in GroupReadings._fields if name not in {"at", "share_lag"}}
    return GroupReadings(at=sample.collected_at, share_lag=sample.lag, **values)


def position_of(sample: GroupOffsetsObserved) -> GroupPosition:
    """What follows from one sample alone."""
    return position_after(None, readings_of(sample))


def seconds_of(asked: Asked, committed: dict[int, int], view: Any = VIEW) -> dict[int, tuple[int | None, float | None]]:
    """The lag of a group in records and in seconds, by partition."""
    samples = offsets_of(asked, committed, view)
    return {one.partition: (position_of(one).lag, one.lag_seconds) for one in samples}


def sampled_since(
    *seconds: int, ends: tuple[dict[int, int], ...], view: Any = VIEW, asked: Asked | None = None, start: int = 1
) -> Asked:
    """Leaders that were asked so many seconds ago, and answered a second later."""
    asked = asked or Asked()
    for ago, each in zip(seconds, ends, strict=True):
        moment = asked.present - ago * SECOND
        asked.round(moment, view)
        asked.answer(ONE, each, view, start=start, read_at=moment + SECOND)
        asked.answer(TWO, {}, view)
        asked.round(moment + 1, view)
    return asked


def test_lag_in_seconds_is_since_when_the_first_unread_record_could_be_read() -> None:
    asked = sampled_since(31, 21, 11, ends=({0: 10, 1: 5}, {0: 110, 1: 5}, {0: 110, 1: 6}))
    found = seconds_of(asked, {0: 60, 1: 5})
    assert found[0] == (50, pytest.approx(24.95))
    assert found[1] == (1, pytest.approx(15))
    assert seconds_of(asked, {0: 110, 1: 6}) == {0: (0, 0.0), 1: (0, 0.0)}


def test_what_was_readable_before_the_first_round_is_behind_for_an_unknown_time() -> None:
    asked = sampled_since(21, 11, ends=({0: 10}, {0: 20}))
    assert seconds_of(asked, {0: 9}) == {0: (11, None)}


def test_a_group_beyond_the_high_watermark_has_no_lag_and_one_without_positions_an_unknown_one() -> None:
    """After an unclean election there is less than the group has read, and until it is passed it reads nothing."""
    asked = sampled_since(31, 21, 11, ends=({0: 100}, {0: 40}, {0: 50}))
    assert seconds_of(asked, {0: 90, 1: 7}) == {0: (0, 0.0), 1: (None, None)}
    assert seconds_of(asked, {0: 45})[0] == (5, pytest.approx(14.5))
    assert seconds_of(asked, {0: 39})[0] == (11, None), "nobody saw when it was written"


def test_a_topic_that_was_created_again_under_its_name_has_no_seconds_of_the_one_before() -> None:
    """The brokers answer by name: until the next view, what they say is of the new topic, under the old id."""
    asked = sampled_since(51, 41, 31, 21, ends=({0: 1}, {0: 1_000}, {0: 5}, {0: 9}))
    assert seconds_of(asked, {0: 3}) == {0: (6, None)}
    view = view_of({0: ONE, 1: TWO}, topic_id="another")
    again = sampled_since(5, ends=({0: 12},), view=view, asked=asked)
    assert seconds_of(again, {0: 10}, view) == {0: (2, None)}
    assert seconds_of(again, {0: 12}, view) == {0: (0, 0.0)}


def test_what_was_deleted_is_nothing_that_a_group_could_read() -> None:
    ends = ({0: 10}, {0: 110}, {0: 110})
    assert seconds_of(sampled_since(31, 21, 11, ends=ends), {0: 5})[0] == (105, None)
    assert seconds_of(sampled_since(31, 21, 11, ends=ends, start=60), {0: 5})[0] == (50, pytest.approx(24.95))
    assert seconds_of(sampled_since(31, 21, 11, ends=ends, start=110), {0: 5})[0] == (0, 0.0)


def test_the_seconds_of_a_share_group_are_of_what_its_coordinator_counts_and_not_of_its_start_offset() -> None:
    """Records that are done in another order, as after a retry, lie behind a start offset until more are done."""
    asked = sampled_since(31, 21, 11, ends=({0: 10, 1: 5, 2: 5}, {0: 110, 1: 5, 2: 5}, {0: 110, 1: 6, 2: 6}))
    answer = replace(
        answered(asked, {"g": {}}),
        groups={"g": DescribedGroup("share", "Stable", 1)},
        starts={"g": {"orders": {0: 20, 1: 5, 2: 5}}},
        lags={"g": {"orders": {0: 50, 1: 0, 3: 1}}},
    )
    samples = singly(shown(asked, BrokerAnswer("groups", ONE, Micros(1), answer)))
    found = {one.partition: one.lag_seconds for one in samples if isinstance(one, GroupOffsetsObserved)}
    assert found == {0: pytest.approx(24.95), 1: 0.0, 2: None, 3: None}


def test_a_start_offset_that_cannot_be_read_is_where_it_was_and_nothing_of_the_group_is_gone() -> None:
    """A coordinator asks the leaders of partitions, of which one is away. What was deleted is gone."""
    asked = ready()
    shared = {"g": DescribedGroup("share", "Stable", 1)}
    base = replace(answered(asked, {"g": {}}), committed={}, groups=shared)
    rounds = (
        replace(base, starts={"g": {"orders": {0: 5, 1: 7}}}, lags={"g": {"orders": {0: 1, 1: 1}}}),
        replace(base, starts={"g": {"orders": {0: 6}}}, unread_starts={"g": {"orders": [1, 2]}}),
        replace(base, starts={"g": {"orders": {0: 6}}}),
    )
    found, ended = [], []
    for answer in rounds:
        seen = shown(asked, BrokerAnswer("groups", ONE, Micros(1), answer))
        samples = [one for one in singly(seen) if isinstance(one, GroupOffsetsObserved)]
        found.append({one.partition: one.start_offset for one in samples if one.group == "g"})
        ended.append([name for block in seen for name in getattr(block, "ended", None) or ()])
    assert found == [{0: 5, 1: 7}, {0: 6, 1: 7}, {0: 6}]
    assert ended == [[], [], ["g"]]


def test_the_end_of_a_round_was_read_after_the_commits_of_the_round_before() -> None:
    """What both rounds say is in one order by the time of the samples, so that only the second one is a claim."""
    asked, rows = sampled_since(31, 21, ends=({0: 100}, {0: 40})), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "monotonic", lambda: asked.present)
        for age, collected_at in ((11, 100 * SECOND), (1, 110 * SECOND)):
            moment = Micros(asked.present - age * SECOND)
            asked.round(moment)
            asked.answer(ONE, {0: 40}, read_at=moment, asked_at=moment)
            asked.answer(TWO, {}, asked_at=moment)
            asked.round(moment + 1)
            (sample,) = offsets_of(asked, {0: 100}, collected_at=Micros(collected_at))
            rows.append(readings_of(sample))
    first = position_after(None, rows[0])
    assert (rows[0].positions_at, first.beyond) == (89 * SECOND, None)
    assert (rows[1].positions_at, position_after((rows[0], first), rows[1]).beyond) == (109 * SECOND, 60)


@pytest.mark.parametrize("open_in", ["of", "of another"])
def test_offsets_that_a_transaction_is_to_replace_do_not_seem_to_have_lost_records(open_in: str) -> None:
    """Kafka Streams purges a topic up to offsets of which the marker has yet to reach the coordinator."""
    asked = sampled_since(31, ends=({0: 110},), start=60)
    committed = {name: {"orders": {0: 5}} for name in ("of", "of another")} | {"behind": {"orders": {0: 60}}}
    answer = answered(asked, committed, replaced=[open_in, "behind"])
    assert answer.unread == {open_in}, "unknown, and so are its other partitions for this once"
    assert answer.committed == {name: of for name, of in committed.items() if name != open_in}


def test_offsets_that_a_transaction_replaces_between_two_questions_do_not_seem_to_have_lost_records() -> None:
    asked = sampled_since(31, ends=({0: 110},), start=60)
    answer = answered(asked, {"of": {"orders": {0: 5, 1: 7}}}, later={"of": {"orders": {0: 60}}})
    assert answer.committed == {"of": {"orders": {0: 60, 1: 7}}}, "what the second does not show is as the first did"


def answered(
    asked: Asked,
    committed: dict[str, Any],
    denied: tuple[str, ...] = (),
    replaced: Collection[str] = (),
    later: Mapping[str, Any] = {},
) -> Any:
    """What the work of a question returns for these groups; a transaction is to replace offsets, or has meanwhile."""
    work = next(work for kind, _, work in asked.questions if kind == "groups")
    listed = {name: DescribedGroup("classic", "Empty", 0) for name in committed}

    def values_of(name: str, *, are_settled: bool) -> GroupValues:
        settled = {} if name in replaced else later.get(name, committed[name])
        values = settled if are_settled else committed[name]
        return GroupValues(30 if values is None else 0, name, values or {})

    def values(_: Any, groups: Collection[str], *, are_settled: bool = False) -> tuple[GroupValues, ...]:
        return tuple(values_of(name, are_settled=are_settled) for name in groups)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic", lambda: asked.present)
        patch.setattr(module, "list_groups", lambda _: listed)
        patch.setattr(module, "describe_groups", lambda _, groups, _probe: (groups, denied))
        patch.setattr(module, "committed_offsets", values)
        return work(Versions(9))


def shown(asked: Asked, answer: BrokerAnswer, view: Any = VIEW) -> list[Any]:
    return [*asked.kind.shown(view, answer, ENVELOPE).observations]


def test_a_coordinator_without_groups_says_so() -> None:
    asked = ready()
    blocks = shown(asked, BrokerAnswer("groups", TWO, Micros(1), answered(asked, {})))
    assert [(block.kind, block.broker, len(block)) for block in blocks] == [
        ("broker_groups", TWO, 0),
        ("broker_group_offsets", TWO, 0),
    ]


def test_a_group_without_a_name_as_old_clients_commit_to_is_one_of_them() -> None:
    asked = ready()
    answer = answered(asked, {"": {"orders": {0: 3}}, "g ü": {"orders": {0: 4}}})
    groups, offsets = shown(asked, BrokerAnswer("groups", ONE, Micros(1), answer))
    assert (groups.arrays["group"], offsets.arrays["group"]) == (("", "g ü"), ("", "g ü"))


def test_a_group_whose_commits_are_not_said_has_no_position_instead_of_one_without_a_commit() -> None:
    """Its coordinator is loading, or has just lost it; and before Kafka 4.2 no broker has offsets of share groups."""
    asked = ready()
    owners = {"orders": {0: "app"}}
    listed = {
        "read": DescribedGroup("classic", "Stable", 1, "range", owners),
        "loading": DescribedGroup("classic", "Stable", 1, "range", owners),
        "shared": DescribedGroup("share", "Stable", 1, "simple", owners),
    }
    values = (GroupValues(0, "read", {}), GroupValues(14, "loading", {}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "list_groups", lambda _: listed)
        patch.setattr(module, "describe_groups", lambda _, groups, _probe: (groups, ()))
        patch.setattr(module, "committed_offsets", lambda *_: values)
        patch.setattr(module, "share_offsets", lambda *_: ())
        answer = next(work for kind, _, work in asked.questions if kind == "groups")(Versions(9))
    observed = [*singly(shown(asked, BrokerAnswer("groups", ONE, Micros(1), answer)))]
    assert {one.group for one in observed if isinstance(one, GroupObserved)} == listed.keys()
    assert [one.group for one in observed if isinstance(one, GroupOffsetsObserved)] == ["read"]


def test_brokers_before_the_request_of_many_groups_are_not_asked() -> None:
    work = next(work for kind, _, work in ready().questions if kind == "groups")
    with pytest.raises(NodeTooOld, match=r"older than Kafka 3\.0"):
        work(Versions(7))


def test_a_broker_that_lists_groups_in_an_old_way_costs_its_groups_alone() -> None:
    connection: Any = Versions(3)
    connection.address = "kafka-1:9092"
    with pytest.raises(NodeTooOld, match=r"kafka-1:9092 lists its groups as brokers before Kafka 2\.6 do"):
        list_groups(connection)


def test_one_that_does_not_answer_says_nothing() -> None:
    refused = BrokerAnswer("groups", TWO, Micros(1), refusal=ConnectionRefused("hung"))
    assert shown(ready(), refused) == []


def test_a_topic_that_was_created_again_meanwhile_is_left_out() -> None:
    asked = ready()
    answer = BrokerAnswer("groups", ONE, Micros(1), answered(asked, {"g": {"orders": {0: 3}}}))
    groups, offsets = shown(asked, answer, view_of({0: ONE}, topic_id="another"))
    assert (len(groups), len(offsets)) == (1, 0)


@pytest.mark.parametrize(
    ("committed", "denied", "sentence"),
    [
        ({"a": {}, "b": None}, (), "this user lacks Describe on group b: Kafka leaves groups out"),
        ({}, (NO_GROUP,), "this user lacks Describe on the groups: Kafka leaves groups out"),
    ],
)
def test_a_group_that_may_not_be_described_is_a_missing_permission(
    committed: dict[str, Any], denied: tuple[str, ...], sentence: str
) -> None:
    asked = ready()
    answer = BrokerAnswer("groups", ONE, Micros(1), answered(asked, committed, denied))
    refusal = asked.kind.shown(VIEW, answer, ENVELOPE).refusal
    assert isinstance(refusal, PermissionDenied)
    assert refusal.permission is DESCRIBE_GROUPS
    assert str(refusal).startswith(sentence)
    assert "--operation Describe --group '*'" in str(refusal)
    names = {one.group for one in singly(shown(asked, answer)) if not isinstance(one, BrokerGroupsObserved)}  # type: ignore[attr-defined]
    assert names == committed.keys()


def test_of_a_streams_group_a_task_owns_the_partitions_of_its_number_that_exist() -> None:
    asked = ready()
    owners = {"orders": dict.fromkeys(range(3), "app"), "gone": {0: "app"}}
    coordinated = CoordinatorAnswer(
        {"s": DescribedGroup("streams", "Stable", 1, None, owners)}, topic_ids=VIEW.topic_ids
    )
    offsets = [
        one for one in singly(shown(asked, BrokerAnswer("groups", ONE, Micros(1), coordinated)))
        if isinstance(one, GroupOffsetsObserved)
    ]  # fmt: skip
    assert [(one.topic, one.partition, one.member) for one in offsets] == [("orders", 0, "app"), ("orders", 1, "app")]
