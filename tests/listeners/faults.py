"""What happens to the cluster whose listeners are recorded. Each function returns when the cluster is whole again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

from tests.listeners.stage import BROKERS, MOVED, RISKY, ListenerCluster, ListenerStage

ONE: Final = ListenerCluster()
THREE: Final = ListenerCluster(controllers=3)
COMBINED: Final = ListenerCluster(controllers=3, combined=True)
DISKS: Final = ListenerCluster(disk=True)
DEFAULTS: Final = ListenerCluster(
    timeouts=(
        ("broker.session.timeout.ms", "9000"),
        ("broker.heartbeat.interval.ms", "2000"),
        ("replica.lag.time.max.ms", "30000"),
    )
)


class ListenerFault(NamedTuple):
    """One fault, the cluster to which it happens, and a topic that it needs: name, replicas, configuration."""

    act: Callable[[ListenerStage], None]
    cluster: ListenerCluster = ONE
    topic: tuple[str, list[list[int]], dict[str, str]] | None = None

    def record(self, stage: ListenerStage) -> dict[str, Any]:
        """Return the play of it."""
        with stage.written_topic(*self.topic) if self.topic else nullcontext():
            return {"about": self.act.__doc__, **stage.recorded(self.act)}


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


def two_brokers(stage: ListenerStage) -> None:
    """Two of three brokers are killed in the same moment."""
    _send(stage, 2, signal.SIGKILL)
    _send(stage, 3, signal.SIGKILL)
    time.sleep(2 * stage.session_seconds)
    _back(stage, 2, 3)


def rolling_restart_with_crash(stage: ListenerStage) -> None:
    """Brokers are restarted in turn; the second one is killed instead."""
    for broker in BROKERS:
        take_down = _kill if broker == 2 else _stop
        take_down(stage, broker)
        _back(stage, broker)


def unregister(stage: ListenerStage) -> None:
    """A broker is stopped cleanly and unregistered; later it comes back."""
    _stop(stage, 3)
    time.sleep(stage.session_seconds)
    stage.step("3 is unregistered")
    stage.sandbox.run_tool("org.apache.kafka.tools.ClusterTool", "unregister", "--id", "3")
    time.sleep(stage.session_seconds)
    _back(stage, 3)


def slow_network(stage: ListenerStage) -> None:
    """Little gets through to a broker."""
    stage.step("32 kbit a second get through to 3")
    stage.network.limit(3, 32)
    time.sleep(2 * stage.lag_seconds)
    stage.step("the network is whole")
    stage.network.unlimit(3)
    stage.wait_full()


def preferred_elections(stage: ListenerStage) -> None:
    """Every partition whose leader is not its preferred one gets that, after a restart has moved leaders."""
    stage.sandbox.restart(3)
    stage.wait_full()
    stage.step("preferred leaders are elected")
    stage.prefer_leaders()
    time.sleep(3)


def reassignment(stage: ListenerStage) -> None:
    """A replica is moved to another broker."""
    stage.step(f"{MOVED}-0 is reassigned from [1, 2] to [1, 3]")
    stage.sandbox.admin.reassign(MOVED, 0, [1, 3])
    stage.sandbox.admin.wait_isr(MOVED, 0, {1, 3})
    time.sleep(2)
    stage.step(f"{MOVED}-0 is reassigned from [1, 3] to [1, 2]")
    stage.sandbox.admin.reassign(MOVED, 0, [1, 2])
    stage.sandbox.admin.wait_isr(MOVED, 0, {1, 2})


def unclean_election(stage: ListenerStage) -> None:
    """The last replica in sync is killed, and one that lacks records leads; their topic allows it."""
    _stop(stage, 2)
    time.sleep(3)
    _kill(stage, 3)
    time.sleep(2 * stage.session_seconds)
    _start(stage, 2)
    stage.sandbox.start(2)
    time.sleep(5)
    _back(stage, 3)


def elr_election(stage: ListenerStage) -> None:
    """All brokers are gone one after the other, and an eligible leader replica comes back first."""
    _stop(stage, 2)
    time.sleep(2)
    _stop(stage, 3)
    time.sleep(2)
    _kill(stage, 1)
    time.sleep(2 * stage.session_seconds)
    _start(stage, 3)
    stage.sandbox.start(3)
    time.sleep(5)
    _back(stage, 1, 2)


def disk_lost(stage: ListenerStage) -> None:
    """One of two disks of a broker is gone; later an empty one takes its place."""
    stage.step("a disk of 3 is pulled")
    stage.pull_disk()
    time.sleep(15)
    stage.insert_disk()
    _stop(stage, 3)
    _back(stage, 3)


def controller_stop(stage: ListenerStage) -> None:
    """The active controller is stopped cleanly, and started later."""
    active = stage.active_controller()
    _stop(stage, active)
    time.sleep(8)
    _back(stage, active)


def controller_kill(stage: ListenerStage) -> None:
    """The active controller is killed, and started later."""
    active = stage.active_controller()
    _kill(stage, active)
    time.sleep(8)
    _back(stage, active)


def controller_freeze(stage: ListenerStage) -> None:
    """The active controller hangs."""
    _freeze(stage, stage.active_controller(), 12)
    time.sleep(3)


def controller_cut(stage: ListenerStage) -> None:
    """The active controller is cut off from all other nodes, and the recorder reaches it."""
    active = stage.active_controller()
    others = [node for node in (*BROKERS, *stage.sandbox.controller_ids) if node != active]
    _cut(stage, "all other nodes", active, others, 12)


def lone_controller_kill(stage: ListenerStage) -> None:
    """The only controller is killed, and started later."""
    (only,) = stage.sandbox.controller_ids
    _kill(stage, only)
    time.sleep(12)
    _back(stage, only)
    time.sleep(3)


def lone_controller_freeze(stage: ListenerStage) -> None:
    """The only controller hangs."""
    (only,) = stage.sandbox.controller_ids
    _freeze(stage, only, 12)
    time.sleep(3)


def controller_and_broker(stage: ListenerStage) -> None:
    """The node that is the active controller and a broker is killed, and started later."""
    active = stage.active_controller()
    _kill(stage, active)
    time.sleep(2 * stage.session_seconds)
    _back(stage, active)


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
    "two_brokers": ListenerFault(two_brokers),
    "rolling_restart_with_crash": ListenerFault(rolling_restart_with_crash),
    "unregister": ListenerFault(unregister),
    "slow_network": ListenerFault(slow_network),
    "preferred_elections": ListenerFault(preferred_elections),
    "reassignment": ListenerFault(reassignment, topic=(MOVED, [[1, 2]], {})),
    "unclean_election": ListenerFault(
        unclean_election, topic=(RISKY, [[3, 2]], {"unclean.leader.election.enable": "true"})
    ),
    "elr_election": ListenerFault(elr_election),
    "lone_controller_kill": ListenerFault(lone_controller_kill),
    "lone_controller_freeze": ListenerFault(lone_controller_freeze),
    "controller_kill": ListenerFault(controller_kill, THREE),
    "controller_stop": ListenerFault(controller_stop, THREE),
    "controller_freeze": ListenerFault(controller_freeze, THREE),
    "controller_cut": ListenerFault(controller_cut, THREE),
    "controller_and_broker": ListenerFault(controller_and_broker, COMBINED),
    "disk_lost": ListenerFault(disk_lost, DISKS),
    "stop_by_default": ListenerFault(stop, DEFAULTS),
    "kill_by_default": ListenerFault(kill, DEFAULTS),
    "kill_and_restart_by_default": ListenerFault(kill_and_restart, DEFAULTS),
    "freeze_by_default": ListenerFault(freeze, DEFAULTS),
    "cut_from_controllers_by_default": ListenerFault(cut_from_controllers, DEFAULTS),
}
KEEPS_LEADERS: Final = frozenset({"stop_idle"})
"""Played with the leaders that the fault before has left."""
