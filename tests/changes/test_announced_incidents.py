"""What planned work on a broker makes of an incident, and what it never does: faults played, leases announced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streaming.changes.incidents.context import ChangeRow
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import IN_ITS_TAIL, MaintenanceObserved, SourceKind
from tests.changes.conftest import Story
from tests.changes.faults import Fault, observed, of, rows_from
from tests.changes.test_incidents import SECOND, START, named, standing, table_of

Announcement = tuple[float, float, int] | tuple[float, float, int, str, str]
"""From when until when, seconds, of which broker; and why, and of which lease, if not a new one because of a disk."""


def played(
    faults: Sequence[Fault], seconds: int, leases: Sequence[Announcement], **topic: Any
) -> tuple[ChangeRow, ...]:
    """Play faults on six brokers while planned work is announced; the rows of the change log."""
    announced = [
        MaintenanceObserved(
            cluster_id=ClusterId("c"), cluster="c", source="maintenance:host", source_kind=SourceKind.NONE,
            sequence=number, occurred_not_before=at, occurred_not_after=at, collected_at=at, broker=BrokerId(broker),
            lease=lease or f"lease-{number}", lease_until=Micros(START + int(until * SECOND)), why=why,
        )
        for number, each in enumerate(leases, start=1)
        for begin, until, broker, why, lease in [each if len(each) == 5 else (*each, "new disk", "")]
        if (at := Micros(START + int(begin * SECOND)))
    ]  # fmt: skip
    seen = observed(faults, seconds, **topic)
    return rows_from(sorted([*seen, *announced], key=lambda it: it.occurred_not_after))


def summaries(rows: Sequence[ChangeRow]) -> list[str]:
    return [row["summary"].rpartition(": ")[0] for row in standing(rows)]


def crash(broker: int, at: float, seconds: float) -> list[Fault]:
    return [*of("kill", broker, at=at), *of("start", broker, at=at + seconds)]


def stop(broker: int, at: float, seconds: float) -> list[Fault]:
    return [*of("stop", broker, at=at), *of("start", broker, at=at + seconds)]


def test_a_crash_of_a_broker_whose_work_is_announced_is_planned_and_without_the_announcement_a_loss() -> None:
    faults = crash(3, 30, 20)
    assert named(played(faults, 120, [(20, 100, 3)])) == [("controlled_shutdown", [3])]
    assert named(played(faults, 120, [])) == [("broker_loss", [3])]


def test_the_summary_never_calls_a_crash_during_announced_work_a_clean_stop() -> None:
    assert summaries(played(crash(3, 30, 20), 120, [(20, 100, 3)])) == [
        "broker 3 went down during announced work (new disk)"
    ]
    assert summaries(played(stop(3, 30, 20), 120, [])) == ["broker 3 was stopped cleanly"]


def test_an_announced_clean_stop_names_the_announcement() -> None:
    assert summaries(played(stop(3, 30, 20), 120, [(20, 100, 3)])) == [
        "broker 3 was stopped cleanly (announced: new disk)"
    ]
    refusing = played(stop(3, 30, 20), 120, [(20, 100, 3)], replication_factor=2, min_insync_replicas=2)
    assert summaries(refusing) == [
        "broker 3 was stopped though partitions had no replica to spare (announced: new disk)"
    ]
    assert summaries(played(stop(3, 30, 20), 120, [(60, 100, 3)])) == ["broker 3 was stopped cleanly"], (
        "announced later"
    )


@pytest.mark.parametrize("killed", [19.9, 22])
def test_an_announced_crash_while_the_controller_stands_still_is_no_broker_that_runs(killed: float) -> None:
    """What it sent in the stall unfences the broker, which is down, for one more session."""
    faults = [*of("pause", -100, at=20), *of("resume", -100, at=29), *of("kill", 2, at=killed)]
    summary = "broker 2 went down during announced work (new disk) (controller 100 stood still for 9 s)"
    assert summaries(played([*faults, *of("start", 2, at=60)], 140, [(15, 110, 2)])) == [summary]
    assert named(played(faults, 140, [(15, 60, 2)])) == [("broker_loss", [2])], "its time is over"
    assert named(played(faults, 140, [])) == [("broker_loss", [2])]


def test_what_an_announced_crash_cost_until_it_was_noticed_is_said() -> None:
    rows = played(crash(3, 30, 20), 120, [(20, 100, 3)])
    (row,) = standing(rows)
    assert (row["severity"], row["consequence"]) == (
        "info",
        "any partition that broker 3 led had no leader until its session expired",
    )


@pytest.mark.parametrize(
    ("brokers", "said"),
    [
        ((3,), "unless it was stopped cleanly, any partition that broker 3 led"),
        ((2, 3), "unless they were stopped cleanly, any partition that brokers 2 and 3 led"),
    ],
)
def test_where_a_clean_stop_is_only_inferred_what_a_crash_would_have_cost_is_said(
    brokers: tuple[int, ...], said: str
) -> None:
    poll = Story("admin:a", SourceKind.POLL)
    poll.config("1")
    poll.snapshot([{"partition_epoch": None}])
    for broker in brokers:
        poll.add(poll.lease(broker, lease=f"of {broker}"))
    left = tuple(broker for broker in (1, 2, 3) if broker not in brokers)
    stopped = {"cause": Cause.CONTROLLED_SHUTDOWN, "evidence": Evidence.INFERRED}
    poll.later().partition(isr=left, partition_epoch=None, **stopped)
    for broker in brokers:
        poll.broker(broker, fenced=True)
    (row,) = standing(rows_from(poll.seen))
    assert row["consequence"].startswith(f"{said} had no leader until ")


@pytest.mark.parametrize(("back_at", "said"), [(None, "was lost"), (150, "was lost and came back late")])
def test_a_crash_whose_announced_work_overran_is_called_lost_and_no_clean_stop(back_at: int | None, said: str) -> None:
    back: list[Fault] = [] if back_at is None else [(back_at, "start", {"broker": 3})]
    rows = played([(30, "kill", {"broker": 3}), *back], 260, [(20, 120, 3)])
    (row,) = standing(rows)
    overran = "its announced work overran at 2023-11-14 22:15:20Z (new disk)"
    assert row["incident_class"] == "broker_loss"
    assert row["summary"].startswith(f"broker 3 {said}, {overran}: up to ")


def command(began: float, ended: float, broker: int) -> list[Announcement]:
    """The records of a command under a lease: renewed for two minutes, then a tail of a minute."""
    lease = f"of broker {broker}"
    return [(began, began + 120, broker, "upgrade", lease), (ended, ended + 60, broker, f"upgrade{IN_ITS_TAIL}", lease)]


def of_broker_3(rows: Sequence[ChangeRow]) -> tuple[str, str]:
    (row,) = (row for row in standing(rows) if 3 in [each["broker"] for each in row["suspects"]])
    return row["incident_class"], row["summary"].rpartition(": ")[0]


EARLIER = stop(5, 5, 7)
OF_EARLIER: list[Announcement] = [(2, 300, 5, "new disk", "disk"), (18, 18, 5, "new disk", "disk")]


def test_a_stop_within_the_tail_of_a_command_that_has_ended_is_not_its_overrun() -> None:
    """The second stop of broker 3 lasts a few seconds longer than the tail of the command that made the first."""
    rows = played([*EARLIER, *stop(3, 30, 10), *stop(3, 100, 14)], 300, [*OF_EARLIER, *command(25, 45, 3)])
    assert of_broker_3(rows) == ("rolling_restart", "rolling restart of brokers 3 and 5 (announced: new disk; upgrade)")


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_that_its_command_left_down_overran_and_only_its_own_work_is_said(ending: str) -> None:
    """One that was killed is fenced a session later, when the command has ended already."""
    rows = played([*EARLIER, (43, ending, {"broker": 3})], 300, [*OF_EARLIER, *command(25, 45, 3)])
    what = "did not come back from a clean stop" if ending == "stop" else "was lost"
    overran = "its announced work overran at 2023-11-14 22:15:05Z (upgrade)"
    assert of_broker_3(rows) == ("broker_loss", f"broker 3 {what}, {overran}")


def test_a_clean_stop_whose_announced_work_overran_is_still_called_one() -> None:
    rows = played([(30, "stop", {"broker": 3})], 260, [(20, 120, 3)])
    (row,) = standing(rows)
    overran = "its announced work overran at 2023-11-14 22:15:20Z (new disk)"
    assert row["summary"].startswith(f"broker 3 did not come back from a clean stop, {overran}: ")


@pytest.mark.parametrize("delay", [-8, 3, *(pytest.param(it, marks=pytest.mark.long) for it in (-3, 0, 1, 6, 20))])
@pytest.mark.parametrize("turn", [[], stop(2, 10, 10)])
def test_an_incident_with_harm_never_says_that_clients_notice_nothing(delay: int, turn: list[Fault]) -> None:
    """A broker goes down as announced, and another one without: both cost the same partitions their minimum ISR."""
    faults: list[Fault] = [*turn, *crash(3, 50, 40), *crash(2, 50 + delay, 40)]
    table = list(table_of([played(faults, 160, [(40, 150, 3)])], IncidentGaps()).values())
    assert any(row["incident_class"] == "broker_loss" and row["severity"] == "critical" for row in table)
    for row in table:
        is_harmed = row["under_min_isr_peak"] or row["offline_peak"]
        assert not (is_harmed and "notice nothing" in row["consequence"]), row["summary"]
        if is_harmed and row["severity"] == "info":
            assert row["consequence"].endswith("planned work alone does not explain: other brokers were missing, too")


def test_of_another_broker_it_is_not_planned() -> None:
    assert named(played(crash(5, 30, 20), 120, [(20, 100, 3)])) == [("broker_loss", [5])]


def test_a_crash_of_another_broker_meanwhile_is_a_loss_beside_it_or_makes_it_one() -> None:
    found = named(played([*crash(3, 30, 60), *crash(5, 60, 20)], 160, [(20, 150, 3)]))
    assert ("broker_loss", [5]) in [(kind, [broker for broker in suspects if broker == 5]) for kind, suspects in found]


def test_of_planned_work_it_is_not_said_that_clients_notice_nothing_while_a_crash_beside_it_refuses_writes() -> None:
    faults = [(10.0, "stop", {"broker": 3}), (15.0, "kill", {"broker": 4}), (60.0, "start", {"broker": 4})]
    table = table_of([played(faults, 90, [(5, 900, 3)])], IncidentGaps()).values()
    said = {row["incident_class"]: (row["severity"], row["consequence"]) for row in table}
    failed = "acks=all writers of topic orders failed"
    assert said == {
        "controlled_shutdown": (
            "info",
            f"{failed}, which planned work alone does not explain: other brokers were missing, too",
        ),
        "broker_loss": ("critical", failed),
    }


def test_what_happened_before_the_announcement_is_not_planned() -> None:
    assert named(played(crash(3, 30, 30), 120, [(45, 100, 3)])) == [("broker_loss", [3])]


def test_a_broker_that_is_not_back_when_the_time_is_over_is_lost_then_and_not_before() -> None:
    rows = played([(30, "kill", {"broker": 3})], 200, [(20, 120, 3)])
    before = tuple(row for row in rows if row.time < START + 119 * SECOND)
    assert named(before) == [("controlled_shutdown", [3])]
    assert named(rows) == [("broker_loss", [3])]


@pytest.mark.parametrize(
    "topic", [{"replication_factor": 1, "min_insync_replicas": 1}, {"replication_factor": 2, "min_insync_replicas": 2}]
)
def test_partitions_that_go_offline_or_refuse_writes_are_never_planned(topic: dict[str, int]) -> None:
    assert named(played(crash(3, 30, 20), 120, [(20, 100, 3)], **topic)) == [("unsafe_shutdown", [3])]


def test_a_long_work_is_not_overdue_while_its_lease_holds() -> None:
    rows = played(crash(3, 30, 1_500), 1_600, [(20, 1_590, 3)], partitions=3)
    assert named(rows) == [("controlled_shutdown", [3])]


def test_a_safe_stop_after_one_that_did_harm_is_an_incident_of_its_own() -> None:
    faults = sorted([*crash(1, 10, 40), *stop(2, 20, 20), *stop(3, 150, 30)])
    rows = played(faults, 260, [(140, 400, 3)], partitions=3)
    assert named(rows) == [("broker_loss", [1]), ("unsafe_shutdown", [2]), ("controlled_shutdown", [3])]


def test_only_who_is_still_down_is_to_be_started() -> None:
    faults: list[Fault] = [(10, "stop", {"broker": 1}), (20, "stop", {"broker": 2}), (40, "start", {"broker": 2})]
    every = played([*faults, (200, "start", {"broker": 1})], 260, [], partitions=6, replication_factor=3)

    def reported(until: int) -> list[str]:
        rows = [row for row in every if row.time < START + until * SECOND]
        assert named(rows) == [("unsafe_shutdown", [1, 2])]
        return [row["next_step"] for row in standing(rows)]

    assert reported(30) == ["start brokers 1 and 2 again, and stop only what is safe to stop"]
    assert reported(60) == ["start broker 1 again, and stop only what is safe to stop"]


def test_two_stops_that_did_harm_are_one_incident() -> None:
    rows = played([*stop(1, 10, 20), *stop(2, 60, 20)], 120, [], partitions=6, min_insync_replicas=3)
    assert named(rows) == [("unsafe_shutdown", [1, 2])]
    assert standing(rows)[0]["isr_shrinks"] == sum(bool(row.left) for row in rows) == 6, "each counts once"


def test_a_crash_within_the_tail_of_a_command_is_lost_when_the_tail_is_over_and_it_is_not_back() -> None:
    faults = [*stop(3, 30, 10), *crash(3, 90, 25)]
    overran = "its announced work overran at 2023-11-14 22:15:05Z (upgrade)"
    assert of_broker_3(played(faults, 300, command(25, 45, 3))) == (
        "broker_loss",
        f"broker 3 was lost and came back late, {overran}",
    )
