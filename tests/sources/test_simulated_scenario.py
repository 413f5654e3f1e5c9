"""Scenario files: what is refused; and what each says a monitor ought to find is what the model really did."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from dashboards.signals.brokers import PLANNED_CAUSES
from streaming.contracts.alerts import ALERTS
from streaming.contracts.identifiers import BrokerId
from streaming.errors import ConfigurationError
from streaming.model.messages.registrations import PartitionRegistration
from streaming.resources import conf_path
from streaming.sources.simulated import TraceEntry
from streaming.sources.simulated.scenario import Action, Fault, GroupPlan, ProducerPlan, TopicPlan, TrueIncident, Truth
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.timeline import partition
from tests.plays import SCENARIOS, SECOND, START, played

TOPIC = '[[topics]]\nname = "t"\npartitions = 2\n'
GOOD = f"brokers = [1, 2, 3]\n{TOPIC}"


def test_a_minimal_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + '[[faults]]\nat = 1\naction = "hold"\nlink = [1, 2]\n[constants]\npreset = "legacy-2.4"\n')
    scenario = load_scenario(path)
    assert (scenario.name, scenario.brokers, scenario.topics[0].partitions) == ("mine", (1, 2, 3), 2)
    assert (scenario.faults[0].at, scenario.faults[0].action, scenario.faults[0].link) == (1.0, Action.HOLD, (1, 2))
    assert scenario.constants.broker_session_timeout_ms == 6_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TOPIC, "brokers is missing"),
        (f"broker = [1]\n{TOPIC}", "unknown key broker; known here:"),
        (f"brokers = [1, 1]\n{TOPIC}", "brokers must be a list of different ids"),
        (f'brokers = "1"\n{TOPIC}', "brokers is '1'; it must be a list of broker ids"),
        ("brokers = [1]\n[topics]\nname = 1", "topics must be a list of tables: write [[topics]]"),
        (f"brokers = [1]\n{TOPIC}", "replication_factor is 3; use 1 to 1"),
        (f'racks = {{4 = "a"}}\n{GOOD}', "racks names 4, which is not in brokers"),
        (f"racks = {{1 = 2}}\n{GOOD}", "racks is {'1': 2}; it must be a table of broker ids and names"),
        (f'placement = "random"\n{GOOD}', "placement is 'random'; it must be one of round_robin, striped"),
        (GOOD + "acks = 1", "topics.acks is 1; it must be text"),
        (GOOD + 'acks = "2"', 'acks is \'2\'; use "all" or "1"'),
        (GOOD + "assignments = [[1, 2, 3]]", "assignments must list the replicas of each of 2 partitions"),
        (GOOD + "assignments = [[1, 2, 3], [1, 2, 2]]", "equally many different brokers for each partition"),
        (GOOD + "assignments = [[1, 2, 3], [1, 2]]", "equally many different brokers for each partition"),
        (GOOD + "assignments = [[], []]", "equally many different brokers for each partition"),
        (GOOD + "assignments = [[1, 2, 3], [1, 2, 9]]", "assignments names 9, which is not in brokers"),
        (GOOD + '[[faults]]\nat = 1\naction = "melt"', "faults.action is 'melt'; it must be one of kill, start"),
        (GOOD + '[[faults]]\nat = 99\naction = "kill"\nbroker = 1', "at is 99.0; it must lie within the duration"),
        (GOOD + '[[faults]]\nat = 1\naction = "kill"', "kill needs broker or rack"),
        (GOOD + '[[faults]]\nat = 1\naction = "hold"\nbroker = 1', "hold needs link"),
        (f"duration = 9\n{GOOD}[[faults]]\nat = 9\naction = 'kill'\nbroker = 1", "it must lie within the duration, 9"),
        (GOOD + '[[faults]]\nat = 1\naction = "slow"\nlink = [1, 2]', "slow needs records_per_second"),
        (f"repeat = true\n{GOOD}[[faults]]\nat = 1\naction = 'pause'\nbroker = 1", "add a fault resume for broker"),
        (GOOD + "[constants]\nreplica_lag_time_max_ms = 0", "replica_lag_time_max_ms is 0"),
        (GOOD + '[constants]\npreset = "zk"', "constants.preset is 'zk'; use one of kraft-4.x, kraft-3.9, zk"),
        (GOOD + "[constants]\nreplica_lag = 0", "unknown key constants.replica_lag"),
        ("brokers = [", "is not TOML"),
    ],
)
def test_a_wrong_key_is_named_with_its_fix(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_scenario(path)
    assert words in str(refused.value)
    assert "wrong.toml" in str(refused.value)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"use one of broker_loss, .* steady, "):
        load_scenario("stedy")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read the scenario"):
        load_scenario(tmp_path / "none.toml")


def test_the_reference_names_every_key_and_every_action() -> None:
    reference = conf_path("scenarios").joinpath("README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+)", reference))
    tables = (TopicPlan, ProducerPlan, GroupPlan, Fault, TrueIncident, Truth)
    keys = {item.name for table in tables for item in fields(table)}
    assert {str(action) for action in Action} - named == set()
    assert keys - named - {"incidents"} == set()


def test_a_scenario_with_clients_is_played_beside_another_one_with_its_own_topics() -> None:
    both = load_scenario("broker_loss+consumer_groups+hanging_transaction")
    names = {topic.name for topic in both.topics}
    assert [group.name for group in both.groups] == ["billing", "shipping"]
    assert both.producers
    assert all(set(group.topics) <= names for group in both.groups)
    assert {producer.topic for producer in both.producers} <= names


def test_scenarios_that_are_played_together_are_placed_as_the_first_of_them() -> None:
    for names, placement in (("rack_loss+broker_loss", "striped"), ("broker_loss+rack_loss", "round_robin")):
        assert load_scenario(names).placement == placement


def test_the_controller_in_a_link_is_called_so() -> None:
    assert Fault(at=1.0, action=Action.HOLD, link=(BrokerId(-1), BrokerId(2))).sentence() == "hold link controller,2"


def test_of_a_partition_everything_is_told_that_is_not_empty() -> None:
    one, two = BrokerId(1), BrokerId(2)
    state = PartitionRegistration(replicas=(one, two), isr=(two,), leader=two, leader_epoch=3, elr=(one,))
    assert partition(state) == "leader 2 (epoch 3); isr 2; replicas 1,2; elr 1"


def departures(trace: tuple[TraceEntry, ...]) -> Iterator[tuple[TraceEntry, int]]:
    """Every broker that left an ISR, with the step in which it did."""
    isrs: dict[tuple[str, int], tuple[int, ...]] = {}
    for entry in trace:
        key = (entry.topic_id, entry.partition)
        before = isrs.get(key, entry.replicas)
        isrs[key] = entry.isr
        yield from ((entry, broker) for broker in before if broker not in entry.isr and not entry.deleted)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_causes_are_those_of_the_model(name: str) -> None:
    play = played(name)
    assert set(play.scenario.truth.causes) == {str(entry.cause) for entry in play.trace}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_alerts_exist_and_one_reports_each_unplanned_removal(name: str) -> None:
    """Which others fire is tested with the rules themselves: ``tests/dashboards/test_scenario_alerts.py``."""
    play = played(name)
    unplanned = any(entry.cause not in PLANNED_CAUSES for entry, _ in departures(play.trace))
    assert ("IsrwatchIsrShrink" in play.scenario.truth.alerts) == unplanned
    assert set(play.scenario.truth.alerts) <= ALERTS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_change_of_an_isr_belongs_to_an_incident(name: str) -> None:
    play = played(name)
    incidents = play.scenario.truth.incidents
    for entry in play.trace:
        if entry.cause not in {"created", "deleted"}:
            assert any(it.begin * SECOND <= entry.time - START <= it.end * SECOND for it in incidents), entry


@pytest.mark.parametrize("name", SCENARIOS)
def test_who_left_an_isr_is_a_suspect_or_was_expelled_by_one(name: str) -> None:
    play = played(name)
    for entry, broker in departures(play.trace):
        blamed = {
            suspect
            for it in play.scenario.truth.incidents
            if it.begin * SECOND <= entry.time - START <= it.end * SECOND
            for suspect in it.suspects
        }
        assert {broker, entry.leader} & blamed or entry.cause == "reassignment", (entry, broker)
