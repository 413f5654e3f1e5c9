"""The model's listeners against those of real brokers, as recorded: the same is met, in the same order, in time.

Times may differ by what chance and the machine of the recording add: a period of heartbeats, a second of a JVM that
shuts down, and as much of one that starts.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest

from streaming.sources.polling.inference.inquiry import Ask
from tests.judge.polls.recorded_plays import Replay, Seen, lasting, recorded, recorded_lists
from tests.listeners.recordings import VERSIONS, plays

TOLERANCE_MS: Final = 2_000
STARTED_MS: Final = 2_500
"""The same after a start: a registration that came too early is asked for again after up to half a session."""
LASTING_MS: Final = 1_500
"""A silence that is shorter is one of an election, whose length is chance."""
MISSED_MS: Final = 700
"""What is over so soon may be missed by a probe."""
FAULTS: Final = (
    "stop",
    "stop_idle",
    "kill",
    "freeze",
    "freeze_shortly",
    "cut_from_controllers",
    "cut_from_all",
    "cut_from_us",
    "cut_from_brokers",
    "cut_from_cluster",
    "one_link",
    "kill_and_restart",
    "stop_and_restart",
    "controller_kill",
    "controller_stop",
    "controller_freeze",
    "lone_controller_kill",
    "lone_controller_freeze",
    "stop_by_default",
    "kill_by_default",
    "kill_and_restart_by_default",
    "freeze_by_default",
    "cut_from_controllers_by_default",
)
RECORDED: Final = [(version, fault) for version in VERSIONS for fault in FAULTS if fault in plays(version)]


@cache
def _replayed(version: str, fault: str) -> Replay:
    return Replay(version, plays(version)[fault]).run()


def _assert_alike(real: list[Seen], model: list[Seen]) -> None:
    assert [one.what for one in model] == [one.what for one in real]
    for place, (theirs, ours) in enumerate(zip(real, model, strict=True)):
        is_start = place > 1 and real[place - 1].what != "silent"
        assert not place or abs(theirs.at - ours.at) <= (STARTED_MS if is_start else TOLERANCE_MS), (theirs, ours)


@pytest.mark.parametrize(("version", "fault"), RECORDED)
def test_the_listener_of_a_faulted_broker_behaves_as_recorded(version: str, fault: str) -> None:
    play = plays(version)[fault]
    model, real = _replayed(version, fault).seen(3, Ask.PRESENCE), recorded(play, 3, "DescribeCluster")
    if not fault.startswith("cut_from"):
        _assert_alike(real, model)
        return
    # The recorder keeps one connection; a monitor tries a second one, so it is answered earlier.
    if [one.what for one in real] == ["answers", "silent"]:
        model = model[:2]
    assert [one.what for one in model] == [one.what for one in real]
    earliest = play.first(3, "new connection", "answered", since=1)
    assert all(earliest - TOLERANCE_MS < one.at < real[-1].at + TOLERANCE_MS for one in model[2:])


@pytest.mark.parametrize(("version", "fault"), RECORDED)
def test_the_others_cease_to_list_it_when_they_did_in_the_recording(version: str, fault: str) -> None:
    play, replay = plays(version)[fault], _replayed(version, fault)
    # One that was started at once is away from the end of the session until it asks again for its registration.
    least = STARTED_MS if "and_restart" in fault else MISSED_MS
    for node in (1, 2):
        real, model = (lasting(each, least) for each in (recorded_lists(play, node, 3), replay.lists(node, 3)))
        _assert_alike(real, model)


@pytest.mark.parametrize(("version", "fault"), RECORDED)
def test_what_brokers_forward_to_the_controllers_is_silent_as_recorded(version: str, fault: str) -> None:
    play, replay = plays(version)[fault], _replayed(version, fault)
    real, model = recorded(play, 1, "DescribeQuorum"), replay.seen(1, Ask.QUORUM)
    if len(lasting(real, LASTING_MS)) > 1:
        assert [one.what for one in model] == [one.what for one in real]
        assert abs(model[1].at - real[1].at) <= TOLERANCE_MS
        assert abs(model[-1].at - real[-1].at) <= STARTED_MS
    else:
        assert [one.what for one in lasting(model, LASTING_MS)] == ["answers"]
