"""Restart orders judged by brute force: every order of every broker that is up, played by the controller's own rules.

Random clusters of 3 to 6 brokers in racks, RF 1 to 5, mixed minima, some topics diskless, ELR on and off,
some brokers down, some replicas behind, combined controllers; each broker stopped, started and caught up before the
next.

    .venv/bin/python -m tests.changes.restart_oracle --states 20000 --seed 1
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass, replace
from functools import cache

from streaming.changes.advice.restart_safety import RestartAdvice, restart_advice
from streaming.changes.advice.suspects import SuspectTally
from streaming.changes.partitions import with_health
from streaming.changes.state import TopicConfig
from streaming.contracts.identifiers import NO_LEADER, BrokerId, ClusterId, Micros, TopicId
from streaming.contracts.observations import SourceKind
from streaming.contracts.state import BrokerState, ClusterState, PartitionState
from tests.changes.restart_machine import Replicated, World

CLUSTER = ClusterId("cluster-1")


def losses(world: World, broker: int) -> frozenset[object]:
    """What is not available while a broker is down: its partitions, by number, and the controller quorum."""
    down = world.stopped(broker)
    lost: set[object] = {
        number for number, each in enumerate(down.partitions) if broker in each.replicas and not each.is_available
    }
    if world.voters and not down.has_quorum():
        lost.add("quorum")
    return frozenset(lost)


def avoidable(world: World, broker: int) -> frozenset[object]:
    """Those losses that another time might avoid: the configuration does not make them, or they are there already."""
    by_configuration = losses(world.whole(), broker)

    def is_whole(lost: object) -> bool:
        if lost == "quorum":
            return set(world.voters or ()) <= world.following
        return isinstance(lost, int) and world.partitions[lost].is_available

    return frozenset(lost for lost in losses(world, broker) if lost not in by_configuration or not is_whole(lost))


@cache
def longest(world: World, left: frozenset[int]) -> int:
    """How many brokers can be restarted one after the other without an avoidable loss, over all orders."""
    free = [broker for broker in left if not avoidable(world, broker)]
    return max((1 + longest(world.restarted(broker), left - {broker}) for broker in free), default=0)


def random_world(rng: random.Random) -> World:
    """Draw a cluster that was whole once and then had faults: every state is one that Kafka reaches."""
    brokers = tuple(range(1, rng.randint(3, 6) + 1))
    racks = {broker: broker % rng.randint(1, 3) for broker in brokers}
    partitions = []
    for _ in range(rng.randint(1, 7)):
        factor = rng.choice([each for each in (1, 2, 3, 3, 3, 4, 5) if each <= len(brokers)])
        mixed = rng.sample(brokers, len(brokers))
        spread = sorted(
            mixed, key=lambda each: sum(racks[other] == racks[each] for other in mixed[: mixed.index(each)])
        )
        replicas = tuple(spread[:factor])
        minimum = min(rng.choice((1, 1, 2, 2, 3, 4)), factor)
        is_diskless = rng.random() < 0.15
        partitions.append(Replicated(replicas, minimum, frozenset(replicas), replicas[0], is_diskless=is_diskless))
    voters = rng.choice((None, (), tuple(rng.sample(brokers, rng.randint(1, len(brokers))))))
    world = World(brokers, frozenset(brokers), tuple(partitions), rng.random() < 0.5, voters, frozenset(voters or ()))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 5, 8))):
        world = _with_fault(world, rng, racks)
    return world


def _with_fault(world: World, rng: random.Random, racks: dict[int, int]) -> World:
    broker = rng.choice(world.brokers)
    fault = rng.choice(("stop", "start", "lag", "lag", "behind", "catch up", "rack"))
    if fault == "stop" and broker in world.up:
        return world.stopped(broker)
    if fault == "rack":
        for other in world.brokers:
            if racks[other] == racks[broker] and other in world.up and rng.random() < 0.7:
                world = world.stopped(other)
    if fault == "start" and broker not in world.up:
        return world.started(broker)
    if fault == "catch up" and broker in world.up:
        return world.caught_up(broker)
    if fault == "behind":
        return replace(world, following=world.following - {broker})
    if fault == "lag":
        number = rng.randrange(len(world.partitions))
        each = world.partitions[number]
        if broker in each.isr and each.leader not in (broker, NO_LEADER):
            shrunk = each.with_isr(each.isr - {broker}, has_elr=world.has_elr)
            return replace(world, partitions=(*world.partitions[:number], shrunk, *world.partitions[number + 1 :]))
    return world


def advice_on(world: World, controller: int | None = None) -> dict[int, RestartAdvice]:
    """What isrwatch says of it."""
    states = [_state(number, each) for number, each in enumerate(world.partitions)]
    cluster = ClusterState(
        cluster_id=CLUSTER, cluster="main", primary_source=SourceKind.METADATA_LOG, controller=controller,
        has_baseline=True,
        quorum_voters=world.voters, quorum_caught_up=None if world.voters is None else tuple(sorted(world.following)),
    )  # fmt: skip
    brokers = [
        BrokerState(CLUSTER, "main", BrokerId(each), is_fenced=each not in world.up, is_shutting_down=False)
        for each in world.brokers
    ]
    return {int(broker): advised for broker, advised in restart_advice(brokers, cluster, SuspectTally(states)).items()}


def _state(number: int, each: Replicated) -> PartitionState:
    def ids(brokers: frozenset[int]) -> tuple[BrokerId, ...]:
        return tuple(BrokerId(broker) for broker in each.replicas if broker in brokers)

    state = PartitionState(
        CLUSTER, "main", TopicId(f"topic-{number}"), f"topic-{number}", 0, ids(frozenset(each.replicas)), ids(each.isr)
    )
    state = state._replace(elr=ids(each.elr), leader=BrokerId(each.leader))
    return with_health(state, TopicConfig(each.minimum, each.is_diskless), Micros(1))


def complaints(world: World, advice: dict[int, RestartAdvice]) -> list[str]:
    """Compare advice with what happens; empty where it is right."""
    found = []
    placed = sorted((advised.restart_order, broker) for broker, advised in advice.items() if advised.restart_order)
    order, now = [broker for _, broker in placed], world
    for broker in order:
        lost, by_chance = losses(now, broker), avoidable(now, broker)
        if by_chance:
            found.append(f"order {order} loses {sorted(map(str, by_chance))} at {broker}, which could be avoided")
        named = advice[broker].unavoidable_offline + advice[broker].unavoidable_under_min_isr
        if named != len(lost - {"quorum"}):
            found.append(f"{broker} names {named} unavoidable losses, but loses {sorted(map(str, lost))}")
        if ("quorum" in lost) != ("controller quorum of" in advice[broker].restart_reason):
            found.append(f"{broker}: the lost quorum is not named, or one that is not lost")
        now = now.restarted(broker)
    best = longest(world, world.up)
    if len(order) != best:
        found.append(f"order {order} has {len(order)} brokers, but {best} can be restarted without avoidable loss")
    for broker in world.up:
        found += _complaints_now(world, broker, advice[broker])
    return found


def _complaints_now(world: World, broker: int, advised: RestartAdvice) -> list[str]:
    down = world.stopped(broker)
    offline = sum(
        was.leader != NO_LEADER and now.leader == NO_LEADER and not was.is_diskless
        for was, now in zip(world.partitions, down.partitions, strict=True)
    )
    found = []
    if advised.would_go_offline != offline:
        found.append(f"{broker}: would_go_offline is {advised.would_go_offline}, but {offline} go offline")
    if advised.is_safe_to_stop != (not losses(world, broker)):
        found.append(f"{broker}: is_safe_to_stop is {advised.is_safe_to_stop}, losses: {losses(world, broker)}")
    if advised.restart_order is None and "must catch up" not in advised.restart_reason:
        recovering = ("have recovered", "has recovered", "back first")
        if not any(words in advised.restart_reason for words in recovering):
            found.append(f"{broker}: no place and no reason: {advised.restart_reason!r}")
    return found


@dataclass(slots=True)
class Judged:
    """How many states were judged, and of what kind."""

    states: int = 0
    empty: int = 0
    partial: int = 0
    unavoidable: int = 0


def judge(states: int, seed: int) -> Judged:
    """Judge random states.

    Raises:
        AssertionError: the advice on one is wrong; the message has its seed.
    """
    judged = Judged()
    for number in range(states):
        world = random_world(random.Random(f"{seed}-{number}"))
        advice = advice_on(world)
        found = complaints(world, advice)
        if found:
            raise AssertionError(f"seed {seed}, state {number}: {'; '.join(found)}\n{world}\n{advice}")
        places = sum(advised.restart_order is not None for advised in advice.values())
        judged.states += 1
        judged.empty += bool(world.up) and not places
        judged.partial += 0 < places < len(world.up)
        judged.unavoidable += any(
            each.unavoidable_offline or each.unavoidable_under_min_isr for each in advice.values() if each.restart_order
        )
    longest.cache_clear()
    return judged


def main() -> None:
    """Judge as many states as asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    print(judge(options.states, options.seed))


if __name__ == "__main__":
    main()
