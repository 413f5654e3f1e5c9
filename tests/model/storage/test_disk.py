"""What outlives a process, a loss of power, and a broken disk."""

from __future__ import annotations

from typing import Any

ALONE = {"eligible_leader_replicas": False}


def test_a_killed_process_finds_the_high_watermark_of_the_last_checkpoint(it: Any) -> None:
    key = it.topic("t", [(1, 2, 3)])[0]
    it.write(key, 5)
    it.run(5_100)
    it.write(key, 3)
    it.run(9_000)
    assert (it.high_watermark(2, key), it.log_end(2, key)) == (8, 8)
    it.cluster.kill(2)
    assert (it.high_watermark(2, key), it.log_end(2, key)) == (5, 8)


def test_a_clean_stop_checkpoints_exactly(it: Any) -> None:
    key = it.topic("t", [(1, 2, 3)])[0]
    it.run(5_100)
    it.write(key, 3)
    it.run(9_000)
    it.cluster.stop(2)
    it.run(11_000)
    assert 2 not in it.cluster.brokers
    assert (it.high_watermark(2, key), it.log_end(2, key)) == (3, 3)


def test_a_restarted_leader_rebuilds_its_high_watermark_from_fetches(lab: Any) -> None:
    it = lab(**ALONE)
    key = it.topic("t", [(1, 2)])[0]
    it.write(key, 4)
    it.run(4_000)
    it.cluster.kill(2)
    it.cluster.kill(1)
    assert it.high_watermark(1, key) == 0
    it.start(1)
    it.start(2)
    it.run_until(lambda: it.high_watermark(it.state(key).leader, key) == 4)


def test_statement_37_power_loss_takes_what_was_not_flushed_and_a_killed_process_does_not(it: Any) -> None:
    """Kafka flushes nothing by itself; when the operating system does is the caller's choice."""
    key = it.topic("t", [(1, 2, 3)])[0]
    it.write(key, 5)
    it.run(2_000)
    it.cluster.sync(2)
    it.write(key, 3)
    it.run(4_000)
    it.cluster.kill(3)
    it.cluster.lose_power(2)
    assert {broker: it.log_end(broker, key) for broker in (1, 2, 3)} == {1: 8, 2: 5, 3: 8}
    it.start(2)
    it.start(3)
    it.run_until(lambda: len(it.state(key).isr) == 3)
    it.run(it.cluster.now + 1_000)
    assert {it.log_end(broker, key) for broker in (1, 2, 3)} == {8}


def test_a_clean_stop_flushes(it: Any) -> None:
    key = it.topic("t", [(1, 2, 3)])[0]
    it.write(key, 5)
    it.run(2_000)
    it.cluster.stop(3)
    it.run(4_000)
    it.cluster.lose_power(3)
    assert it.log_end(3, key) == 5


def test_a_replaced_disk_is_empty_and_fills_again(it: Any) -> None:
    key = it.topic("t", [(1, 2, 3)])[0]
    it.write(key, 5)
    it.run(2_000)
    it.cluster.wipe(3)
    assert it.cluster.disks[3].replicas == {}
    it.start(3)
    it.run_until(lambda: it.state(key).isr == (1, 2))
    it.run_until(lambda: it.state(key).isr == (1, 2, 3))
    assert it.log_end(3, key) == 5


def test_checkpoints_cost_as_much_as_there_are_replicas_that_moved(it: Any) -> None:
    keys = it.topic("t", [(1, 2, 3)] * 20)
    it.run(6_000)
    it.write(keys[0], 5)
    it.run(7_000)
    assert [len(it.cluster.disks[broker].checkpoint.moved) for broker in (1, 2, 3)] == [1, 1, 1]
    it.run(11_000)
    assert [len(it.cluster.disks[broker].checkpoint.moved) for broker in (1, 2, 3)] == [0, 0, 0]
