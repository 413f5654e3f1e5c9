"""Throttles that limit something, and those that a reassignment left behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streaming.contracts.durability import LeftThrottles, ThrottledReplicas, ThrottleRates, left_throttles

NOTHING = LeftThrottles({}, {})
LISTS = st.sampled_from([None, "", "none", "*", "0:1", "0:1,1:2", " 0:2 , 1:3", "1:13"])
RATES = st.builds(ThrottleRates, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))


def test_a_rate_limits_the_replicas_that_a_topic_lists_for_its_role() -> None:
    rates = {1: ThrottleRates(leader=1000), 2: ThrottleRates(follower=1000), 3: ThrottleRates()}
    assert ThrottledReplicas("0:1,0:2", "").limited_by(rates) == [1]
    assert ThrottledReplicas("", "0:1,0:2").limited_by(rates) == [2]
    assert ThrottledReplicas("*", "*").limited_by(rates) == [1, 2]
    assert ThrottledReplicas("0:3", "1:11").limited_by(rates) == []
    assert ThrottledReplicas("none", None).limited_by(rates) == []


def test_what_a_reassignment_left_is_named_with_what_it_limits() -> None:
    topics = {"b": ThrottledReplicas("0:1", "0:2"), "a": ThrottledReplicas("0:9", ""), "c": ThrottledReplicas("", "")}
    rates = {1: ThrottleRates(leader=1), 2: ThrottleRates(follower=1), 3: ThrottleRates(leader=1), 4: ThrottleRates()}
    assert left_throttles(topics, rates, reassigning=0) == LeftThrottles(
        topics={"a": [], "b": [1, 2]}, brokers={1: ["b"], 2: ["b"], 3: []}
    )
    assert left_throttles(topics, rates, reassigning=1) == NOTHING


@given(
    topics=st.dictionaries(st.sampled_from("abc"), st.builds(ThrottledReplicas, LISTS, LISTS)),
    rates=st.dictionaries(st.integers(1, 3), RATES),
)
def test_both_sides_tell_the_same(topics: dict[str, ThrottledReplicas], rates: dict[int, ThrottleRates]) -> None:
    left = left_throttles(topics, rates, reassigning=0)
    assert {(topic, broker) for topic, brokers in left.topics.items() for broker in brokers} == {
        (topic, broker) for broker, limited in left.brokers.items() for topic in limited
    }
    assert left.topics.keys() == {name for name, each in topics.items() if each.is_set}
    assert left.brokers.keys() == {broker for broker, each in rates.items() if each != ThrottleRates()}
