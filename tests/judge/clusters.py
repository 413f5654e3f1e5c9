"""The clusters that faults are played on: sizes, racks, topics, loads and configurations, drawn by chance.

Half of them have Kafka's defaults, a sixth those of 3.9, the others shorter or longer windows. How many log directories
and controllers there are is a matter of size, not of defaults.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Final, NamedTuple

from streaming.contracts.identifiers import BrokerId
from streaming.model.constants import NEWEST, PRESETS, Constants
from streaming.sources.simulated.scenario import Placement, Scenario, TopicPlan

FOR_EVER: Final = 86_400.0
COMBINED: Final = (100, 101, 102)
"""Ids of brokers that are controllers, too: the model's controllers are 100, 101 and 102."""
_NAMES: Final = ("orders", "payments", "audit", "events")
_PARTITIONS: Final = (1, 2, 3, 6, 12, 12, 24, 24, 50, 100)
_MOST_PARTITIONS: Final = 130
_MOST_APPENDS: Final = 40
"""Batches per second on all replicas together: what keeps a play cheap."""


class DrawnCluster(NamedTuple):
    """A cluster, and the name of where its configuration is from."""

    preset: str
    scenario: Scenario


def drawn_cluster(random: Random, kinds: Collection[str]) -> DrawnCluster:
    """Draw a cluster on which faults of these kinds can happen."""
    preset, constants = _constants(random, kinds)
    brokers = drawn_brokers(random, kinds)
    needs_racks = not {"rack", "rack_isolation"}.isdisjoint(kinds)
    racks = _racks(random, brokers) if needs_racks or random.random() < 1 / 2 else {}
    scenario = Scenario(
        name="judge",
        brokers=brokers,
        racks=racks,
        placement=Placement.STRIPED,
        duration=FOR_EVER,
        constants=constants,
        topics=tuple(_topics(random, len(brokers), kinds)),
    )
    return DrawnCluster(preset, scenario)


def _constants(random: Random, kinds: Collection[str]) -> tuple[str, Constants]:
    chance = random.random()
    preset = NEWEST if chance < 1 / 2 else "kraft-3.9" if chance < 2 / 3 else "tuned"
    constants = PRESETS.get(preset, PRESETS[random.choice((NEWEST, "kraft-3.9"))])
    if preset == "tuned":
        constants = replace(
            constants,
            replica_lag_time_max_ms=random.choice((5_000, 10_000, 15_000, 45_000)),
            broker_session_timeout_ms=random.choice((6_000, 9_000, 18_000, 30_000)),
            leader_imbalance_check_interval_ms=random.choice((20_000, 60_000, 300_000)),
            eligible_leader_replicas=constants.eligible_leader_replicas and random.random() < 1 / 2,
            controller_quorum_append_linger_ms=random.choice((0, 0, 10)),
        )
    needs_controllers = not {"controller", "combined"}.isdisjoint(kinds)
    return preset, replace(
        constants,
        log_dirs=random.choice((1, 2, 3)) if "log_dir" in kinds else 1,
        controllers=3 if needs_controllers else 1,
    )


def drawn_brokers(random: Random, kinds: Collection[str]) -> tuple[BrokerId, ...]:
    """Draw ids of brokers."""
    least = 4 if not {"rack", "rack_isolation", "several", "decommission"}.isdisjoint(kinds) else 3
    count = random.choice((3, 3, 4, 4, 5, 6, 6, 8, 12))
    count = max(count, least, 6 if len(kinds) > 1 else 0)
    first = COMBINED if "combined" in kinds else ()
    return tuple(map(BrokerId, (*first, *range(1, count + 1 - len(first)))))


def _racks(random: Random, brokers: tuple[BrokerId, ...]) -> dict[BrokerId, str]:
    count = random.choice([count for count in (2, 3, 4) if count * 2 <= len(brokers)] or [3])
    shift = random.randrange(count)
    return {broker: "abcd"[(place + shift) % count] for place, broker in enumerate(brokers)}


def _topics(random: Random, brokers: int, kinds: Collection[str]) -> list[TopicPlan]:
    names = list(_NAMES[: random.choice((1, 2, 2, 3, 4))])
    topics, left = list[TopicPlan](), _MOST_PARTITIONS
    for place, name in enumerate(names):
        factor = min(brokers, random.choices((1, 2, 3, 4, 5), (6, 12, 62, 10, 10))[0])
        is_busy = place == 0
        if is_busy and factor == 1:
            factor = min(3, brokers)
        partitions = min(left, random.choice(_PARTITIONS), 24 if is_busy else _MOST_PARTITIONS)
        left -= partitions
        if partitions:
            rate = _rate(random, partitions * factor) if is_busy else random.choice((0.0, 0.0, 0.1))
            topics.append(
                TopicPlan(
                    name=name,
                    partitions=partitions,
                    replication_factor=factor,
                    min_insync_replicas=_min_isr(random, factor),
                    records_per_second=rate,
                )
            )
    if "unclean" in kinds:
        topics.append(
            TopicPlan(
                name="clicks",
                partitions=random.choice((2, 6)),
                replication_factor=2,
                unclean_leader_election=True,
                records_per_second=4.0,
            )
        )
    return topics


def _rate(random: Random, replicas: int) -> float:
    """Records per second and partition; at most five batches a second are written to each."""
    affordable = _MOST_APPENDS / replicas
    rate = random.choice((0.5, 2.0, 5.0, 40.0))
    return rate if min(rate, 5.0) <= affordable else round(affordable, 2)


def _min_isr(random: Random, factor: int) -> int:
    chance = random.random()
    if chance < 1 / 10:
        return factor
    return 1 if chance < 3 / 10 else max(1, factor - 1)


def disagreeing(random: Random, scenario: Scenario) -> Scenario:
    """Draw brokers whose files disagree on ``min.insync.replicas``, and topics that leave it to them.

    Not with eligible leader replicas: then the cluster has one value, and a broker's own is refused (KIP-966).
    """
    if scenario.constants.eligible_leader_replicas:
        return scenario
    own = tuple((int(broker), random.choice((1, 2, 2))) for broker in scenario.brokers)
    topics = (replace(plan, min_insync_replicas=None) if plan.name != "clicks" else plan for plan in scenario.topics)
    constants = replace(scenario.constants, min_insync_replicas_of=own)
    return replace(scenario, constants=constants, topics=tuple(topics))
