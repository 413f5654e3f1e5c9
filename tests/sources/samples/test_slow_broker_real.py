"""A slow broker of a real cluster is found without agents, and no other is; where all are slow, nobody is to blame."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import permutations
from types import MappingProxyType

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from streaming.changes.advice.slow_brokers import LEAST_HISTORY, BrokerSpeed, after_round
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.sample_blocks import BrokerSpeedsObserved
from streaming.sources.samples.directories import DirectoriesKind
from streaming.sources.samples.kind import Kind
from streaming.sources.samples.offsets import OffsetsKind
from streaming.sources.samples.speed import SpeedKind
from tests.blocks import speeds_of
from tests.sources.samples.opened import open_samples
from tests.topic_writer import TopicWriter

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PERIOD = Micros(1_000_000)
PATIENCE = 120.0


@contextmanager
def written_to(brokers: int) -> Iterator[Sandbox]:
    """Brokers each of which replicates from and to every other one."""
    plan = plan_cluster(brokers=brokers, proxy=True, properties={"num.partitions": "1"})
    with Sandbox(plan) as sandbox:
        assignment = [list(replicas) for replicas in permutations(sandbox.broker_ids, 3)]
        sandbox.admin.create_topic("orders", assignment=assignment)
        with TopicWriter(sandbox.bootstrap_servers, "orders", interval_seconds=0.2):
            yield sandbox


@pytest.fixture(scope="module")
def cluster() -> Iterator[Sandbox]:
    with written_to(4) as sandbox:
        yield sandbox


class Watched:
    """Concludes round by round, and remembers who was ever called slow."""

    def __init__(self, cluster: Sandbox, speeds: Mapping[BrokerId, BrokerSpeed] = MappingProxyType({})) -> None:
        self.speeds: dict[BrokerId, BrokerSpeed] = dict(speeds)
        self.called: set[int] = set()
        self.rounds = 0
        self.brokers = len(cluster.broker_ids)
        self.source = open_samples(cluster.bootstrap_servers, self._kinds, PERIOD)

    @staticmethod
    def _kinds() -> Sequence[Kind]:
        offsets = OffsetsKind(PERIOD, DirectoriesKind(PERIOD))
        return [SpeedKind(PERIOD, offsets), offsets]

    def until(self, is_enough: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_enough():
            assert time.monotonic() < deadline, self.speeds
            for block in self.source.poll(Micros(time.time_ns() // 1000)):
                if isinstance(block, BrokerSpeedsObserved):
                    self._conclude(block)

    def _conclude(self, block: BrokerSpeedsObserved) -> None:
        self.speeds |= after_round(self.speeds, speeds_of(block), block.collected_at)
        self.called |= {broker for broker, speed in self.speeds.items() if speed.is_slow}
        self.rounds += 1

    def get_used_to(self) -> None:
        """Watch for so long that there is a history of both signals."""
        self.until(
            lambda: (
                len(self.speeds) == self.brokers
                and all(min(len(each.responses), len(each.behind)) >= LEAST_HISTORY for each in self.speeds.values())
            )
        )


@contextmanager
def watching(cluster: Sandbox, speeds: Mapping[BrokerId, BrokerSpeed] = MappingProxyType({})) -> Iterator[Watched]:
    watched = Watched(cluster, speeds)
    with closing(watched.source):
        watched.get_used_to()
        assert watched.called == set()
        yield watched


@pytest.fixture(scope="module")
def history(cluster: Sandbox) -> dict[BrokerId, BrokerSpeed]:
    """What was concluded while nothing was slow: it takes a dozen rounds, and each test begins with it."""
    with watching(cluster) as watched:
        return dict(watched.speeds)


@pytest.fixture
def watched(cluster: Sandbox, history: dict[BrokerId, BrokerSpeed]) -> Iterator[Watched]:
    with watching(cluster, history) as watched:
        yield watched


@contextmanager
def standing_still(cluster: Sandbox, *brokers: int) -> Iterator[None]:
    """Let brokers stand still for most of the time, each for less than a second: no session ends."""
    over = threading.Event()

    def stutter() -> None:
        while not over.is_set():
            for broker in brokers:
                cluster.pause(broker)
            over.wait(0.7)
            for broker in brokers:
                cluster.resume(broker)
            over.wait(0.15)

    thread = threading.Thread(target=stutter, name="stutter")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_broker_that_stands_still_again_and_again_is_found_by_its_response_time(
    cluster: Sandbox, watched: Watched
) -> None:
    with standing_still(cluster, 2):
        watched.until(lambda: watched.called)
    assert watched.called == {2}, watched.speeds
    assert watched.speeds[BrokerId(2)].reasons[0].startswith("responds in ")


def test_one_of_three_brokers_that_stands_still_is_found_although_it_is_in_most_pairs() -> None:
    with written_to(3) as cluster, watching(cluster) as watched:
        with standing_still(cluster, 2):
            watched.until(lambda: watched.called)
        assert watched.called == {2}, watched.speeds


def test_a_broker_whose_replication_is_slow_is_found_by_who_it_is_behind(cluster: Sandbox, watched: Watched) -> None:
    for leader in set(cluster.broker_ids) - {3}:
        cluster.proxy.limit(leader, 3, 200)
    try:
        watched.until(lambda: watched.called)
    finally:
        cluster.proxy.release_all()
    assert watched.called == {3}, watched.speeds
    assert watched.speeds[BrokerId(3)].reasons[-1].startswith("is behind ")


def test_where_all_brokers_are_slow_none_is_to_blame(cluster: Sandbox, watched: Watched) -> None:
    with standing_still(cluster, *cluster.broker_ids):
        watched.until(lambda: any(speed.is_overloaded for speed in watched.speeds.values()))
        begun = watched.rounds
        watched.until(lambda: watched.rounds >= begun + 8)
    assert watched.called == set()
