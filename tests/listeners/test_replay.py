"""What is inferred of recorded listeners is what happened to them: the rules of polling on real answers, no cluster."""

from __future__ import annotations

from typing import Final

import pytest

from streaming.contracts.events import IncidentClass
from tests.drill.faults import suspects
from tests.judge.play import JobOfPlay
from tests.listeners.recordings import VERSIONS, plays
from tests.listeners.replay import Replay, incidents_of

Told = tuple[IncidentClass, frozenset[int]]

LOST: Final[Told] = IncidentClass.BROKER_LOSS, frozenset({3})
STOPPED: Final[Told] = IncidentClass.CONTROLLED_SHUTDOWN, frozenset()
FAILOVER: Final[Told] = IncidentClass.CONTROLLER_FAILOVER, frozenset()
EXPECTED: Final[dict[str, tuple[Told, ...]]] = {
    "stop": (STOPPED,),
    "stop_idle": (STOPPED,),
    "stop_and_restart": (STOPPED,),
    "unregister": (STOPPED,),
    "stop_by_default": (STOPPED,),
    "kill": (LOST,),
    "kill_and_restart": (LOST,),
    "kill_and_restart_by_default": (LOST,),
    "preferred_elections": (STOPPED,),
    "slow_network": (LOST,),
    "kill_by_default": (LOST,),
    "freeze": (LOST,),
    "freeze_by_default": (LOST,),
    "freeze_shortly": (),
    "cut_from_all": (LOST,),
    "cut_from_controllers": (LOST,),
    "cut_from_controllers_by_default": (LOST,),
    "cut_from_cluster": (LOST,),
    "cut_from_us": (),
    "cut_from_brokers": ((IncidentClass.NETWORK_SPLIT, frozenset({3})),),
    "one_link": ((IncidentClass.LINK_FAILURE, frozenset({1, 3})),),
    "two_brokers": ((IncidentClass.BROKER_LOSS, frozenset({2, 3})),),
    "disk_lost": ((IncidentClass.DISK_FAILURE, frozenset({3})),),
    "unclean_election": (STOPPED, (IncidentClass.UNCLEAN_ELECTION, frozenset({3}))),
    "controller_kill": (FAILOVER,),
    "controller_stop": (FAILOVER,),
    "controller_freeze": (FAILOVER,),
    "controller_cut": (FAILOVER,),
    "lone_controller_kill": (FAILOVER,),
}
"""Classes and suspects of incidents, in the order of time."""
FAST: Final = (
    "stop",
    "stop_idle",
    "kill",
    "freeze",
    "cut_from_controllers",
    "cut_from_us",
    "kill_and_restart",
    "preferred_elections",
    "slow_network",
    "one_link",
    "disk_lost",
    "unclean_election",
    "controller_freeze",
)
"""Those that are played in every run of the tests."""
RECORDED: Final = [(version, fault) for version in VERSIONS for fault in EXPECTED if fault in plays(version)]


def told(version: str, fault: str, phase_ms: int) -> tuple[Told, ...]:
    rows = incidents_of(Replay(plays(version)[fault], phase_ms=phase_ms), JobOfPlay())
    return tuple((IncidentClass(row["incident_class"]), suspects(row)) for row in rows)


@pytest.mark.parametrize("fault", FAST)
def test_a_recorded_fault_is_told_as_what_it_was(fault: str) -> None:
    assert told("4.4", fault, phase_ms=1300) == EXPECTED[fault]


@pytest.mark.long
@pytest.mark.parametrize(("version", "fault"), RECORDED)
def test_it_is_told_so_wherever_in_the_interval_of_polls_it_begins(version: str, fault: str) -> None:
    phases = range(0, 5000, 700)
    assert {told(version, fault, phase) for phase in phases} == {EXPECTED[fault]}
