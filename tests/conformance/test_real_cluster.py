"""A real cluster through everything that an operator and fate can do to it: its log is a log of the model's controller.

One cluster plays the whole script once. ``pytest -s`` prints what it did, as actions of the model. A part of it is in
``make test``, too: ``tests/end_to_end/test_real_cluster.py``.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest

from deploy.sandbox import Sandbox, plan_cluster, wait_until
from streaming.contracts.events import Cause
from streaming.sources.metadata_log.decoding import decode_batches
from streaming.sources.simulated.timeline import step_text
from tests.conformance.actions import ActionName, Explanation
from tests.conformance.checker import Checker
from tests.topic_writer import TopicWriter

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PROPERTIES = {"replica.lag.time.max.ms": "3000", "broker.session.timeout.ms": "4000"}
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
TOPICS: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    "orders": ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {MIN_ISR: "2"}),
    "strict": ([[1, 2, 3], [3, 2, 1]], {MIN_ISR: "3"}),
    "lean": ([[1, 2, 3], [2, 1, 3]], {MIN_ISR: "2"}),  # partition 0 shrinks to one replica
    "moved": ([[3, 2, 1], [3, 2, 1]], {MIN_ISR: "2"}),  # partition 1 moves to broker 3 alone, and back to 2
    "pair": ([[3, 2]], {}),
    "reckless": ([[3, 2]], {UNCLEAN: "true"}),
    "single": ([[3]], {}),
    "mobile": ([[1, 2]], {}),
    "doomed": ([[1, 2, 3]], {}),
}


class Script:
    """What happens to the cluster; each act waits until its consequences are there."""

    def __init__(self, cluster: Sandbox) -> None:
        self.cluster, self.admin = cluster, cluster.admin

    def play(self) -> None:
        self.administrate()
        self.crash()
        self.freeze()
        self.restart_at_once()
        self.stop_cleanly()
        self.cut_off()
        self.replace_the_controller()
        self.unregister()

    def administrate(self) -> None:
        self.admin.delete_topic("doomed")
        self.admin.add_partitions("mobile", 2)
        self.admin.alter_topic_config("orders", {"retention.ms": "3600000"})
        default = ("--entity-type", "brokers", "--entity-default", "--alter", "--add-config", f"{MIN_ISR}=1")
        self.cluster.run_tool("kafka.admin.ConfigCommand", *default)
        self.admin.reassign("lean", 0, [1])
        self.admin.reassign("moved", 1, [3])
        self.admin.reassign("mobile", 0, [2, 3])
        self.admin.wait_isr("mobile", 0, {2, 3})
        self.admin.reassign("orders", 1, [2, 1, 3])

    def crash(self) -> None:
        """Broker 3, the only one that has anything of moved-1: 2 comes back to it and gets nothing."""
        self.cluster.proxy.hold(3, 2)
        self.admin.reassign("moved", 1, [3, 2])
        self.cluster.kill(3)
        self.wait_isr("orders", 0, {1, 2})
        self.wait(lambda: self.admin.describe("single")["single", 0].leader == -1, "single to be leaderless")
        self.admin.reassign("lean", 1, [2, 3])
        self.admin.reassign("lean", 1, None)
        self.admin.alter_topic_config("strict", {MIN_ISR: "2"})
        self.admin.alter_topic_config("strict", {MIN_ISR: "3"})
        self.cluster.proxy.release_all()
        self.cluster.start(3)
        self.whole()

    def freeze(self) -> None:
        self.cluster.pause(2)
        self.wait(lambda: 2 not in self.admin.live_brokers(), "broker 2 to be fenced")
        self.cluster.resume(2)
        self.whole()

    def restart_at_once(self) -> None:
        self.cluster.kill(1)
        self.cluster.start(1)
        self.whole()

    def stop_cleanly(self) -> None:
        """Twice: when it leads something, and when it leads nothing."""
        self.cluster.restart(3)
        self.whole()
        for topic, number in self.admin.describe():
            self.admin.elect_preferred(topic, number)

    def cut_off(self) -> None:
        """Broker 2 does not get what 3 leads; then 3 dies, and only 2 is left."""
        self.cluster.proxy.hold(3, 2)
        self.wait_isr("pair", 0, {3})
        self.wait_isr("reckless", 0, {3})
        self.cluster.kill(3)
        self.wait(lambda: self.admin.describe("pair")["pair", 0].leader == -1, "pair to be leaderless")
        self.admin.elect_unclean("pair")
        self.cluster.proxy.release_all()
        self.cluster.start(3)
        self.whole()

    def replace_the_controller(self) -> None:
        self.cluster.kill(101)
        self.cluster.start(101)
        wait_until(lambda: len(self.admin.live_brokers()) == 3, "all brokers to be back")

    def unregister(self) -> None:
        """While it runs: nothing forbids it. The process goes on as if nothing had been, and is killed."""
        self.cluster.run_tool("org.apache.kafka.tools.ClusterTool", "unregister", "--id", "3")
        self.cluster.kill(3)
        self.cluster.start(3)
        self.whole()

    def wait_isr(self, topic: str, number: int, isr: set[int]) -> None:
        self.admin.wait_isr(topic, number, isr, seconds=60)

    def wait(self, reached: Any, what: str) -> None:
        wait_until(reached, what, seconds=60)

    def whole(self) -> None:
        for (topic, number), state in self.admin.describe().items():
            self.wait_isr(topic, number, set(state.replicas))


@pytest.fixture(scope="module")
def explanations() -> list[Explanation]:
    with ExitStack() as stack:
        cluster = stack.enter_context(Sandbox(plan_cluster(properties=PROPERTIES, proxy=True)))
        for name, (assignment, configs) in TOPICS.items():
            cluster.admin.create_topic(name, assignment=assignment, configs=configs)
        for name in ("orders", "strict", "lean", "moved", "pair", "reckless", "mobile"):
            stack.enter_context(TopicWriter(cluster.bootstrap_servers, name))
        Script(cluster).play()
        time.sleep(1)
        checker = Checker(min_insync_replicas=1, unclean_leader_election=False)
        return [checker.explain(batch) for batch in decode_batches(cluster.read_metadata_log())]


def test_every_record_of_a_real_cluster_is_an_action_of_the_model(explanations: list[Explanation]) -> None:
    for action in (action for each in explanations for action in each.actions):
        if action.name not in {ActionName.NO_OP, ActionName.OTHER}:
            print(action, step_text(action.step) if action.step else "", sep="  ")
    assert "\n".join(str(deviation) for each in explanations for deviation in each.deviations) == ""


def test_the_script_made_it_do_everything_that_it_was_meant_to(explanations: list[Explanation]) -> None:
    names = {action.name for each in explanations for action in each.actions}
    causes = {cause for each in explanations for action in each.actions for cause in action.causes}
    assert set(ActionName) - names <= {ActionName.FAIL_DIRECTORIES, ActionName.ASSIGN_DIRECTORIES, ActionName.OTHER}
    assert set(Cause) - causes <= {
        Cause.CREATED, Cause.DELETED, Cause.CONFIG, Cause.UNKNOWN, Cause.DIR_FAILURE, Cause.UNFENCED, Cause.RESTART,
    }  # fmt: skip


def test_a_broker_that_was_moved_away_and_came_back_with_nothing_won_a_clean_election(
    explanations: list[Explanation],
) -> None:
    """A flaw of Kafka 4.3.1, and a rule of the model: the switch ``elr_forgets_dropped_replicas`` mends it."""
    elected = [
        action.step.after.isr
        for each in explanations
        for action in each.actions
        if action.subject == "moved-1" and Cause.ELR_ELECTION in action.causes and action.step and action.step.after
    ]
    assert elected[:1] == [(2,)]
