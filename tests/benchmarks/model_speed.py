"""How fast the model runs, and what partitions cost that nothing happens to.

    python -m tests.benchmarks.model_speed [--partitions 100 1000 10000 100000] [--seconds 10]

Six brokers, replication factor 3, and steady traffic on 5 % of the partitions: about five batches a second on each. One
core. Prints simulated seconds and events per real second; an event is one batch of records on one replica, or one
message or timer taken. Then the same traffic beside ten times the idle partitions, as the ratio of the cost of an
event: medians of runs that take turns.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.simulated.scenario import Scenario, TopicPlan
from streaming.sources.simulated.simulation import WARM_UP_MS, Simulation
from tests.benchmarks._running import options

BROKERS = tuple(BrokerId(broker) for broker in range(1, 7))
BUSY_SHARE = 0.05
REPLICATION_FACTOR = 3
RECORDS_PER_SECOND = 20.0


class Run(NamedTuple):
    """One measurement: events, and real seconds for the simulated ones."""

    partitions: int
    events: int
    simulated: float
    real: float

    @property
    def per_event(self) -> float:
        """Microseconds an event."""
        return 1e6 * self.real / self.events


def simulation(busy: int, idle: int) -> Simulation:
    """A cluster that stands and has settled."""
    topics = (
        TopicPlan(name="busy", partitions=busy, min_insync_replicas=2, records_per_second=RECORDS_PER_SECOND),
        TopicPlan(name="idle", partitions=idle, min_insync_replicas=2),
    )
    scenario = Scenario(name="speed", brokers=BROKERS, topics=topics, duration=100_000.0)
    built = Simulation(scenario, seed=1, origin=Micros(0))
    built.play(WARM_UP_MS, built.cluster.take_commits)
    return built


def run(it: Simulation, seconds: int) -> Run:
    """Play on for some simulated seconds."""
    before, start = events(it), it.cluster.now
    began = time.perf_counter()
    it.play(start + seconds * 1_000, it.cluster.take_commits)
    real = time.perf_counter() - began
    return Run(len(it.cluster.controller.registry.partitions), events(it) - before, seconds, real)


def events(it: Simulation) -> int:
    """Count what happened so far."""
    return it.cluster.events_taken + it.batches_written * REPLICATION_FACTOR


def measure(partitions: list[int], seconds: int) -> None:
    """Print a line for each size."""
    print(f"{'partitions':>10}  {'busy':>6}  {'simulated s/s':>13}  {'events/s':>9}  {'us/event':>8}")
    for count in partitions:
        busy = max(1, round(count * BUSY_SHARE))
        measured = run(simulation(busy, count - busy), seconds)
        rate, speed = measured.events / measured.real, measured.simulated / measured.real
        print(f"{count:>10}  {busy:>6}  {speed:>13.1f}  {rate:>9.0f}  {measured.per_event:>8.2f}", flush=True)


def idle_ratio(busy: int, idle: int, seconds: int, rounds: int) -> float:
    """Give the cost of an event beside ten times the idle partitions, relative to the cost beside ``idle``."""
    few, many = simulation(busy, idle), simulation(busy, idle * 10)
    costs: dict[str, list[float]] = {"few": [], "many": []}
    for _ in range(rounds):
        costs["few"].append(run(few, seconds).per_event)
        costs["many"].append(run(many, seconds).per_event)
    return statistics.median(costs["many"]) / statistics.median(costs["few"])


def main() -> None:
    """Measure and print."""
    arguments = options(__doc__, partitions=[100, 1_000, 10_000, 100_000], seconds=10)
    measure(arguments.partitions, arguments.seconds)
    ratio = idle_ratio(busy=500, idle=9_500, seconds=arguments.seconds, rounds=5)
    print(f"\n500 busy partitions beside 95,000 idle ones instead of 9,500: {ratio:.2f} times the cost of an event")


if __name__ == "__main__":
    main()
