"""Harm in words: however much an incident is, its notification has who, every kind of harm and the first step."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.incidents.context import Family
from streaming.changes.incidents.incident import Incident, degraded
from streaming.changes.incidents.lag_attribution import BrokerAbsence
from streaming.changes.incidents.words import text_of
from streaming.contracts.events import PLANNED_CLASSES, IncidentClass
from streaming.contracts.harm import Harm, notification, topics_named
from tests.examples import examples

SAID = {
    Harm.LOST: r"records may be lost",
    Harm.OFFLINE: r"\bo(?:ffline|r read)\b|written or read",
    Harm.REFUSED: r"refuses? writes|refused writes|writers of .* fail",
}
NAMES = st.one_of(
    st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=249),
    st.sampled_from(["fail", "and", "topic", "topics", "a", "orders", "cannot", "__consumer_offsets", "x-y-changelog"]),
)
BROKERS = st.lists(st.integers(0, 9999), unique=True, max_size=30).map(lambda each: tuple(sorted(each)))
COUNT = r"(\d+) topics?"


@st.composite
def incidents(draw: st.DrawFn) -> Incident:
    """Draw an incident with anything that may be said of it at once."""
    names = draw(st.lists(NAMES, unique=True, min_size=1, max_size=30))
    ids = [f"id-{name}" for name in names]
    some = st.sets(st.sampled_from(ids))
    suspects = draw(BROKERS)
    states = st.tuples(st.just(True), st.booleans(), st.booleans())
    held = {(one, 0): degraded(frozenset({1}), draw(states), draw(st.booleans())) for one in draw(some)}
    is_back = draw(st.booleans())
    incident = Incident(
        incident_id="i", cluster_id="c", cluster="prod", base=Family.LOSS, opened_at=1, updated_at=2, version=1,
        topics=dict(zip(ids, names, strict=True)), held=held, alike=Counter(held.values()),
        leaderless=draw(some), refused=draw(some), unknown=draw(some), lost={*suspects},
        downs=[BrokerAbsence(broker, 1, False, 2 if is_back else None) for broker in suspects],
        work=draw(st.sets(st.text("abc; ,:", max_size=60), max_size=2)), rack=draw(st.text("ab", max_size=80)),
    )  # fmt: skip
    incident.leaderless |= {one for (one, _), each in held.items() if each.states[2]}
    incident.refused |= {one for (one, _), each in held.items() if each.states[1]}
    incident.counts["unclean_elections"] = draw(st.integers(0, 2))
    incident.closed_at = draw(st.sampled_from([None, 3])) if not held else None
    return incident


def harm_of(incident: Incident) -> set[Harm]:
    """Say which harm an incident did."""
    of = {
        Harm.LOST: incident.counts["unclean_elections"],
        Harm.OFFLINE: incident.leaderless,
        Harm.REFUSED: incident.refused,
    }
    return {harm for harm in Harm if of[harm]}


@given(
    incidents(),
    st.sampled_from(IncidentClass),
    st.sampled_from(["prod-17", "c" * 40 + "-1000"]),
    st.dictionaries(st.sampled_from(Harm), st.booleans()),
)
@settings(max_examples=examples(400))
def test_a_notification_keeps_who_every_harm_and_the_first_step(
    incident: Incident, kind: IncidentClass, short_id: str, also: dict[Harm, bool]
) -> None:
    text = text_of(incident, kind, tuple(sorted(incident.lost)))
    facts = text.summary.partition(f"; {text.consequence}")[0]
    said = notification(short_id, facts, text.consequence, text.next_step, also)
    assert len(said) <= 200, said
    assert said.startswith(f"{short_id}: ")
    head, _, step = said.partition(" First: ")
    assert step.split()[0] == text.next_step.split()[0], said
    is_said = kind not in PLANNED_CLASSES | {IncidentClass.CONTROLLER_FAILOVER}
    for harm in (harm_of(incident) if is_said else set()) | also.keys():
        assert re.search(SAID[harm], head), (harm, said)


@given(st.sets(NAMES, min_size=1, max_size=30), st.sampled_from(Harm), st.booleans(), st.text("f", max_size=300))
@settings(max_examples=examples(200))
def test_topics_that_are_not_named_are_counted(names: set[str], harm: Harm, is_over: bool, facts: str) -> None:  # noqa: FBT001 - drawn
    said = notification("p-1", facts, harm.sentence(names, is_over=is_over), "wait")
    assert len(said) <= 200
    counts = re.findall(COUNT, said.replace(topics_named(names), ""))
    assert harm is Harm.LOST or counts in ([], [str(len(names))]), said


OFFLINE = "partitions of topics a and b cannot be written or read"
LONG: dict[str, Any] = {
    "short_id": "judged-1",
    "facts": "brokers 1, 2, 3, 4, 5 and 6 were lost and leaders were elected uncleanly",
    "next_step": "copy the logs of brokers 1, 2, 3, 4, 5 and 6 before they start: they may have what is missing",
}


@pytest.mark.parametrize(
    ("consequence", "also", "said"),
    [
        (
            f"{OFFLINE}, acks=all writers of topic c failed, acknowledged records may be lost",
            {},
            "records may be lost, 2 topics are offline, 1 topic refused writes",
        ),
        (
            f"{OFFLINE}, partitions of topic c could not be written or read",
            {Harm.LOST: False, Harm.REFUSED: True},
            "records may be lost, 2 topics are offline, partitions refuse writes",
        ),
        ("no write was refused", {Harm.OFFLINE: False}, "partitions were offline"),
    ],
)
def test_harm_is_said_briefly_where_there_is_no_room(consequence: str, also: dict[Harm, bool], said: str) -> None:
    whole = notification(consequence=consequence, also=also, **LONG)
    assert f": {said}. First: copy the logs of 6 brokers (1, 2, 3, …)" in whole
    assert whole.startswith("judged-1: 6 brokers (1, 2, 3, …) were"), whole


def test_what_has_room_is_said_as_it_is() -> None:
    loss = "partitions of topic a cannot be written or read, acknowledged records may be lost"
    assert notification("p-1", "broker 3 was lost", loss, "start broker 3") == (
        f"p-1: broker 3 was lost: {loss}. First: start broker 3"
    )
    many = Harm.OFFLINE.sentence([f"{'a' * 60}-{number}" for number in range(4)])
    assert notification("p-1", "broker 3 was lost", many, "start broker 3") == (
        "p-1: broker 3 was lost: partitions of 4 topics cannot be written or read. First: start broker 3"
    )
