"""Several scenarios at once, on one cluster: what one monitor sees when two things go wrong together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming.errors import ConfigurationError
from streaming.sources.simulated.scenario import GroupPlan, ProducerPlan, Scenario, TopicPlan, Truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.simulated.fault import Fault


def combined(scenarios: Sequence[Scenario]) -> Scenario:
    """Play scenarios together: all their brokers, topics, clients and faults, for as long as the longest.

    A topic name that several of them use is prefixed by the scenario's name. The constants are those of the first.

    Raises:
        ConfigurationError: two scenarios put one broker into different racks.
    """
    if len(scenarios) == 1:
        return scenarios[0]
    return Scenario(
        name="+".join(scenario.name for scenario in scenarios),
        description="; ".join(scenario.description for scenario in scenarios),
        brokers=tuple(sorted({broker for scenario in scenarios for broker in scenario.brokers})),
        racks=_racks(scenarios),
        placement=scenarios[0].placement,
        duration=max(scenario.duration for scenario in scenarios),
        repeat=all(scenario.repeat for scenario in scenarios),
        constants=scenarios[0].constants,
        topics=tuple(topic for scenario in scenarios for topic in _topics(scenario, scenarios)),
        producers=tuple(plan for scenario in scenarios for plan in _producers(scenario, scenarios)),
        groups=tuple(plan for scenario in scenarios for plan in _groups(scenario, scenarios)),
        faults=tuple(fault for scenario in scenarios for fault in _faults(scenario, scenarios)),
        truth=_truth(scenarios),
    )


def _racks(scenarios: Sequence[Scenario]) -> dict[BrokerId, str]:
    racks: dict[BrokerId, str] = {}
    for scenario in scenarios:
        for broker, rack in scenario.racks.items():
            if racks.setdefault(broker, rack) != rack:
                raise ConfigurationError(
                    f"{scenario.name} has broker {broker} in rack {rack}, another one in {racks[broker]}"
                )
    return racks


def _name(topic: str, of: Scenario, scenarios: Sequence[Scenario]) -> str:
    users = [scenario for scenario in scenarios if any(plan.name == topic for plan in scenario.topics)]
    return topic if users == [of] else f"{of.name}-{topic}"


def _topics(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[TopicPlan]:
    """Give its topics; they stay on its own brokers."""
    for plan in of.topics:
        yield replace(plan, name=_name(plan.name, of, scenarios), brokers=plan.brokers or of.brokers)


def _producers(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[ProducerPlan]:
    for plan in of.producers:
        yield replace(plan, topic=_name(plan.topic, of, scenarios))


def _groups(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[GroupPlan]:
    for plan in of.groups:
        yield replace(plan, topics=tuple(_name(topic, of, scenarios) for topic in plan.topics))


def _faults(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[Fault]:
    for fault in of.faults:
        yield fault if fault.topic is None else replace(fault, topic=_name(fault.topic, of, scenarios))


def _truth(scenarios: Sequence[Scenario]) -> Truth:
    def union(texts: Iterator[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(texts))

    return Truth(
        causes=union(cause for scenario in scenarios for cause in scenario.truth.causes),
        alerts=union(alert for scenario in scenarios for alert in scenario.truth.alerts),
        incidents=tuple(
            sorted((each for scenario in scenarios for each in scenario.truth.incidents), key=lambda each: each.begin)
        ),
    )
