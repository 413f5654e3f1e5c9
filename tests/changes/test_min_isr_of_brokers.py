"""``min.insync.replicas`` that topics leave to the brokers: that of the leader counts, and brokers may disagree."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.changes.advice.restart_safety import restart_advice
from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.state import TopicConfig
from streaming.contracts.events import EventKind
from streaming.contracts.identifiers import BrokerId, Offset
from streaming.contracts.observations import MIN_ISR, ConfigObserved, ConfigOrigin
from streaming.contracts.state import PartitionState
from streaming.contracts.stop_effects import (
    UNKNOWN_MIN_ISR,
    WOULD_GO_UNDER_MIN_ISR,
    effects_of_stop,
    loss_by_stops,
    minimum_after,
)
from tests.changes.conftest import Story, folded, only, state_after


def own(story: Story, **values: int) -> None:
    """Report what the file of each broker has: ``b1=2`` is broker 1's minimum of 2."""
    numbers = {int(name[1:]): value for name, value in values.items()}
    story.tell(
        ConfigObserved,
        metadata_offset=None,
        topic="",
        key=MIN_ISR,
        origin=ConfigOrigin.DESCRIBE,
        brokers=tuple(numbers),
        values=tuple(numbers.values()),
    )


def started(**values: int) -> Story:
    story = Story()
    story.snapshot([{"isr": (1, 3), "replicas": (1, 2, 3)}])
    own(story, **values)
    return story


def facts(story: Story) -> tuple[Any, ...]:
    state = only(state_after(story.seen))
    return state.min_isr_configured, state.is_under_min_isr, state.min_isr_by_replica


def test_the_value_of_the_leader_counts_and_another_leader_brings_its_own() -> None:
    story = started(b1=1, b2=3, b3=3)
    assert facts(story) == (1, False, (1, 3, 3))
    story.later().partition(isr=(1, 3), leader=3, leader_epoch=1, partition_epoch=1)
    assert facts(story) == (3, True, (1, 3, 3))
    story.later().partition(isr=(1, 3), leader=1, leader_epoch=2, partition_epoch=2)
    assert facts(story) == (1, False, (1, 3, 3))


def test_where_brokers_agree_nothing_is_kept_of_it() -> None:
    assert facts(started(b1=3, b2=3, b3=3)) == (3, True, None)


def test_the_value_of_a_broker_that_cannot_be_read_is_unknown() -> None:
    assert facts(started(b2=2, b3=2)) == (None, None, (-1, 2, 2))
    assert facts(started(b1=2)) == (2, False, (2, -1, -1))
    assert facts(started(b1=-1, b2=2, b3=2)) == (None, None, (-1, 2, 2))


def test_without_a_leader_the_minimum_is_known_only_if_any_replica_has_the_same() -> None:
    story = started(b1=1, b2=2, b3=2)
    story.later().partition(isr=(1,), leader=-1, leader_epoch=1, partition_epoch=1)
    assert facts(story)[0] is None
    config = TopicConfig(None, of_brokers=((BrokerId(1), 1), (BrokerId(2), 2), (BrokerId(3), 2)))
    assert config.min_isr_led_by(BrokerId(-1), (BrokerId(2), BrokerId(3))) == 2


def alone(story: Story, offset: int, **values: int) -> None:
    """Report which minima are set for single brokers, as the metadata log has them."""
    numbers = {BrokerId(int(name[1:])): value for name, value in values.items()}
    story.tell(
        ConfigObserved,
        metadata_offset=Offset(offset),
        topic="",
        key=MIN_ISR,
        origin=ConfigOrigin.LOG,
        brokers=tuple(numbers),
        values=tuple(numbers.values()),
    )


def test_what_is_set_for_the_leader_alone_counts_before_the_default_of_the_cluster() -> None:
    """KIP-226; whatever brokers have reported of themselves a minute ago."""
    story = started(b1=3, b2=3, b3=3)
    story.later().tell(ConfigObserved, topic="", key=MIN_ISR, value="3", origin=ConfigOrigin.LOG)
    assert facts(story) == (3, True, None)
    alone(story.later(), 1_000, b1=1)
    assert facts(story) == (1, False, (1, 3, 3))
    story.later().partition(isr=(1, 3), leader=3, leader_epoch=1, partition_epoch=1)
    assert facts(story) == (3, True, (1, 3, 3))
    story.later().partition(isr=(1, 3), leader=1, leader_epoch=2, partition_epoch=2)
    alone(story.later(), 2_000)
    assert facts(story) == (3, True, None)


