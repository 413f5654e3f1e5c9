"""What nobody ordered is not reported as planned, however close to planned work it is."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import CauseRevised
from tests.changes.conftest import Story
from tests.changes.test_hidden_harm import incidents, reported

EXPAND = {"cause": "expand", "evidence": "proven"}
LAG = {"cause": "lag", "evidence": "inferred"}
ALL = (1, 2, 3)


class Orders(Story):
    """A cluster of three brokers with one partition, of which brokers are stopped cleanly and started again."""

    def __init__(self, minimum: str = "1") -> None:
        super().__init__()
        self.config(minimum)
        self.snapshot([{}])
        self.epoch = 0

    def step(self, isr: tuple[int, ...], **cause: Any) -> None:
        """The partition's next change: the first of the ISR leads."""
        self.epoch += 1
        self.later(1).partition(isr=isr, leader=isr[0], leader_epoch=self.epoch, partition_epoch=self.epoch, **cause)

    def stop(self, broker: int) -> None:
        self.later(60)
        self.step(tuple(each for each in ALL if each != broker), cause="controlled_shutdown", evidence="proven")
        self.broker(broker, in_controlled_shutdown=True)
        self.later(5).broker(broker, in_controlled_shutdown=True, fenced=True)

    def start(self, broker: int) -> None:
        self.later(20).broker(broker, broker_epoch=self.offset, fenced=True)
        self.later(5).broker(broker, broker_epoch=self.offset - 1)

    def restart(self, broker: int) -> None:
        self.stop(broker)
        self.start(broker)
        self.step((*(each for each in ALL if each != broker), broker), **EXPAND)


def test_a_broker_that_crashes_after_its_restart_before_it_has_caught_up_is_lost() -> None:
    story = Orders()
    story.stop(1)
    story.start(1)
    story.later(10).broker(1, broker_epoch=story.offset - 2, fenced=True)
    story.later(60).heartbeat()
    assert reported(story) == [("broker_loss", "warning", True)]
    assert [each["broker"] for each in incidents(story)[0]["suspects"]] == [1]


@pytest.mark.parametrize("is_announced", [False, True])
def test_a_disk_that_is_lost_after_a_restart_before_its_replicas_have_caught_up_is_no_planned_work(
    *, is_announced: bool
) -> None:
    story = Orders()
    if is_announced:
        story.add(story.lease(1))
    story.broker(1, log_dirs=("d1", "d2"))
    story.stop(1)
    story.later(20).broker(1, broker_epoch=50, fenced=True, log_dirs=("d1", "d2"))
    story.later(5).broker(1, broker_epoch=50)
    story.later(5).broker(1, broker_epoch=50, log_dirs=("d2",))
    story.later(60).heartbeat()
    assert reported(story) == [("disk_failure", "warning", True)]


def test_a_broker_that_comes_back_from_a_clean_stop_without_one_of_its_disks_has_lost_it() -> None:
    story = Orders()
    story.broker(1, log_dirs=("d1", "d2"))
    story.stop(1)
    story.later(20).broker(1, broker_epoch=50, fenced=True, log_dirs=("d1",))
    story.later(5).broker(1, broker_epoch=50, log_dirs=("d1",))
    story.later(3600).heartbeat()
    assert reported(story) == [("disk_failure", "warning", True)]


def test_a_broker_that_lags_after_its_restart_is_over_is_slow() -> None:
    story = Orders()
    story.restart(1)
    story.restart(2)
    story.later(600)
    story.step((1, 3), **LAG)
    story.later(400).heartbeat()
    assert reported(story) == [("rolling_restart", "info", False), ("slow_follower", "warning", True)]


def test_a_crash_does_not_become_planned_because_the_broker_is_stopped_cleanly_after_it() -> None:
    story = Orders()
    story.later(60)
    story.step((2, 3), cause="fenced", evidence="proven")
    story.broker(1, fenced=True)
    story.start(1)
    story.step((2, 3, 1), **EXPAND)
    story.later(40)
    story.step((2, 3), cause="fenced", evidence="ambiguous", candidates=("fenced", "controlled_shutdown"))
    stopped_at = story.offset
    story.broker(1, broker_epoch=5, fenced=True)
    proof = {"revised_offset": stopped_at, "cause": Cause.CONTROLLED_SHUTDOWN, "evidence": Evidence.PROVEN}
    story.later(9)
    of = {"topic_id": "topic-1", "topic": "orders", "partition": 0, "metadata_offset": story.offset, "broker": 1}
    story.add(CauseRevised(**story.envelope(), **of, **proof))
    story.start(1)
    story.step((2, 3, 1), **EXPAND)
    story.later(200).heartbeat()

    assert reported(story) == [("broker_loss", "warning", False)]


