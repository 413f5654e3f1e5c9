"""The lag in seconds of replicas and groups, sampled each ten seconds, against what the model knows at each moment.

python -m tests.sources.test_simulated_lag     # prints by how much they are wrong
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from statistics import mean, quantiles
from typing import Any, Final, NamedTuple

import pytest

from streaming.contracts import health
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros, TopicPartition
from streaming.contracts.samples import GroupOffsetsObserved
from streaming.model.broker.leader import LeaderPartition
from streaming.sources.simulated.reports import Reports
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from streaming.sources.simulated.source import OFFSETS_MS
from tests.blocks import singly

INTERVAL: Final = OFFSETS_MS / 1_000
SCENARIOS: Final = ("slow_follower", "flapping_follower", "network_split")
SEEDS: Final = (901, *(pytest.param(seed, marks=pytest.mark.long) for seed in (902, 903)))  # of no other test
SECONDS: Final = 170


class Played:
    """A scenario, and since when the leader of each partition had, and had committed, which offset."""

    def __init__(self, scenario: str, seed: int) -> None:
        self.simulation = Simulation(load_scenario(scenario), seed=seed, origin=Micros(0))
        cluster = self.simulation.cluster
        self.reports = Reports(cluster, cluster_id=ClusterId("c"), cluster="c", source="s")
        self.ends: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
        self.high_watermarks: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)

    def leaders(self) -> dict[TopicPartition, LeaderPartition]:
        """The leader of each partition; of two that believe they lead, the one of the later leader epoch."""
        led = [
            (leader.committed.leader_epoch, key, leader)
            for broker in self.simulation.cluster.reachable()
            for key, leader in broker.leadership.led.items()
            if key in broker.disk.replicas
        ]
        return {key: leader for _, key, leader in sorted(led, key=lambda each: each[:2])}

    def _look(self) -> None:
        now = self.simulation.cluster.now
        for key, leader in self.leaders().items():
            for steps, offset in (
                (self.ends[key], leader.replica.log.end),
                (self.high_watermarks[key], leader.replica.high_watermark),
            ):
                if not steps or steps[-1][1] != offset:
                    steps.append((now, offset))

    def rounds(self, seconds: int, phase_ms: int) -> Iterator[int]:
        """Play, and stop once per interval."""
        for moment in range(phase_ms, phase_ms + seconds * 1_000, OFFSETS_MS):
            self.simulation.play(WARM_UP_MS + moment, self._look)
            yield self.simulation.cluster.now


def seconds_since_passed(steps: list[tuple[int, int]], offset: int, now: int) -> float:
    """For how long there has been more than this offset."""
    since = now
    for moment, end in reversed(steps):
        if end <= offset:
            break
        since = moment
    return (now - since) / 1_000


class OfReplica(NamedTuple):
    """A replica at one sample: seconds.

    Attributes:
        estimate: since ``behind_since``.
        caught_up: since Kafka's ``lastCaughtUpTimeMs`` of the leader; 0 with all that it has.
        stale: how old that state of the leader is of which it has everything.
    """

    estimate: float
    caught_up: float
    stale: float


def of_replicas(scenario: str, seed: int) -> Iterator[OfReplica]:
    """Every follower at every sample."""
    played, before = Played(scenario, seed), dict[Any, tuple[Micros | None, int | None]]()
    for now in played.rounds(SECONDS, phase_ms=seed * 1_700 % OFFSETS_MS):
        leaders, collected_at = played.leaders(), Micros(now * 1_000)
        for sample in singly(played.reports.offsets(collected_at)):
            one: Any = sample
            key = TopicPartition(one.topic_id, one.partition)
            end, leader_end = one.log_end_offset, one.leader_log_end_offset
            since = health.behind_since(*before.get((key, one.broker), (None, None)), collected_at, end, leader_end)
            before[key, one.broker] = since, leader_end
            remote = leaders[key].remotes.get(one.broker) if key in leaders else None
            if remote is not None and remote.last_caught_up_ms > 0:  # else its leader does not know
                has_all = remote.log_end_offset == leader_end
                yield OfReplica(
                    0 if since is None else (collected_at - since) / 1_000_000,
                    0 if has_all else (now - remote.last_caught_up_ms) / 1_000,
                    seconds_since_passed(played.ends[key], end, now),
                )


def of_groups(seed: int) -> Iterator[tuple[float | None, float]]:
    """Estimate and truth of every partition of two groups at every sample; one is stuck from 40 s on."""
    played = Played("consumer_groups", seed)
    for now in played.rounds(SECONDS, phase_ms=seed * 1_700 % OFFSETS_MS):
        if now > WARM_UP_MS + 35_000:
            for member in (2001, 2002, 2003):
                if member in played.simulation.cluster.clients:
                    played.simulation.cluster.kill(BrokerId(member))
        played.reports.offsets(Micros(now * 1_000))
        for sample in played.reports.groups(Micros(now * 1_000)):
            if not isinstance(sample, GroupOffsetsObserved):
                continue
            if sample.committed_offset is not None and sample.high_watermark is not None:
                steps = played.high_watermarks[TopicPartition(sample.topic_id, sample.partition)]
                yield sample.lag_seconds, seconds_since_passed(steps, sample.committed_offset, now)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_replica_is_behind_for_at_most_as_long_as_is_shown_and_an_interval(scenario: str, seed: int) -> None:
    """Never longer than its leader thinks; and how old its data are exceeds it by one interval at most.

    Both follow from the rule: a replica that has less than its leader had at the sample before has not caught up since;
    and when it was first seen so, it had all that the leader had at the sample before that.
    """
    replicas = [*of_replicas(scenario, seed)]
    assert all(replica.estimate <= replica.caught_up + 0.001 for replica in replicas)
    assert all(replica.stale <= replica.estimate + INTERVAL for replica in replicas)
    assert scenario == "flapping_follower" or max(replica.estimate for replica in replicas) >= INTERVAL


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lag_of_a_group_in_seconds_is_that_of_the_model(seed: int) -> None:
    """Most partitions are written steadily, so it is wrong by far less than the interval; at most by that, always."""
    lags = [*of_groups(seed)]
    errors = [abs(estimate - truth) for estimate, truth in lags if estimate is not None]
    assert len(errors) > 0.9 * len(lags)
    assert max(errors) <= INTERVAL
    assert quantiles(errors, n=20)[-1] < INTERVAL / 10
    assert max(truth for _, truth in lags) > 6 * INTERVAL, "one is stuck"


def main() -> None:
    for scenario in SCENARIOS:
        replicas = [replica for seed in range(1_000, 1_010) for replica in of_replicas(scenario, seed)]
        for name, errors in (
            ("all", [replica.estimate - replica.caught_up for replica in replicas]),
            ("shown behind", [replica.estimate - replica.caught_up for replica in replicas if replica.estimate]),
        ):
            print(f"replicas of {scenario}, {name}: {summary(errors)}", flush=True)
    groups = [each for seed in range(1_000, 1_010) for each in of_groups(seed)]
    print("groups:", summary([estimate - truth for estimate, truth in groups if estimate is not None]))


def summary(errors: list[float]) -> str:
    if len(errors) < 2:
        return f"{len(errors)} samples"
    parts = quantiles(errors, n=20)
    return (
        f"{len(errors)} samples wrong by {min(errors):.1f} to {max(errors):.1f} s, on average {mean(errors):.1f} s; "
        f"19 of 20 between {parts[0]:.1f} and {max(errors):.1f} s"
    )


if __name__ == "__main__":
    main()
