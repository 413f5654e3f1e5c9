"""Totals against the model's own account, which knows nothing of the fold: what is said holds until the next is said.

Deletion, creation of the same name again, a change of the primary source and back. Rebuilt clusters and lost polls are
in ``test_unobserved``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.sources import SILENCE
from streaming.contracts.observations import (
    Observation,
    PartitionObserved,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotReason,
    SourceKind,
    TopicRemoved,
)
from streaming.contracts.state import COUNTS, SECONDS
from streaming.delta.projections.projections import cluster_rows
from tests.blocks import singly
from tests.changes.test_unobserved import Look, account
from tests.changes.worlds import WORLDS, applied, log_of, mixed, numbered, polls_of, stretched
from tests.examples import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streaming.changes.state import ReplicationState

MICROS: Final = 1_000_000
SLOWER: Final = 10  # so that there is time for a silence
# Of the others some topics are diskless for a while.
worlds = st.integers(0, WORLDS - 1).filter(lambda world: world % 3)


def totals_of(state: ReplicationState) -> dict[str, Any]:
    (row,) = cluster_rows(state, SuspectTally(state.partitions()), 1)
    return {name: row[name] for name in (*COUNTS, *SECONDS)}


def looks_at(told: Iterable[Observation]) -> list[Look]:
    """What is there after each observation; a full report lists everything, its end removes the rest."""
    states: dict[Any, PartitionObserved] = {}
    listed: set[Any] = set()
    looks: list[Look] = []
    for it in singly(told):
        if isinstance(it, SnapshotBegin):
            listed = set()
        elif isinstance(it, PartitionObserved):
            states = {**states, (it.topic_id, it.partition): it}
            listed.add((it.topic_id, it.partition))
        elif isinstance(it, SnapshotEnd):
            states = {key: state for key, state in states.items() if key in listed}
        elif isinstance(it, TopicRemoved):
            states = {key: state for key, state in states.items() if key[0] != it.topic_id}
        looks.append(Look(it.occurred_not_after, states, is_after_gap=False))
    return looks


def steps_of(told: Iterable[Observation]) -> Counter[str]:
    """Count what happened to partitions, from one observation of each to the next."""
    counts: Counter[str] = Counter()
    for one, two in pairwise(looks_at(told)):
        for key, after in two.states.items():
            before = one.states.get(key)
            if before is not None and before is not after:
                counts["isr_shrinks"] += not set(before.isr) <= set(after.isr)
                counts["isr_expands"] += not set(after.isr) <= set(before.isr)
                counts["leader_changes"] += before.leader != after.leader
    return counts


@settings(max_examples=examples(8))
@given(world=worlds, dice=st.integers(0, 2**32).map(Random))
def test_the_counts_of_a_log_are_those_of_its_steps_topics_that_were_deleted_and_made_again_included(
    world: int, dice: Random
) -> None:
    log = log_of(world)
    totals = totals_of(applied(mixed([log], dice)).state)

    steps = steps_of(log)
    spent = sum(account(looks_at(log)).values(), Counter[str]())

    assert {name: totals[name] for name in steps} == steps
    assert totals["missed_changes"] == 0
    for name in ("offline_seconds", "under_replicated_seconds", "unknown_seconds"):
        assert totals[name] == pytest.approx(spent[name] / MICROS, abs=1e-5)


@settings(max_examples=examples(8))
@given(world=worlds, dice=st.integers(0, 2**32).map(Random))
def test_totals_stay_true_when_a_poller_takes_a_cluster_over_and_the_log_comes_back(world: int, dice: Random) -> None:
    """What was there while nobody looked is unknown; of the rest each source says its part."""
    log = stretched(log_of(world), SLOWER)
    begins = [n for n, it in enumerate(log) if isinstance(it, SnapshotBegin)]
    assume(len(begins) > 1)
    back = dice.choice(begins[1:])
    ended = dice.randrange(next(n for n, it in enumerate(log) if isinstance(it, SnapshotEnd)) + 1, back + 1)
    silent_since, resumed = log[ended - 1].occurred_not_after, log[back].occurred_not_after
    polls = [
        it
        for it in polls_of(log, SourceKind.POLL)
        if silent_since + SILENCE < it.occurred_not_after and it.occurred_not_after < resumed
    ]
    assume(polls)
    first, rest = log[:ended], (replace(log[back], reason=SnapshotReason.START), *log[back + 1 :])
    told = numbered((*first, *rest))
    found = applied([
        *mixed([told[:ended]], dice), *mixed([numbered(polls)], dice), *mixed([told[ended:]], dice, replays=False)
    ])  # fmt: skip

    totals, looks = totals_of(found.state), list[Look]()
    for part in (first, polls, rest):
        of_part = _after_reports(looks_at(part), part)
        looks += [of_part[0]._replace(is_after_gap=bool(looks)), *of_part[1:]]
    spent = sum(account(looks).values(), Counter[str]())

    for name in ("offline_seconds", "under_replicated_seconds", "unknown_seconds"):
        assert totals[name] == pytest.approx(spent[name] / MICROS, abs=1e-5), name


def _after_reports(looks: list[Look], told: Sequence[Observation]) -> list[Look]:
    """Leave out the looks within the first full report: only its end says everything."""
    end = next(n for n, it in enumerate(singly(told)) if isinstance(it, SnapshotEnd))
    return looks[end:]
