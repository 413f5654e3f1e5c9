"""Which incident a removal belongs to, where several could explain it: faults played on a simulated cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.changes.incidents.context import Family
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.changes.incidents.incident import Incident
from streaming.changes.incidents.rules import incident_blaming
from streaming.changes.state import ConfiguredTimes
from tests.changes.faults import THREE, Fault, of, played
from tests.changes.test_incidents import SECOND, START, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.changes.incidents.context import ChangeRow

FAMILIES = (Family.LOSS, Family.LAG)


class Found(NamedTuple):
    """An incident that stands: its class, its suspects, and how many partitions were under-replicated at once."""

    kind: str
    suspects: tuple[int, ...]
    partitions: int


def proven_late(rows: Sequence[ChangeRow], *brokers: int) -> tuple[ChangeRow, ...]:
    """The rows, and after six and a half seconds the proof that these brokers, when fenced, had stopped cleanly."""
    proofs = [
        row._replace(
            since=row.time + 6_500_000, time=row.time + 6_500_000, cause="controlled_shutdown", evidence="proven",
            left=(), isr_before=row.isr, leader_before=row.leader, events=("cause_revised",),
            event_ids=(f"{row.event_ids[0]}/proof",),
            proven=next(iter({*brokers} & {*row.left})),
        )
        for row in rows
        if row.cause == "fenced" and row.evidence == "ambiguous" and not set(brokers).isdisjoint(row.left)
    ]  # fmt: skip
    return tuple(sorted([*rows, *proofs], key=lambda row: row.time))


def found_in(rows: Sequence[ChangeRow]) -> list[Found]:
    table = table_of([rows], IncidentGaps()).values()
    return [
        Found(
            row["incident_class"], tuple(suspect["broker"] for suspect in row["suspects"]), row["under_replicated_peak"]
        )
        for row in sorted(table, key=lambda row: row["opened_at"])
        if row["merged_into"] is None
    ]


def test_a_loss_beside_a_failed_disk_is_an_incident_of_its_own() -> None:
    disk: Fault = (5, "fail_log_dir", {"broker": 3, "directory": "dir-1"})
    for seconds_later in (1, 30):
        rows = played([disk, *of("kill", 3, at=100), *of("kill", 2, at=100 + seconds_later)], 160)
        assert [it[:2] for it in found_in(rows)] == [("disk_failure", (3,)), ("broker_loss", (2,))]


def test_lag_that_a_leader_left_alone_reports_is_the_beginning_of_the_loss_of_its_followers() -> None:
    dead = [*of("kill", 2, 3, at=5), *of("start", 2, 3, at=45)]
    rack = [*of("kill", 3, 4, at=5), *of("start", 3, 4, at=45)]
    led_by_two = [[1, 3, 4], [2, 3, 4]] * 6
    alone = found_in(played(dead, 120, brokers=THREE, lag_millis=2500))
    together = found_in(played(rack, 120, lag_millis=2500, partitions=12, assignments=led_by_two))
    assert alone == [Found("broker_loss", (2, 3), 6)]
    assert together == [Found("broker_loss", (3, 4), 12)]


def test_a_leader_that_was_reported_itself_has_stalled_whatever_befalls_its_followers_later() -> None:
    stalled = [*of("pause", 2, at=5), *of("resume", 2, at=9.5)]
    found = found_in(played([*stalled, *of("kill", 1, at=40)], 60, brokers=THREE, lag_millis=2500))
    assert [it[:2] for it in found] == [("leader_stall", (2,)), ("broker_loss", (1,))]


def test_a_loss_that_proves_to_be_a_clean_stop_becomes_one() -> None:
    leads_nothing = [[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1]] * 3
    stopped, crashed = of("stop", 3, at=10), of("kill", 1, at=30)
    back = played([*stopped, *of("start", 3, at=50)], 100, partitions=12, assignments=leads_nothing)
    alone = found_in(proven_late(back, 3))
    both = found_in(proven_late(played([*stopped, *crashed], 60, partitions=12, assignments=leads_nothing), 3))
    assert alone == [Found("controlled_shutdown", (3,), 12)]
    assert [it[:2] for it in both] == [("controlled_shutdown", (3,)), ("broker_loss", (1,))]


def test_a_clean_stop_after_an_unclean_election_is_an_incident_of_its_own() -> None:
    faults = [
        *of("kill", 2, at=4), *of("start", 2, at=20), *of("kill", 1, at=20.5), *of("start", 1, at=35),
        *of("stop", 5, at=335), *of("start", 5, at=343),
    ]  # fmt: skip
    pairs = [[1, 2], [1, 2], [2, 1], [2, 1], [3, 4], [4, 5], [5, 6], [6, 3]]

    rows = played(
        faults, 420, partitions=8, replication_factor=2, min_insync_replicas=1, assignments=pairs,
        unclean_leader_election=True,
    )  # fmt: skip

    assert [it[:2] for it in found_in(rows)] == [("unclean_election", (1, 2)), ("controlled_shutdown", (5,))]


def test_what_a_closed_incident_learns_survives_a_restart_of_the_job() -> None:
    link = {"link": [1, 2]}
    flapping: list[Fault] = [
        (at, "release", link) if number % 2 else (at, "slow", link | {"records_per_second": 5})
        for number, at in enumerate(range(60, 300, 8))
    ]
    restarts = [*of("stop", 4, at=5), *of("start", 4, at=95), *of("stop", 5, at=135), *of("start", 5, at=165)]
    moved: Fault = (20, "reassign", {"topic": "orders", "partition": 6, "replicas": [1, 2, 3]})
    faults = sorted([*restarts, moved, *flapping], key=lambda fault: fault[0])
    placed = [*[[1, 2, 3]] * 6, [1, 4, 2], [1, 5, 2]]
    rows = proven_late(played(faults, 370, lag_millis=2500, partitions=8, assignments=placed), 4, 5)

    single = table_of([[row] for row in rows], IncidentGaps())

    assert table_of([[row] for row in rows], IncidentGaps(), restart=True) == single
    assert ("rolling_restart", [4, 5]) in [
        (row["incident_class"], [suspect["broker"] for suspect in row["suspects"]]) for row in single.values()
    ]


def test_of_two_incidents_about_a_broker_the_one_of_its_own_kind_comes_first() -> None:
    common: dict[str, Any] = {"cluster_id": "c", "cluster": "c", "updated_at": START, "version": 1}
    loss = Incident(incident_id="loss:1", base=Family.LOSS, opened_at=START, lost={3}, **common)
    lag = Incident(incident_id="lag:1", base=Family.LAG, opened_at=START + SECOND, **common)
    loss.blamed[3] = lag.blamed[3] = 1
    found = [incident_blaming(family, frozenset({3}), [loss, lag], START, ConfiguredTimes()) for family in FAMILIES]
    assert found == [loss, lag]


def test_an_incident_has_the_id_of_its_first_event() -> None:
    rows = played(of("kill", 2, at=10), 30)
    first = next(row for row in rows if row.cause == "fenced")
    assert table_of([rows], IncidentGaps()).keys() == {f"loss:{first.event_ids[0]}"}
