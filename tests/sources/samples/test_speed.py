"""How fast brokers respond, measured on connections; what a hung or a dead one costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from streaming.changes.advice import slow_brokers
from streaming.changes.advice.slow_brokers import SLOW_SCORE, BrokerSpeed, SpeedSample, after_round
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.sources.broker_metrics import AppendTimes
from streaming.sources.protocol.offset_messages import ListedOffsets
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.kind import Kind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.source import SamplesSource
from streaming.sources.samples.speed import SpeedKind, response_micros
from streaming.sources.source import monotonic
from tests.blocks import speeds_of
from tests.plugins.fake_kafka import FakeKafka
from tests.sources.samples.opened import open_samples

PERIOD = Micros(300_000)
HISTORY = 5
PATIENCE = 120.0


@pytest.fixture
def append_times() -> AppendTimes:
    return AppendTimes([BrokerId(broker) for broker in (1, 2, 9)])


@pytest.fixture
def cluster(fake_kafka: Callable[[int], FakeKafka]) -> FakeKafka:
    made = fake_kafka(5)
    made.create_topic("orders", partitions=5, replicas=3)
    return made


@pytest.fixture
def source(cluster: FakeKafka, append_times: AppendTimes) -> Iterator[SamplesSource]:
    def kinds() -> Sequence[Kind]:
        offsets = OffsetsKind(PERIOD, DirectoriesKind(PERIOD))
        return [SpeedKind(PERIOD, offsets, append_times), offsets]

    with closing(open_samples(cluster.bootstrap_servers, kinds, PERIOD, seconds=60.0)) as opened:
        yield opened


def rounds(source: SamplesSource, count: int) -> list[dict[BrokerId, SpeedSample]]:
    """Wait for so many rounds."""
    found: list[dict[BrokerId, SpeedSample]] = []
    deadline = time.monotonic() + PATIENCE
    while len(found) < count:
        assert time.monotonic() < deadline, found[-2:]
        blocks = source.poll(Micros(time.time_ns() // 1000))
        found += [speeds_of(block) for block in blocks if isinstance(block, BrokerSpeedsObserved)]
    return found


def test_a_broker_that_responds_late_is_measured_and_called_slow_and_the_others_are_not(
    source: SamplesSource, cluster: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_brokers, "LEAST_HISTORY", HISTORY)
    speeds: dict[BrokerId, BrokerSpeed] = {}

    def conclude(count: int) -> list[int]:
        for at, samples in enumerate(rounds(source, count)):
            assert samples.keys() >= {1, 3, 4, 5}
            speeds.update(after_round(speeds, samples, Micros(at)))
        return [broker for broker, speed in speeds.items() if speed.is_slow]

    assert conclude(HISTORY + 1) == []
    assert {broker: speed.is_slow for broker, speed in speeds.items()} == dict.fromkeys((1, 2, 3, 4, 5), False)
    cluster.hang(2, 150)
    deadline = time.monotonic() + PATIENCE
    while not (slow := conclude(1)):
        assert time.monotonic() < deadline, speeds
    assert slow == [2]
    assert speeds[BrokerId(2)].score == SLOW_SCORE
    assert speeds[BrokerId(2)].reasons[0].startswith("responds in 1")


def test_a_hung_and_a_dead_broker_delay_no_round_and_are_not_in_it(source: SamplesSource, cluster: FakeKafka) -> None:
    rounds(source, 1)
    cluster.hang(1, 600_000)
    cluster.disconnect(3)
    rounds(source, 2)  # what was asked before is answered
    began = time.monotonic()
    for samples in rounds(source, 3):
        assert samples.keys() == {2, 4, 5}
    assert time.monotonic() - began < 3 * 4 * PERIOD / 1_000_000


def test_what_agents_say_is_put_beside_what_is_measured(source: SamplesSource, append_times: AppendTimes) -> None:
    assert {sample.append_micros for sample in rounds(source, 1)[0].values()} == {None}
    for broker in (2, 9):
        for requests in (100, 200, 300):
            append_times.put(BrokerId(broker), requests, 7.5, monotonic())
    samples = rounds(source, 3)[-1]
    assert {broker: sample.append_micros for broker, sample in samples.items()} == {
        1: None, 2: 7_500, 3: None, 4: None, 5: None
    }  # fmt: skip


class Muted:
    """A connection that a node reads nothing of for so long; then it responds at once, as the quota of KIP-219 has it.

    ``newest`` is that of ListOffsets; below 3 the node holds back the response itself, and says so in it.
    """

    def __init__(self, seconds: float, newest: int = 7) -> None:
        self.muted_until, self._newest = time.monotonic() + seconds, newest
        self.asked = 0

    def required(self, _key: int, supported: int, _name: str) -> int:
        return min(supported, self._newest)

    def newest(self, _key: int, supported: int) -> int:
        return min(supported, self._newest)

    def call(self, _request: object, _response: object, _read: object) -> ListedOffsets:
        self.asked += 1
        time.sleep(max(0.0, self.muted_until - time.monotonic()))
        if self._newest < 3:
            self.muted_until = time.monotonic() + 0.2
            time.sleep(0.1)
        return ListedOffsets({})


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_of_a_muted_connection_the_time_begins_when_the_node_reads_again(seconds: float) -> None:
    connection: Any = Muted(seconds)
    micros = response_micros(connection)
    assert micros is not None
    assert micros < 100_000
    assert connection.asked == 1


def test_a_connection_that_is_muted_for_long_and_a_response_that_was_held_back_show_no_time() -> None:
    muted: Any = Muted(10.0)
    assert response_micros(muted) is None
    assert muted.asked == 0
    old: Any = Muted(0.0, newest=2)
    assert response_micros(old) is None
