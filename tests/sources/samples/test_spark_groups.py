"""Queries of Spark as groups: which positions stand beside their offsets, and what is said of a bad checkpoint."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.contracts import health
from streaming.contracts.identifiers import NO_BROKER, Micros
from streaming.contracts.samples import GroupOffsetsObserved
from streaming.errors import ConfigurationError
from streaming.name_patterns import NamePatterns
from streaming.settings import CollectSettings, settings_of
from streaming.sources.samples.groups.groups import GroupsKind
from streaming.sources.samples.groups.spark import SparkGroupsKind
from streaming.sources.samples.kind import BrokerAnswer, BrokerCalls
from streaming.sources.samples.source import kinds_of
from streaming.sources.source import monotonic
from tests.blocks import ENVELOPE, singly
from tests.sources.samples.test_groups import ONE, TWO, VIEW, Asked, answered, ready, view_of
from tests.sources.samples.test_spark_checkpoints import SECOND, Query

NOW = Micros(1_100 * SECOND)


class Reading(Asked):
    """Checkpoints of a configuration, read in rounds of ten seconds; ``now`` is when what is read is shown."""

    def __init__(self, **folders: Path) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.groups = GroupsKind(Micros(10 * SECOND), self.offsets, NamePatterns())
        periods, said = (Micros(10 * SECOND), Micros(30 * SECOND)), self.lines.append
        of_groups: Any = {"is_group": self.groups.is_group, "standing": self.groups.standing}
        self.kind: Any = SparkGroupsKind(*periods, self.offsets, folders, **of_groups, report=said)
        self.moment = 5

    def question(self, ends: dict[int, int], view: Any = VIEW) -> BrokerAnswer:
        """Ask leaders, whose logs end there, and read the checkpoints after that."""
        self.round(self.moment, view)
        self.answer(ONE, ends, view)
        self.answer(TWO, {}, view)
        self.round(self.moment + 1, view)
        self.moment += 10 * SECOND
        ((kind, broker, work),) = [each for each in self.questions if each[1] not in {ONE, TWO}]
        assert (kind, broker) == ("spark checkpoints", NO_BROKER)
        return BrokerAnswer(kind, broker, NOW, work(None))

    def read(self, ends: dict[int, int] | None = None, *, now: Micros = NOW, view: Any = VIEW) -> list[Any]:
        """One round, and what is shown of it."""
        answer = self.question(ends or {0: 20, 1: 8}, view)
        return [*singly(self.kind.shown(view, answer, {**ENVELOPE, "collected_at": now}).observations)]


def offsets(observed: list[Any]) -> dict[tuple[str, str, int], tuple[Any, ...]]:
    found = [each for each in observed if isinstance(each, GroupOffsetsObserved)]
    ends = [(each.committed_offset, each.high_watermark) for each in found]
    keys = [(each.group, each.topic, each.partition) for each in found]
    return {key: (*end, health.lag(*end)) for key, end in zip(keys, ends, strict=True)}


def states(observed: list[Any]) -> dict[str, tuple[Any, ...]]:
    groups = [each for each in observed if not isinstance(each, GroupOffsetsObserved)]
    return {each.group: (each.group_state, each.last_progress_at) for each in groups}


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path / "checkpoint")


def test_a_checkpoint_is_a_group_with_lag_and_without_members_or_a_coordinator(query: Query) -> None:
    query.run(0, {"orders": {"0": 15, "1": 8}})
    reading = Reading(delta=query.folder)
    group, *_ = observed = reading.read(now=Micros(1_010 * SECOND))
    assert (group.group_protocol, group.members, group.assignor, group.coordinator) == ("spark", None, None, NO_BROKER)
    assert offsets(observed) == {("delta", "orders", 0): (15, 20, 5), ("delta", "orders", 1): (8, 8, 0)}
    assert {each.group_protocol for each in observed} == {"spark"}
    assert reading.lines == []


def test_a_query_is_behind_since_the_first_record_that_it_has_not_read_could_be_read(query: Query) -> None:
    query.run(0, {"orders": {"0": 15, "1": 8}})
    reading = Reading(delta=query.folder)
    reading.moment = monotonic() - 20 * SECOND
    reading.read({0: 10, 1: 8})
    _, *partitions = reading.read({0: 20, 1: 8})
    assert {one.partition: one.lag_seconds for one in partitions} == {0: pytest.approx(14.5, abs=5), 1: 0.0}


def test_a_query_is_active_for_a_minute_after_it_began_or_finished_a_batch_and_unknown_then(query: Query) -> None:
    query.run(0, {"orders": {"0": 15}})
    reading, written = Reading(delta=query.folder), Micros(1_003 * SECOND)
    for seconds, state in ((0, "Active"), (59, "Active"), (61, "Unknown"), (9_999, "Unknown"), (-61, "Unknown")):
        now = Micros(written + seconds * SECOND)
        assert states(reading.read(now=now)) == {"delta": (state, written)}
    query.begin(1, {"orders": {"0": 16}})
    assert states(reading.read(now=written)) == {"delta": ("Active", written + SECOND)}


def test_leaders_are_asked_before_the_checkpoints_are_read(query: Query) -> None:
    reading = Reading(delta=query.folder)
    assert [kind for kind, _ in reading.round(5)] == ["leader offsets"] * 2
    assert reading.kind.next_at == reading.offsets.leaders_until > 5
    assert reading.round(6) == []


def test_a_query_without_a_finished_batch_is_a_group_without_offsets(query: Query) -> None:
    observed = Reading(delta=query.folder).read()
    assert [type(each).__name__ for each in observed] == ["GroupObserved"]


def test_without_a_checkpoint_that_can_be_read_it_is_said_that_there_are_none(tmp_path: Path) -> None:
    reading = Reading(delta=tmp_path)
    blocks = reading.kind.shown(VIEW, reading.question({0: 20}), ENVELOPE)
    assert [(block.kind, block.broker, len(block)) for block in blocks.observations] == [
        ("broker_groups", NO_BROKER, 0),
        ("broker_group_offsets", NO_BROKER, 0),
    ]


def test_a_bad_checkpoint_gives_no_number_and_one_sentence_if_it_lasts_and_the_others_are_read(
    query: Query, tmp_path: Path
) -> None:
    query.run(0, {"orders": {"0": 15}})
    bad = Query(tmp_path / "bad")
    bad.run(0, {"orders": {"0": 15}})
    reading = Reading(good=query.folder, bad=bad.folder)
    whole = offsets(reading.read())
    assert {group for group, _, _ in whole} == {"good", "bad"}
    bad.write("offsets/0", "v1\n{")
    for _ in range(4):
        assert {group for group, _, _ in offsets(reading.read())} == {"good"}
    sentence = f"samples:a: the Spark checkpoint bad is not read: {bad.folder}/offsets/0 is incomplete"
    assert reading.lines == [sentence]
    bad.run(0, {"orders": {"0": 15}})
    assert offsets(reading.read()) == whole
    bad.write("offsets/0", "v1\n{")
    reading.read()
    assert reading.lines == [sentence], "a file may be incomplete for a moment"
    reading.read()
    assert reading.lines == [sentence, sentence]


def test_a_topic_that_is_not_there_is_named_and_has_no_row(query: Query) -> None:
    query.run(0, {"orders": {"0": 15}, "gone": {"0": 3}}, 5)
    reading = Reading(delta=query.folder)
    for _ in range(3):
        assert offsets(reading.read()) == {("delta", "orders", 0): (15, 20, 5)}
    assert reading.lines == [
        "samples:a: of the query with the Spark checkpoint delta only what it reads of Kafka is shown",
        (
            "samples:a: the Spark checkpoint delta names the topic gone, which is not there or may not be described: "
            "no lag"
        ),
    ]


def test_a_topic_that_was_created_again_has_no_lag_of_none(query: Query) -> None:
    """The lag would be 0, while the query fails or waits for as many records as the old topic had."""
    query.run(0, {"orders": {"0": 15, "1": 5}})
    reading, finished = Reading(delta=query.folder), 1_003 * SECOND
    just_read = reading.read({0: 14, 1: 5}, now=Micros(finished + 29 * SECOND))
    assert offsets(just_read)["delta", "orders", 0] == (15, 14, 0), "the positions are of before"
    for _ in range(3):
        assert offsets(reading.read({0: 14, 1: 9}, now=Micros(finished + 31 * SECOND))) == {}
    sentence = (
        "samples:a: the query with the Spark checkpoint delta has read more of the topic orders than there is: the "
        "topic was created again, or has lost records; its lag is unknown"
    )
    assert reading.lines == [sentence]
    assert offsets(reading.read({0: 15, 1: 9}, now=Micros(finished + 90 * SECOND)))


def test_a_leader_that_does_not_answer_leaves_lag_unknown(query: Query) -> None:
    query.run(0, {"orders": {"0": 15, "1": 5}})
    assert offsets(Reading(delta=query.folder).read({0: 20})) == {
        ("delta", "orders", 0): (15, 20, 5),
        ("delta", "orders", 1): (5, None, None),
    }


def test_a_topic_that_is_created_again_while_checkpoints_are_read_is_left_out(query: Query) -> None:
    query.run(0, {"orders": {"0": 15}})
    reading = Reading(delta=query.folder)
    shown = reading.kind.shown(view_of({0: ONE}, topic_id="another"), reading.question({0: 20}), ENVELOPE)
    assert offsets([*singly(shown.observations)]) == {}


def test_a_name_that_a_group_of_kafka_has_is_not_used_twice(query: Query) -> None:
    query.run(0, {"orders": {"0": 15}})
    reading, kafka = Reading(g=query.folder), ready()
    reading.groups.shown(VIEW, BrokerAnswer("groups", TWO, NOW, answered(kafka, {"g": {}})), ENVELOPE)
    for _ in range(2):
        assert reading.read() == []
    sentence = (
        "samples:a: the Spark checkpoint g is not read: Kafka has a group of that name; give it another one in "
        "collect.spark_checkpoints"
    )
    assert reading.lines == [sentence]
    gone = replace(answered(kafka, {}), gone=frozenset({"g"}))
    reading.groups.shown(VIEW, BrokerAnswer("groups", TWO, NOW, gone), ENVELOPE)
    assert offsets(reading.read())


def test_files_are_read_on_a_thread_of_their_own_without_a_connection() -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nobody is dialled")

    calls = BrokerCalls(never, name="t", seconds=1)
    try:
        assert calls.ask("spark checkpoints", NO_BROKER, None, lambda connection: (connection, "read"), NOW)
        until = time.monotonic() + 10
        while not (answers := calls.take(0.1)):
            assert time.monotonic() < until
        (answer,) = answers
        assert (answer.broker, answer.value, answer.refusal) == (NO_BROKER, (None, "read"), None)
    finally:
        calls.close()


def test_checkpoints_are_read_where_some_are_configured() -> None:
    def names(collect: CollectSettings) -> set[str]:
        return {name for kind in kinds_of(collect, print) for name in kind.names}

    configured = settings_of({"collect": {"spark_checkpoints": {"delta": "/mnt/checkpoints/delta"}}})
    assert names(configured.collect) - names(CollectSettings()) == {"spark checkpoints"}


@pytest.mark.parametrize(("name", "folder"), [("delta", ""), ("", "/mnt/a")])
def test_a_checkpoint_that_is_no_folder_is_refused_with_the_key(name: str, folder: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        settings_of({"collect": {"spark_checkpoints": {name: folder}}})
    assert str(refused.value) == (
        f"collect.spark_checkpoints: {name!r} = {folder!r} must be a name and the path of a folder"
    )
