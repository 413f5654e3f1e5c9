"""Every scenario's incidents, as its truth tells them: from the simulated source through the fold, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.changes.fold import fold
from streaming.changes.incidents.context import ChangeRow
from streaming.changes.incidents.document import decode_incident, encode_incident
from streaming.changes.incidents.grouping import IncidentFold, IncidentGaps
from streaming.changes.state import ReplicationState
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import Channel
from streaming.delta.changes.log import changes_to_arrow
from streaming.delta.incidents.rows import incident_row, rows_of
from streaming.sources.simulated import load_scenario
from tests.changes.conftest import EXPAND, FENCED, LAG, STOPPED, Story, rows_from
from tests.examples import examples
from tests.plays import SCENARIOS, SECOND, START, fresh, observations

# A follower may lag for one and a half times the limit, a session ends before that; leaders return a while after.
NOTICED_WITHIN, LAST_CHANGE_WITHIN = 12 * SECOND, 25 * SECOND
QUIET = 65  # between the incidents that `repeat` makes one and those it does not


class FoundIncident(NamedTuple):
    """One incident, as truth or table tell it. Times in seconds from the begin."""

    kind: str
    suspects: tuple[int, ...]
    begin: float
    end: float


@cache
def changes_of(name: str, seed: int = 1, times: float = 1) -> tuple[ChangeRow, ...]:
    seconds = round(times * load_scenario(name).duration)
    seen = observations(name, seconds) if seed == 1 else fresh(name, seconds, seed).observations
    folded = fold(ReplicationState(), (it for it in seen if it.channel is Channel.REPLICATION))
    return tuple(rows_of(changes_to_arrow(folded.changes), 1))


def table_of(
    batches: Iterable[Sequence[ChangeRow]], gaps: IncidentGaps, *, restart: bool = False
) -> dict[str, dict[str, Any]]:
    """The table that batches give; with a restart before each of them, from what the table carries."""
    incidents, table = IncidentFold(gaps), dict[str, dict[str, Any]]()
    for batch in batches:
        if restart:
            carried = (row["carried"] for row in table.values() if row["carried"])
            incidents = IncidentFold(gaps, map(decode_incident, carried), incidents.contexts)
        for incident in incidents.fold(batch):
            table[incident.incident_id] = incident_row(incident, 1, may_go_on=incidents.remembered(incident))
    return table


def standing(rows: Sequence[ChangeRow], gaps: IncidentGaps | None = None) -> list[dict[str, Any]]:
    """The incidents that were merged into no other one, in their order."""
    table = table_of([rows], gaps or IncidentGaps()).values()
    return sorted((it for it in table if it["merged_into"] is None), key=lambda it: (it["opened_at"], it["brokers"]))


def named(rows: Sequence[ChangeRow]) -> list[tuple[str, list[int]]]:
    """The incidents that stand: class and suspects."""
    return [(row["incident_class"], [each["broker"] for each in row["suspects"]]) for row in standing(rows)]


def kinds_in(story: Story) -> list[str]:
    return [kind for kind, _ in named(rows_from(story.seen))]


def found_in(name: str, seed: int = 1, times: float = 1, quiet: int = 60) -> list[FoundIncident]:
    rows = standing(changes_of(name, seed, times), IncidentGaps(usual=quiet * SECOND))
    return [
        FoundIncident(
            row["incident_class"],
            tuple(suspect["broker"] for suspect in row["suspects"]),
            (row["opened_at"] - START) / SECOND,
            (row["updated_at"] - START) / SECOND,
        )
        for row in rows
    ]


def truth_of(name: str, times: int = 1, quiet: int = 60) -> list[FoundIncident]:
    """What a scenario says ought to be found; the same again within the gap is the same incident."""
    scenario = load_scenario(name)
    told: list[FoundIncident] = []
    for turn in range(times):
        for it in scenario.truth.incidents:
            shift = turn * scenario.duration
            one = FoundIncident(it.kind, it.suspects, it.begin + shift, it.end + shift)
            gap = 900 if it.kind == "rolling_restart" else quiet
            before = [other for other in told if other[:2] == one[:2] and one.begin - other.end <= gap]
            told = [other for other in told if other not in before]
            told.append(one._replace(begin=before[0].begin) if before else one)
    return told


def assert_equal(found: list[FoundIncident], truth: list[FoundIncident]) -> None:
    key = FoundIncident.__getitem__
    found, truth = (sorted(it, key=lambda told: (key(told, 0), key(told, 1), told.begin)) for it in (found, truth))
    assert [told[:2] for told in found] == [told[:2] for told in truth]
    for ours, theirs in zip(found, truth, strict=True):
        assert theirs.begin <= ours.begin <= theirs.begin + NOTICED_WITHIN / SECOND, (ours, theirs)
        assert theirs.end - LAST_CHANGE_WITHIN / SECOND <= ours.end <= theirs.end + 6, (ours, theirs)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_incidents_of_a_scenario_are_those_its_truth_names(name: str, seed: int) -> None:
    assert_equal(found_in(name, seed), truth_of(name))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in SCENARIOS if load_scenario(name).repeat])
def test_a_scenario_played_twice_gives_its_incidents_again_or_makes_them_longer(name: str) -> None:
    assert_equal(found_in(name, times=2, quiet=QUIET), truth_of(name, times=2, quiet=QUIET))


@pytest.mark.parametrize(
    "name",
    [
        "broker_loss+reassignment",
        "network_split+reassignment",
        "rack_loss+reassignment",
        "controller_failover+slow_follower",
        "disk_failure+rack_loss",
        "slow_follower+rack_loss",
    ],
)
def test_two_troubles_at_once_are_two_incidents(name: str) -> None:
    assert_equal(found_in(name), truth_of(name))


def test_a_controller_that_is_elected_again_is_not_another_one(story: Story) -> None:
    story.controller(101, 1)
    story.snapshot([{}])
    for node, epoch, said in (
        (101, 2, "controller 101 was elected again: it restarted, or the quorum had lost touch with it"),
        (102, 3, "another controller took over"),
    ):
        story.later().controller(node, epoch)
        (newest,) = standing(rows_from(story.seen))[-1:]
        assert (newest["incident_class"], newest["summary"]) == ("controller_failover", said)
        carried = decode_incident(newest["carried"]) if newest["carried"] else None
        assert carried is None or encode_incident(carried) == newest["carried"]


def test_a_clean_restart_after_a_crash_of_another_broker_is_an_incident_of_its_own(story: Story) -> None:
    story.snapshot([{}])
    story.later().partition(isr=(1, 2), partition_epoch=1, **FENCED)
    story.broker(3, fenced=True)
    story.later().broker(3, broker_epoch=9)
    story.later().partition(isr=(1, 2, 3), partition_epoch=2, **EXPAND)
    story.later().broker(2, in_controlled_shutdown=True)
    story.partition(isr=(1, 3), partition_epoch=3, **STOPPED)
    story.later().broker(2, broker_epoch=12)
    assert kinds_in(story) == ["broker_loss", "controlled_shutdown"]


@pytest.mark.parametrize("isr_of_the_stalled", [(2,), (2, 3)])
def test_a_clean_stop_of_a_follower_that_a_stalled_leader_expelled_is_an_incident_of_its_own(
    story: Story, isr_of_the_stalled: tuple[int, ...]
) -> None:
    two_leads: dict[str, Any] = {"leader": 2, "replicas": (2, 3, 1)}
    story.snapshot([{}, two_leads])
    story.later().partition(isr=(1, 3), partition_epoch=1, **LAG)
    story.later(1.5).partition(1, isr=isr_of_the_stalled, partition_epoch=1, **two_leads, **LAG)
    story.later(0.2).partition(isr=(1, 2, 3), partition_epoch=2, **EXPAND)
    story.partition(1, isr=(1, 2, 3), partition_epoch=2, **two_leads, **EXPAND)
    story.later(0.1).broker(1, in_controlled_shutdown=True)
    story.partition(1, isr=(2, 3), partition_epoch=3, **two_leads, **STOPPED)
    story.later().broker(1, broker_epoch=12)
    assert named(rows_from(story.seen)) == [("leader_stall", [2]), ("controlled_shutdown", [1])]


@pytest.mark.parametrize("first", ["the others", "the stalled"])
def test_what_a_stalled_leader_says_of_a_broker_lost_before_explains_no_stop(story: Story, first: str) -> None:
    leads: list[dict[str, Any]] = [{}, {"leader": 2, "replicas": (2, 3, 1)}, {"leader": 3, "replicas": (3, 1, 2)}]
    story.snapshot(leads)
    story.later().partition(isr=(1, 2), partition_epoch=1, **FENCED)
    story.broker(3, fenced=True)
    story.later().broker(3, broker_epoch=9)
    story.later().partition(isr=(1, 2, 3), partition_epoch=2, **EXPAND)
    by_others = [(0, (1, 3), 3), (2, (3, 1), 1)]
    by_the_stalled = [(1, (2,), 1)]
    for number, isr, epoch in [*by_others, *by_the_stalled] if first == "the others" else [*by_the_stalled, *by_others]:
        story.later(1.5).partition(number, isr=isr, partition_epoch=epoch, **leads[number], **LAG)
    for number, epoch in ((0, 4), (1, 2), (2, 2)):
        story.later(0.1).partition(number, isr=(1, 2, 3), partition_epoch=epoch, **leads[number], **EXPAND)
    story.later(0.1).broker(1, in_controlled_shutdown=True)
    story.partition(1, isr=(2, 3), partition_epoch=3, **leads[1], **STOPPED)
    story.later().broker(1, broker_epoch=12)
    rows = rows_from(story.seen)

    # If the stalled is first, nothing says yet that it is to blame: the broker that is just back may lag again.
    lagged = "leader_stall" if first == "the others" else "slow_follower"
    assert named(rows) == [("broker_loss", [3]), (lagged, [2]), ("controlled_shutdown", [1])]
    if first == "the others":
        assert [row["isr_shrinks"] for row in standing(rows)] == [1, 3, 1]


def test_a_slow_broker_that_is_restarted_cleanly_is_no_turn_of_an_earlier_crash(story: Story) -> None:
    story.snapshot([{}])
    story.later().partition(isr=(1, 2), partition_epoch=1, **FENCED)
    story.broker(3, fenced=True)
    story.later().broker(3, broker_epoch=9)
    story.later().partition(isr=(1, 2, 3), partition_epoch=2, **EXPAND)
    story.later().partition(isr=(1, 3), partition_epoch=3, **LAG)
    story.later().partition(isr=(1, 2, 3), partition_epoch=4, **EXPAND)
    story.later().broker(2, in_controlled_shutdown=True)
    story.partition(isr=(1, 3), partition_epoch=5, **STOPPED)
    story.later().broker(2, broker_epoch=12)
    assert kinds_in(story) == ["broker_loss", "slow_follower", "controlled_shutdown"]


def test_brokers_that_lag_before_they_are_lost_together_are_one_incident() -> None:
    """Its lag limit is below its session."""
    assert [told[:2] for told in found_in("flapping_follower+rack_loss")] == [("rack_loss", (3, 4))]
    table = table_of([changes_of("flapping_follower+rack_loss")], IncidentGaps()).values()
    assert {row["under_replicated_now"] for row in table if row["merged_into"] is not None} == {0}


@settings(max_examples=examples(8))
@given(st.data(), st.sampled_from(["broker_loss", "flapping_follower", "rolling_restart_unclean", "network_split"]))
def test_batches_may_be_cut_anywhere_and_the_job_restarted_between_them(data: st.DataObject, name: str) -> None:
    rows = changes_of(name, times=2)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=12)))
    batches = [rows[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    expected = table_of([rows], IncidentGaps())
    assert table_of(batches, IncidentGaps()) == expected
    assert table_of(batches, IncidentGaps(), restart=True) == expected


@pytest.mark.parametrize("name", ["broker_loss", "network_split", "rolling_restart_unclean", "reassignment"])
def test_an_incident_is_read_back_as_it_was_written_at_every_moment(name: str) -> None:
    incidents = IncidentFold(IncidentGaps())
    for row in changes_of(name):
        for incident in incidents.fold([row]):
            assert decode_incident(encode_incident(incident)) == incident


def test_the_sentence_says_what_a_person_must_know() -> None:
    table = table_of([changes_of("under_min_isr")], IncidentGaps())
    (summary,) = (row["summary"] for row in table.values())
    assert summary == (
        "brokers 2 and 3 were lost: up to 12 partitions under-replicated (36.9 s in all), up to 6 under min ISR "
        "(17.6 s in all); acks=all writers of topic payments failed; recovered"
    )


def offline(*topics: str) -> dict[str, Any]:
    """The incident of a broker that was lost with the only replicas of some topics."""
    story = Story()
    story.snapshot()
    story.config("1", topic="")
    alive = {"replicas": (1,), "isr": (1,), "cause": Cause.CREATED}
    dead = {"replicas": (1,), "leader": -1, "isr": (1,), "partition_epoch": 1, "cause": Cause.FENCED}
    for fields in (alive, dead):
        story.later()
        for topic in topics:
            observed = story.partition(**fields, evidence=Evidence.PROVEN)
            story.seen[-1] = replace(observed, topic_id=f"id-{topic}", topic=topic)
    story.broker(1, fenced=True)
    rows = rows_from(story.seen)
    (incident,) = standing(rows)
    return incident


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (("b",), "topic b"),
        (("b", "a"), "topics a and b"),
        (("c", "b", "a"), "topics a, b and c"),
        (("d", "c", "b", "a"), "4 topics (a, b, c, …)"),
    ],
)
def test_the_consequence_names_up_to_three_topics(topics: tuple[str, ...], said: str) -> None:
    assert offline(*topics)["consequence"] == f"partitions of {said} cannot be written or read"


def test_the_consequence_says_what_fails_with_internal_topics_whose_role_is_certain() -> None:
    said = offline("__transaction_state", "__consumer_offsets", "connect-offsets")
    assert said["consequence"] == (
        "partitions of topics __consumer_offsets, __transaction_state and connect-offsets cannot be written or read, "
        "commits and rebalances of the groups kept there fail, "
        "transactions of the transactional ids kept there fail"
    )
    assert said["consequence"] in said["summary"]


def test_what_to_do_first_is_said_until_it_is_done() -> None:
    def reported() -> tuple[str, str]:
        (row,) = standing(rows_from(story.seen))
        return row["summary"], row["next_step"]

    story = Story()
    story.config("1")
    story.snapshot([{}])
    story.later().broker(3, fenced=True)
    story.partition(isr=(1, 2), partition_epoch=1, **FENCED)
    start = "start broker 3 again, and stop no other broker meanwhile"
    degraded = "broker 3 was lost: 1 partition under-replicated, 0 under min ISR, 1 still under-replicated"
    assert reported() == (f"{degraded}; writes continue with fewer copies; {start}", start)

    story.later(20).broker(3, fenced=False)
    assert reported()[1] == "wait until broker 3 has caught up, and stop no other broker meanwhile"

    story.later(5).partition(partition_epoch=2, **EXPAND)
    mended = "broker 3 was lost: 1 partition under-replicated (25 s in all), 0 under min ISR"
    assert reported() == (f"{mended}; no write was refused; recovered", "find out why, before it comes again")


def test_a_reassignment_counts_the_partitions_that_have_still_to_move() -> None:
    def summaries() -> list[str]:
        return [row["summary"] for row in standing(rows_from(story.seen))]

    moving = {"replicas": (1, 2, 3, 4), "adding_replicas": (4,), "removing_replicas": (3,)}
    moved = {"replicas": (1, 2, 4), "isr": (1, 2, 4)}
    cause = {"cause": Cause.REASSIGNMENT, "evidence": Evidence.PROVEN}
    story = Story()
    story.snapshot([{}, {}])
    for number in (0, 1):
        story.later().partition(number, partition_epoch=1, **moving, **cause)
    assert [summary.rpartition(", ")[2] for summary in summaries()] == ["2 still moving"]
    ended = ("partitions are being reassigned: 2 partitions, 1 still moving", "a reassignment ended: 2 partitions")
    for number, said in enumerate(ended):
        story.later().partition(number, partition_epoch=2, **moved, **cause)
        assert summaries() == [said]


def test_seconds_are_those_of_the_partitions_states() -> None:
    """The sum of what every partition counted for itself."""
    seen = observations("under_min_isr")
    folded = fold(ReplicationState(), (it for it in seen if it.channel is Channel.REPLICATION))
    partitions = list(folded.touched.partitions())
    (row,) = table_of([tuple(rows_of(changes_to_arrow(folded.changes), 1))], IncidentGaps()).values()
    for name in ("under_replicated", "under_min_isr", "offline"):
        expected = sum(getattr(partition, f"{name}_seconds") for partition in partitions)
        assert row[f"{name}_partition_seconds"] == pytest.approx(expected), name
    assert row["isr_shrinks"] == sum(partition.isr_shrinks for partition in partitions)
    assert row["isr_expands"] == sum(partition.isr_expands for partition in partitions)
    assert row["leader_changes"] == sum(partition.leader_changes for partition in partitions)