def test_an_unclean_election_after_a_disk_that_held_the_last_replica_is_reported_as_one() -> None:
    """With eligible leader replicas (KIP-966) the ISR is empty before, so nobody leaves it by the election."""
    story = Story()
    story.config("1")
    story.snapshot([{"isr": (1,)}])
    gone = {"isr": (), "leader": -1, "leader_epoch": 1, "partition_epoch": 1}
    story.later(5).partition(**gone, cause="dir_failure", evidence="proven")
    elected = {"isr": (2,), "leader": 2, "leader_epoch": 2, "partition_epoch": 2, "leader_recovering": True}
    story.later(60).partition(**elected, cause="unclean_election", evidence="proven")
    story.later(60).heartbeat()
    assert reported(story) == [("unclean_election", "critical", True)]
    assert [each["broker"] for each in incidents(story)[0]["suspects"]] == [1]


def test_where_min_isr_is_unknown_it_is_not_said_that_clients_notice_nothing() -> None:
    story = Story()
    story.snapshot([{}])
    stopped = {"cause": "controlled_shutdown", "evidence": "proven"}
    story.later(5).partition(isr=(2, 3), leader=2, leader_epoch=1, partition_epoch=1, **stopped)
    story.broker(1, in_controlled_shutdown=True)
    story.later(5).heartbeat()
    assert reported(story) == [("controlled_shutdown", "info", True)]
    doubt = "whether writers of topic orders were refused is unknown, as min ISR is"
    assert incidents(story)[0]["consequence"] == doubt


def test_of_a_topic_without_a_leader_it_is_said_once_that_it_cannot_be_written() -> None:
    story = Story()
    story.snapshot([{"isr": (1,)}])
    story.later(5).partition(isr=(1,), leader=-1, leader_epoch=1, partition_epoch=1, cause="fenced", evidence="proven")
    story.broker(1, fenced=True)
    story.later(5).heartbeat()
    assert incidents(story)[0]["consequence"] == "partitions of topic orders cannot be written or read"


def test_a_topic_that_has_recovered_is_not_said_to_fail_while_another_one_does() -> None:
    offsets = {"topic_id": "topic-2", "topic": "__consumer_offsets"}
    story = Story()
    story.config("2")
    story.config("2", topic="__consumer_offsets")
    story.snapshot([{}])
    story.later().partition(cause="created", evidence="proven", **offsets)
    lost = {"isr": (1,), "partition_epoch": 1, "cause": "fenced", "evidence": "proven"}
    story.later().partition(**lost)
    story.partition(**lost, **offsets)
    story.broker(2, fenced=True)
    story.broker(3, fenced=True)
    assert incidents(story)[0]["consequence"] == (
        "acks=all writers of topics __consumer_offsets and orders fail, "
        "commits and rebalances of the groups kept there fail"
    )

    back = {"isr": (1, 2), "partition_epoch": 2, "cause": "expand", "evidence": "proven"}
    story.later(5).partition(**back, **offsets)
    story.later().heartbeat()
    assert incidents(story)[0]["consequence"] == (
        "acks=all writers of topic orders fail, acks=all writers of topic __consumer_offsets failed, "
        "commits and rebalances of the groups kept there failed"
    )


def test_a_broker_that_is_back_from_a_clean_stop_and_does_not_catch_up_is_no_planned_work_for_ever() -> None:
    story = Orders()
    story.stop(1)
    story.start(1)
    story.later(500).heartbeat()
    assert reported(story) == [("controlled_shutdown", "info", True)]
    story.later(200).heartbeat()
    (incident,) = incidents(story)
    assert (incident["incident_class"], incident["severity"]) == ("broker_loss", "warning")
    assert incident["summary"].startswith("broker 1 did not catch up after its return from a clean stop")
    assert incident["next_step"] == "wait until broker 1 has caught up, and stop no other broker meanwhile"


def test_a_second_turn_of_a_broker_that_had_caught_up_is_not_late_because_the_first_is_long_ago() -> None:
    story = Orders()
    story.restart(1)
    story.restart(2)
    story.later(700)
    story.stop(1)
    story.later(60).heartbeat()
    assert reported(story) == [("rolling_restart", "info", True)]
