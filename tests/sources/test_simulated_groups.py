"""The promises to consumer groups while a scenario is played."""

from __future__ import annotations

import pytest

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.samples import GroupObserved, GroupOffsetsObserved
from streaming.model.coordinators.group_log import Group
from streaming.sources.simulated.reports import Reports
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import Simulation


@pytest.fixture
def simulation() -> Simulation:
    """Play until both groups are stable."""
    played = Simulation(load_scenario("consumer_groups"), seed=7, origin=Micros(0), watched=True)
    played.play(25_000, lambda: None)
    assert played.group_violations == {}
    return played


def group(simulation: Simulation, name: str) -> Group:
    brokers = simulation.cluster.brokers.values()
    return next(it.groups[name] for broker in brokers for it in broker.apis.groups.log.loaded() if name in it.groups)


def test_every_group_is_reported_by_its_coordinator_with_its_members(simulation: Simulation) -> None:
    reports = Reports(simulation.cluster, cluster_id=ClusterId("id"), cluster="c", source="simulated:a")
    reported = reports.groups(Micros(1))
    described = {each.group: each for each in reported if isinstance(each, GroupObserved)}
    with_offsets = {(each.group, each.group_state) for each in reported if isinstance(each, GroupOffsetsObserved)}
    assert {(name, each.group_state) for name, each in described.items()} == with_offsets
    for name, each in described.items():
        coordinator = simulation.cluster.brokers[each.coordinator].apis.groups.log
        assert any(name in loaded.groups for loaded in coordinator.loaded())
        classic, consumer = group(simulation, name).classic, group(simulation, name).consumer
        assert each.group_protocol == ("consumer" if classic is None else "classic")
        assert each.members == len(consumer.members if consumer else classic.members if classic else ()) > 0
        assert each.group_state == "Stable"
        assert each.assignor == ("uniform" if consumer else classic.assignor if classic else None)
    assert described.keys() == {"billing", "shipping"}


def test_a_broken_promise_to_a_group_is_kept_once(simulation: Simulation) -> None:
    billing = group(simulation, "billing").classic
    assert billing is not None
    billing.leader = "nobody"
    simulation.play(28_000, lambda: None)
    assert list(simulation.group_violations) == ["ValidClassicState"]
    assert "the leader nobody is no member" in str(simulation.group_violations["ValidClassicState"])


def test_where_records_may_be_lost_nothing_is_promised_to_groups(simulation: Simulation) -> None:
    billing = group(simulation, "billing").classic
    assert billing is not None
    billing.leader = "nobody"
    simulation.cluster.lose_power(BrokerId(3))
    simulation.play(28_000, lambda: None)
    assert simulation.group_violations == {}
