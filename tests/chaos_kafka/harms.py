"""The faults: name -> what is done to a running cluster. Each leaves every node running, but for ``hold``.

``isolate`` cuts a broker off from the other brokers, in both directions, by the sandbox's proxy. Cutting it off from
the controllers and the clients as well needs rules of the network, and those need root; ``pause`` is the nearest to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.chaos_kafka.schedule import KafkaAct
from tests.chaos_kafka.stage import KafkaStage

LONGEST_CANCEL_SECONDS: Final = 3.0


def kill(stage: KafkaStage, act: KafkaAct) -> None:
    broker = stage.running(act)[0]
    stage.sandbox.kill(broker)
    time.sleep(act.seconds)
    stage.start(broker)


def pause(stage: KafkaStage, act: KafkaAct) -> None:
    broker = stage.running(act)[0]
    stage.sandbox.pause(broker)
    time.sleep(act.seconds)
    stage.sandbox.resume(broker)


def stop(stage: KafkaStage, act: KafkaAct) -> None:
    """Restart cleanly."""
    broker = stage.running(act)[0]
    stage.sandbox.stop(broker)
    stage.start(broker)


def hold(stage: KafkaStage, act: KafkaAct) -> None:
    """Stop cleanly, and start again after one to three further faults."""
    broker = stage.running(act)[0]
    stage.sandbox.stop(broker)
    stage.held[broker] = 1 + int(act.draw * 3)


def isolate(stage: KafkaStage, act: KafkaAct) -> None:
    broker = stage.running(act)[0]
    for other in act.brokers:
        if other != broker:
            stage.sandbox.proxy.hold(leader=broker, follower=other)
            stage.sandbox.proxy.hold(leader=other, follower=broker)
    time.sleep(act.seconds)
    stage.sandbox.proxy.release_all()


def two_at_once(stage: KafkaStage, act: KafkaAct) -> None:
    """Two brokers in the same moment, each killed or paused."""
    sandbox = stage.sandbox
    first, second = stage.running(act)[:2]
    ways = ((sandbox.kill, sandbox.kill), (sandbox.pause, sandbox.pause), (sandbox.kill, sandbox.pause))
    for broker, way in zip((first, second), ways[int(act.draw * len(ways))], strict=True):
        way(broker)
    time.sleep(act.seconds)
    for broker in (first, second):
        sandbox.resume(broker)
    for broker in (first, second):
        stage.start(broker)


def kill_controller(stage: KafkaStage, act: KafkaAct) -> None:
    controller = stage.controller(act)
    stage.sandbox.kill(controller)
    time.sleep(act.seconds)
    stage.start(controller)


def pause_controller(stage: KafkaStage, act: KafkaAct) -> None:
    controller = stage.controller(act)
    stage.sandbox.pause(controller)
    time.sleep(act.seconds)
    stage.sandbox.resume(controller)


def pause_quorum(stage: KafkaStage, act: KafkaAct) -> None:
    """All controllers but one: nobody decides anything."""
    last = stage.controller(act)
    others = [controller for controller in stage.sandbox.controller_ids if controller != last]
    for controller in others:
        stage.sandbox.pause(controller)
    time.sleep(act.seconds)
    for controller in others:
        stage.sandbox.resume(controller)


def reassign(stage: KafkaStage, act: KafkaAct) -> None:
    """Move a partition to other brokers, or to the same ones in another order."""
    partition, described = stage.partition(act)
    replicas = act.brokers[: len(described.replicas)]
    stage.attempt(stage.sandbox.admin.reassign, act.topic, partition, replicas)


def cancel(stage: KafkaStage, act: KafkaAct) -> None:
    """Begin a reassignment to brokers that receive nothing meanwhile, so that it cannot end, and cancel it."""
    partition, described = stage.partition(act)
    replicas = act.brokers[: len(described.replicas)]
    for newcomer in set(replicas) - set(described.replicas):
        for other in act.brokers:
            if other != newcomer:
                stage.sandbox.proxy.hold(leader=other, follower=newcomer)
    stage.attempt(stage.sandbox.admin.reassign, act.topic, partition, replicas)
    time.sleep(min(act.seconds, LONGEST_CANCEL_SECONDS))
    stage.attempt(stage.sandbox.admin.reassign, act.topic, partition, None)
    stage.sandbox.proxy.release_all()


def recreate(stage: KafkaStage, act: KafkaAct) -> None:
    """Delete a topic, and create another one of its name: at once, or a moment later."""
    stage.stop_writing(act.topic)
    stage.attempt(stage.sandbox.admin.delete_topic, act.topic)
    if act.draw < 0.5:
        time.sleep(min(act.seconds, 2.0))
    stage.attempt(stage.create, act.topic, act.brokers)
    stage.write(act.topic)


def add_partitions(stage: KafkaStage, act: KafkaAct) -> None:
    count = len(stage.sandbox.admin.describe(act.topic))
    stage.stop_writing(act.topic)
    stage.attempt(stage.sandbox.admin.add_partitions, act.topic, count + 1 + int(act.draw * 2))
    stage.write(act.topic)


def unclean_election(stage: KafkaStage, act: KafkaAct) -> None:
    """Let a partition of two replicas lose its leader last, bring the other one back, and elect that one."""
    act = act._replace(topic="audit")
    partition, described = stage.partition(act)
    leader = described.leader
    follower = next((broker for broker in described.replicas if broker != leader), leader)
    stage.sandbox.kill(follower)
    stage.wait(lambda: stage.described(act.topic, partition).isr <= {leader}, f"broker {follower} to leave the ISR")
    stage.sandbox.kill(leader)
    stage.wait(lambda: stage.described(act.topic, partition).leader < 0, f"{act.topic}-{partition} to be offline")
    stage.start(follower)
    stage.attempt(stage.sandbox.admin.elect_unclean, act.topic, partition)
    time.sleep(min(act.seconds, 3.0))
    stage.start(leader)


def preferred_elections(stage: KafkaStage, act: KafkaAct) -> None:
    for topic, partition in stage.sandbox.admin.describe(act.topic):
        stage.attempt(stage.sandbox.admin.elect_preferred, topic, partition)


def min_isr(stage: KafkaStage, act: KafkaAct) -> None:
    """Set or unset min.insync.replicas, which also clears the eligible leader replicas of the topic."""
    value = (None, "1", "2", "3")[int(act.draw * 4)]
    stage.attempt(stage.sandbox.admin.alter_topic_config, act.topic, {"min.insync.replicas": value})


HARMS: Final[dict[str, Callable[[KafkaStage, KafkaAct], None]]] = {
    each.__name__: each
    for each in (
        kill,
        pause,
        stop,
        hold,
        isolate,
        two_at_once,
        kill_controller,
        pause_controller,
        pause_quorum,
        reassign,
        cancel,
        recreate,
        add_partitions,
        unclean_election,
        preferred_elections,
        min_isr,
    )
}
