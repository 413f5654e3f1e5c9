"""A process that ended and the one after it, under the same broker id."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.model.constants import Switches


@pytest.mark.parametrize(("incarnation_check", "incarnation"), [(True, "incarnation-3"), (False, "incarnation-2")])
def test_the_answer_to_a_process_that_ended_is_not_taken_by_the_next_one(
    lab: Any, *, incarnation_check: bool, incarnation: str
) -> None:
    """Without the check the second process runs under the registration of the first, clean stop and all."""
    it = lab(brokers=(1,), latency_ms=50, switches=Switches(incarnation_check=incarnation_check))
    it.run(1_000)
    it.start(2)
    it.run(1_010)
    it.cluster.kill(2)
    it.start(2)
    it.run(3_000)
    registration = it.cluster.controller.registry.brokers[2]
    process = it.cluster.brokers[2].lifecycle
    assert registration.incarnation_id == incarnation
    assert process.epoch == registration.epoch
    assert process.incarnation_id == "incarnation-3"


def test_a_broker_that_stopped_cleanly_has_to_wait_its_own_session_out(it: Any) -> None:
    """As in 4.3.1: DUPLICATE_BROKER_REGISTRATION, whoever asks and however the one before went."""
    (key,) = it.topic("t", [(1, 2, 3)])
    it.run(5_000)
    it.cluster.stop(1)
    it.run(8_000)
    assert 1 not in it.cluster.brokers
    it.start(1)
    it.run(13_000)
    assert it.state(key).isr == (2, 3)
    it.run(20_000)
    assert it.state(key).isr == (1, 2, 3)
