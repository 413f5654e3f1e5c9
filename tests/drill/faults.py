"""Ten faults of a real cluster, and what a monitor has to call each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from streaming.contracts.events import IncidentClass
from tests.drill.stage import BROKERS, COMBINED, DEFAULTS, DISK_BROKER, SHORT, DrillCluster, DrillStage

Told = tuple[IncidentClass, frozenset[int]]
"""Class and suspects."""
CHOSEN: Final = -1
"""Among suspects: the broker that the stage has chosen."""


class Fault(NamedTuple):
    """One fault.

    Attributes:
        act: does it to a cluster that is whole, and returns when the cluster is whole again: the broker that it chose,
            if it did.
        expected: what has to be told, each once; an empty set of suspects: whoever is named is right.
        allowed: classes that may be told beside it, of brokers that nothing else is expected of.
        cluster: which it happens to.
    """

    act: Callable[[DrillStage], int | None]
    expected: tuple[Told, ...] = ()
    allowed: frozenset[IncidentClass] = frozenset()
    cluster: DrillCluster = SHORT

    def meant(self, chosen: int | None) -> list[Told]:
        """Return what has to be told, with the broker that was chosen."""
        return [
            (kind, frozenset(chosen if chosen is not None and broker == CHOSEN else broker for broker in brokers))
            for kind, brokers in self.expected
        ]

    def wrong(self, rows: list[dict[str, Any]], chosen: int | None = None) -> str:
        """Return what is wrong with the incidents that were told; empty when nothing is."""
        told = [(IncidentClass(row["incident_class"]), suspects(row)) for row in rows]
        missing = self.meant(chosen)
        to_blame = frozenset().union(*(brokers for _, brokers in missing))
        for kind, brokers in told:
            match = next((each for each in missing if each[0] is kind and each[1] in (brokers, frozenset())), None)
            if match is not None:
                missing.remove(match)
            elif kind not in self.allowed or brokers & to_blame:
                return f"told {kind} of {sorted(brokers)}"
        return f"not told: {missing[0][0]} of {sorted(missing[0][1])}" if missing else ""


def suspects(row: dict[str, Any]) -> frozenset[int]:
    """Return the brokers that an incident blames; a score of 0 is no blame."""
    return frozenset(each["broker"] for each in row["suspects"] if each["score"] > 0)


def two_crashes(stage: DrillStage) -> None:
    """Two crashes one after the other, each restarted by a supervisor: a cascade, not a rolling restart."""
    for broker in (1, 2):
        stage.sandbox.kill(broker)
        stage.wait_left(broker)
        stage.sandbox.start(broker)
        stage.wait_full()
        time.sleep(stage.gap_seconds + 2)


def slow_link(stage: DrillStage) -> None:
    """The link of one follower to one leader carries less than is written, with Kafka's own timeouts."""
    stage.sandbox.proxy.limit(leader=1, follower=3, bytes_per_second=2_000)
    time.sleep(3 * stage.lag_seconds)
    stage.sandbox.proxy.release(leader=1, follower=3)
    stage.wait_full()


def rolling_restart_with_crash(stage: DrillStage) -> None:
    """Brokers are restarted in turn; the second one is killed instead."""
    for broker in (1, 2, 3):
        if broker == 2:
            stage.sandbox.kill(broker)
            stage.wait_left(broker)
        else:
            stage.sandbox.stop(broker)
        stage.sandbox.start(broker)
        stage.wait_full()


def two_brokers(stage: DrillStage) -> None:
    """Two brokers die in the same moment."""
    stage.sandbox.kill(2)
    stage.sandbox.kill(3)
    stage.wait_left(2)
    time.sleep(5)
    stage.sandbox.start(2)
    stage.sandbox.start(3)
    stage.wait_full()


def controller_and_broker(stage: DrillStage) -> int:
    """The node that is the active controller and a broker dies."""
    active = stage.controller()
    stage.sandbox.kill(active)
    stage.wait_left(active)
    stage.sandbox.start(active)
    stage.wait_full()
    return active


def hung_broker(stage: DrillStage) -> None:
    """A process hangs for longer than its session, with its connections open."""
    stage.sandbox.pause(2)
    stage.wait_left(2)
    time.sleep(stage.session_seconds)
    stage.sandbox.resume(2)
    stage.wait_full()


def one_link(stage: DrillStage) -> None:
    """Two brokers do not reach each other, and nothing else is wrong."""
    for leader, follower in ((1, 3), (3, 1)):
        stage.sandbox.proxy.hold(leader=leader, follower=follower)
    time.sleep(3 * stage.lag_seconds)
    stage.sandbox.proxy.release_all()
    stage.wait_full()


def disk_lost(stage: DrillStage) -> None:
    """One of two disks of a broker is gone; later an empty one takes its place."""
    stage.pull_disk()
    time.sleep(20)
    stage.insert_disk()
    stage.sandbox.restart(DISK_BROKER)
    stage.wait_full()


def preferred_elections(stage: DrillStage) -> None:
    """Every leader goes back to where it belongs."""
    described = stage.sandbox.admin.describe()
    for topic, number in stage.partitions():
        if described[topic, number].leader != described[topic, number].replicas[0]:
            stage.sandbox.admin.elect_preferred(topic, number)


def decommission(stage: DrillStage) -> None:
    """A broker's partitions are moved away, it is stopped and unregistered."""
    gone, described = 5, stage.sandbox.admin.describe()
    for topic, number in described:
        replicas = described[topic, number].replicas
        if gone in replicas:
            spare = next(broker for broker in BROKERS if broker not in replicas)
            moved = [spare if broker == gone else broker for broker in replicas]
            stage.sandbox.admin.reassign(topic, number, moved)
    stage.wait_left(gone)
    stage.sandbox.stop(gone)
    stage.sandbox.run_tool("org.apache.kafka.tools.ClusterTool", "unregister", "--id", str(gone))
    stage.wait_full()


_LOSS: Final = IncidentClass.BROKER_LOSS
_LINK: Final = ((IncidentClass.LINK_FAILURE, frozenset({1, 3})),)
FAULTS: Final[dict[str, Fault]] = {
    "two_crashes": Fault(two_crashes, ((_LOSS, frozenset({1})), (_LOSS, frozenset({2})))),
    "rolling_restart_with_crash": Fault(
        rolling_restart_with_crash,
        ((_LOSS, frozenset({2})),),
        frozenset({IncidentClass.CONTROLLED_SHUTDOWN, IncidentClass.ROLLING_RESTART}),
    ),
    "two_brokers": Fault(two_brokers, ((_LOSS, frozenset({2, 3})),)),
    "preferred_elections": Fault(preferred_elections),
    "hung_broker": Fault(hung_broker, ((_LOSS, frozenset({2})),)),
    "one_link": Fault(one_link, _LINK),
    "disk_lost": Fault(
        disk_lost,
        ((IncidentClass.DISK_FAILURE, frozenset({DISK_BROKER})),),
        frozenset({IncidentClass.CONTROLLED_SHUTDOWN}),
    ),
    "decommission": Fault(
        decommission, ((IncidentClass.REASSIGNMENT, frozenset()),), frozenset({IncidentClass.CONTROLLED_SHUTDOWN})
    ),
    "controller_and_broker": Fault(controller_and_broker, ((_LOSS, frozenset({CHOSEN})),), cluster=COMBINED),
    "slow_link": Fault(slow_link, _LINK, cluster=DEFAULTS),
}