def test_what_is_set_for_a_broker_alone_is_known_before_it_reports_it_and_counts_for_no_topic_with_its_own() -> None:
    story = started(b1=3, b2=3, b3=3)
    alone(story.later(), 1_000, b1=1)
    assert facts(story) == (1, False, (1, 3, 3))
    story.later().tell(ConfigObserved, topic="orders", key=MIN_ISR, value="3", origin=ConfigOrigin.LOG)
    assert facts(story) == (3, True, None)


@pytest.mark.parametrize("topic", ["orders", ""])
def test_the_value_of_the_topic_or_of_the_cluster_counts_before_that_of_brokers(topic: str) -> None:
    """With eligible leader replicas the controller sets that of the cluster (KIP-966)."""
    story = started(b1=1, b2=2, b3=2)
    story.later().config("2", topic=topic)
    assert facts(story) == (2, False, None)
    story.later().config(None, topic=topic)
    assert facts(story) == (1, False, (1, 2, 2))


def test_another_value_of_a_broker_is_an_event_of_what_it_leads_alone() -> None:
    story = started(b1=1, b2=2, b3=2)
    state, _ = folded(story.seen)
    before = len(story.seen)
    own(story.later(), b1=1, b2=3, b3=2)
    _, changes = folded(story.seen[before:], state)
    assert not [event for change in changes for event in change.events if event.event is EventKind.MIN_ISR_CHANGE]
    assert only(state).min_isr_by_replica == (1, 3, 2)
    before = len(story.seen)
    own(story.later(), b1=3, b2=3, b3=2)
    _, changes = folded(story.seen[before:], state)
    (event,) = (one for change in changes for one in change.events if one.event is EventKind.MIN_ISR_CHANGE)
    assert (event.detail, only(state).is_under_min_isr) == ("1 to 3", True)


def shape(**fields: Any) -> PartitionState:
    known = {"replicas": (1, 2, 3), "isr": (1, 2), "leader": 2, "min_isr_effective": 2, "is_under_min_isr": False}
    return PartitionState("c", "c", "t", "t", 0, **{**known, "min_isr_by_replica": (1, 2, 2), **fields})  # type: ignore[arg-type]


def test_a_stop_is_judged_by_who_leads_afterwards() -> None:
    partition = shape()
    assert (minimum_after(partition, {2}), minimum_after(partition, {1})) == (1, 2)
    assert WOULD_GO_UNDER_MIN_ISR not in effects_of_stop(partition, 2)  # 1 leads then, and is content with itself
    assert WOULD_GO_UNDER_MIN_ISR in effects_of_stop(partition, 1)
    assert [loss_by_stops(partition, {each}, {1, 2, 3}) for each in (1, 2)] == [WOULD_GO_UNDER_MIN_ISR, None]
    assert effects_of_stop(shape(min_isr_by_replica=(-1, 2, 2)), 2) == [UNKNOWN_MIN_ISR]


def test_the_advice_takes_the_minimum_of_the_leader_after_the_stop() -> None:
    story = Story()
    story.snapshot([{"isr": (1, 2), "replicas": (1, 2), "leader": 2}], brokers=(1, 2))
    own(story, b1=1, b2=2)
    state = state_after(story.seen)
    (cluster,) = state.clusters.values()
    advice = restart_advice(state.brokers.values(), cluster, SuspectTally(state.partitions()))
    assert {number: each.is_safe_to_stop for number, each in advice.items()} == {1: False, 2: True}


def test_what_brokers_say_before_the_primary_source_knows_them_counts_once_it_does() -> None:
    story = Story()
    own(story, b1=1, b2=2, b3=2)
    state, changes = folded(story.seen)
    assert not any(broker.is_registered for broker in state.brokers.values())
    assert not any(change.events for change in changes)
    story.later().snapshot([{"isr": (1, 3), "replicas": (1, 2, 3)}])
    assert facts(story) == (1, False, (1, 2, 2))
