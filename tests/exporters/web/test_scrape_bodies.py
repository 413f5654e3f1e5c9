"""Scrapers that ask in the same moment share what is sent to them, and whoever prepares responses waits for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.web import server
from exporters.web.bodies import OF_SCRAPES, SharedBodies
from exporters.web.server import ScrapePriority
from streaming.web.http_counts import HttpCounts

SCRAPERS = 100


@dataclass
class Clock:
    now: int = 1_790_000_000_000_000

    def __call__(self) -> int:
        return self.now


def test_a_hundred_scrapers_at_once_cost_one_body() -> None:
    bodies, snapshot, made = SharedBodies(Clock()), ReplicationSnapshot(), []
    at_once = threading.Barrier(SCRAPERS)

    def make(now: int) -> bytes:
        time.sleep(0.05)
        made.append(now)
        return b"body %d" % len(made)

    def scrape(_: int) -> bytes:
        at_once.wait()
        return bodies.shared("/metrics", snapshot, make)

    with ThreadPoolExecutor(SCRAPERS) as pool:
        assert set(pool.map(scrape, range(SCRAPERS))) == {b"body 1"}
    assert len(made) == 1


def test_a_body_is_shared_for_a_moment_and_as_long_as_nothing_changed() -> None:
    clock, first, second = Clock(), ReplicationSnapshot(), ReplicationSnapshot(version=1)
    bodies = SharedBodies(clock)

    def made_at(snapshot: ReplicationSnapshot) -> int:
        return int(bodies.shared("/metrics", snapshot, lambda now: b"%d" % now))

    began = clock.now
    assert made_at(first) == began
    clock.now = began + OF_SCRAPES - 1
    assert (made_at(first), made_at(second)) == (began, clock.now)
    clock.now += OF_SCRAPES
    assert made_at(second) == clock.now
    clock.now -= 10  # a clock that was set back
    assert made_at(second) == clock.now


def test_what_is_asked_for_differently_is_not_shared_and_does_not_accumulate() -> None:
    bodies, snapshot, made = SharedBodies(Clock()), ReplicationSnapshot(), []

    def ask_for(number: int) -> None:
        def make(_: int) -> bytes:
            made.append(number)
            return b"%d" % number

        assert bodies.shared(("/metrics", number), snapshot, make) == b"%d" % number

    for number in range(1_000):
        ask_for(number)
    assert made == [*range(1_000)]
    for number in (*range(999, 983, -1), 983):
        ask_for(number)
    assert made[1_000:] == [983], "16 are held"


def test_a_body_that_would_take_much_memory_is_not_held() -> None:
    bodies, snapshot, made = SharedBodies(Clock()), ReplicationSnapshot(), []

    def make(_: int) -> bytes:
        made.append(bytes((1 << 23) + 1))
        return made[-1]

    assert all(len(bodies.shared("/metrics", snapshot, make)) == (1 << 23) + 1 for _ in range(2))
    assert len(made) == 2


def test_a_body_that_cannot_be_made_is_asked_for_again() -> None:
    bodies, snapshot = SharedBodies(Clock()), ReplicationSnapshot()

    def fail(_: int) -> bytes:
        raise RuntimeError

    for _ in range(2):
        with pytest.raises(RuntimeError):
            bodies.shared("/metrics", snapshot, fail)
    assert bodies.shared("/metrics", snapshot, lambda _: b"made") == b"made"


def test_without_a_request_nothing_waits() -> None:
    give_way = ScrapePriority(HttpCounts())
    began = time.monotonic()
    for _ in range(1000):
        give_way()
    assert time.monotonic() - began < 1000 * server.LONGEST_SECONDS / 10


def test_a_request_is_waited_for_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LONGEST_SECONDS", 60.0)
    counts, ended = HttpCounts(), threading.Event()
    counts.begin("/metrics")
    worker = threading.Thread(target=lambda: (ScrapePriority(counts)(), ended.set()))
    worker.start()
    assert not ended.wait(0.2)
    counts.end("/metrics", 200, 0.2)
    assert ended.wait(30)
    worker.join()


def test_a_client_that_has_just_connected_is_waited_for_but_not_one_that_sends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr("exporters.web.server.time", clock)
    monkeypatch.setattr("streaming.web.http_counts.time", clock)
    counts = HttpCounts()
    counts.arrive()
    ScrapePriority(counts)()
    waited = now - 1.0
    assert waited == pytest.approx(server.ARRIVAL_SECONDS, abs=0.001)
    ScrapePriority(counts)()
    assert now == 1.0 + waited


def test_a_client_that_never_ends_to_read_takes_at_most_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = HttpCounts()
    counts.begin("/metrics")
    now = 0.0
    work: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("exporters.web.server.time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    give_way = ScrapePriority(counts)
    while now < 1.0:
        give_way()
        work.append(0.001)
        now += 0.001
    assert sum(work) > 0.45


def test_pages_wait_for_scrapes_and_not_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 1.0 + sum(slept), sleep=slept.append)
    monkeypatch.setattr("exporters.web.server.time", clock)
    counts = HttpCounts()
    give_way = ScrapePriority(counts, ("/metrics",))
    counts.begin("/")
    counts.begin("/clusters/{cluster}")
    give_way()
    assert slept == []
    counts.begin("/metrics")
    give_way()
    assert sum(slept) == pytest.approx(server.LONGEST_SECONDS, abs=0.001)
    counts.end("/metrics", 200, 0.1)
    assert counts.in_flight_by == {"/": 1, "/clusters/{cluster}": 1, "/metrics": 0}
