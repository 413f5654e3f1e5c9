"""What happens to the cluster whose listeners are recorded. Each function returns when the cluster is whole again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.listeners.stage import BROKERS, ListenerCluster, ListenerStage

ONE: Final = ListenerCluster()
THREE: Final = ListenerCluster(controllers=3)
COMBINED: Final = ListenerCluster(controllers=3, combined=True)
DEFAULTS: Final = ListenerCluster(
    timeouts=(
        ("broker.session.timeout.ms", "9000"),
        ("broker.heartbeat.interval.ms", "2000"),
        ("replica.lag.time.max.ms", "30000"),
    )
)


class ListenerFault(NamedTuple):
    """One fault, and the cluster to which it happens."""

    act: Callable[[ListenerStage], None]
    cluster: ListenerCluster = ONE


def _send(stage: ListenerStage, node: int, number: signal.Signals) -> None:
    stage.step(f"{node} gets {number.name}")
    stage.sandbox.send(node, number)


def _start(stage: ListenerStage, node: int) -> None:
    stage.step(f"{node} is started")
    stage.sandbox.launch(node)


def _stop(stage: ListenerStage, node: int) -> None:
    _send(stage, node, signal.SIGTERM)
    stage.wait_ended(node)


def _kill(stage: ListenerStage, node: int) -> None:
    _send(stage, node, signal.SIGKILL)
    stage.wait_ended(node)


def _back(stage: ListenerStage, *nodes: int) -> None:
    for node in nodes:
        _start(stage, node)
    for node in nodes:
        stage.sandbox.start(node)
    stage.wait_full()


def stop(stage: ListenerStage) -> None:
    """A broker that leads partitions is stopped cleanly."""
    _stop(stage, 3)
    time.sleep(2 * stage.session_seconds)
    _back(stage, 3)


def stop_idle(stage: ListenerStage) -> None:
    """A broker that leads nothing is stopped cleanly; the one before it was stopped has left it so."""
    _stop(stage, 3)
    time.sleep(2 * stage.session_seconds)
    _back(stage, 3)


def kill(stage: ListenerStage) -> None:
    """A broker is killed, and started later."""
    _kill(stage, 3)
    time.sleep(2 * stage.session_seconds)
    _back(stage, 3)


def kill_and_restart(stage: ListenerStage) -> None:
    """A broker is killed and started at once."""
    _kill(stage, 3)
    _back(stage, 3)


def stop_and_restart(stage: ListenerStage) -> None:
    """A broker is stopped cleanly and started at once."""
    _stop(stage, 3)
    _back(stage, 3)


def _freeze(stage: ListenerStage, node: int, seconds: float) -> None:
    _send(stage, node, signal.SIGSTOP)
    time.sleep(seconds)
    _send(stage, node, signal.SIGCONT)
    stage.wait_full()


def freeze_shortly(stage: ListenerStage) -> None:
    """A broker hangs for less than its session."""
    _freeze(stage, 3, 0.6 * stage.session_seconds)


def freeze(stage: ListenerStage) -> None:
    """A broker hangs for longer than its session."""
    _freeze(stage, 3, 2.5 * stage.session_seconds)


def _cut(stage: ListenerStage, what: str, node: int, others: list[int] | None, seconds: float) -> None:
    stage.step(f"{node} is cut off from {what}")
    stage.network.cut(node, others)
    time.sleep(seconds)
    stage.step("the network is whole")
    stage.network.heal()
    stage.wait_full()


def cut_from_controllers(stage: ListenerStage) -> None:
    """A broker does not reach the controllers; everybody else reaches it."""
    controllers = list(stage.sandbox.controller_ids)
    _cut(stage, "the controllers", 3, controllers, 3 * stage.session_seconds)


def cut_from_all(stage: ListenerStage) -> None:
    """A broker is cut off from everybody: its network, or its machine, is dead."""
    _cut(stage, "everybody", 3, None, 3 * stage.session_seconds)


def cut_from_us(stage: ListenerStage) -> None:
    """A broker is cut off from the recorder alone."""
    _cut(stage, "the recorder", 3, [0], 2 * stage.session_seconds)


def cut_from_brokers(stage: ListenerStage) -> None:
    """A broker is cut off from the other brokers alone."""
    _cut(stage, "the other brokers", 3, [1, 2], stage.lag_seconds + 6)


def one_link(stage: ListenerStage) -> None:
    """Two brokers do not reach each other, and nothing else is wrong."""
    _cut(stage, "broker 1", 3, [1], stage.lag_seconds + 6)


def cut_from_cluster(stage: ListenerStage) -> None:
    """A broker is cut off from all other nodes, and the recorder reaches it."""
    others = [*BROKERS[:2], *stage.sandbox.controller_ids]
    _cut(stage, "all other nodes", 3, others, 3 * stage.session_seconds)


FAULTS: Final[dict[str, ListenerFault]] = {
    "stop": ListenerFault(stop),
    "stop_idle": ListenerFault(stop_idle),
    "kill": ListenerFault(kill),
    "freeze": ListenerFault(freeze),
    "cut_from_controllers": ListenerFault(cut_from_controllers),
    "cut_from_all": ListenerFault(cut_from_all),
    "kill_and_restart": ListenerFault(kill_and_restart),
    "stop_and_restart": ListenerFault(stop_and_restart),
    "freeze_shortly": ListenerFault(freeze_shortly),
    "cut_from_us": ListenerFault(cut_from_us),
    "cut_from_brokers": ListenerFault(cut_from_brokers),
    "cut_from_cluster": ListenerFault(cut_from_cluster),
    "one_link": ListenerFault(one_link),
}
KEEPS_LEADERS: Final = frozenset({"stop_idle"})
"""Played with the leaders that the fault before has left."""
