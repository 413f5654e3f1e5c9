"""A thread that prepares responses waits while a request is responded to, but not for ever."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from exporters.web import server
from exporters.web.server import ScrapePriority
from streaming.web.http_counts import HttpCounts


def test_without_a_request_nothing_waits() -> None:
    give_way = ScrapePriority(HttpCounts())
    began = time.monotonic()
    for _ in range(1000):
        give_way()
    assert time.monotonic() - began < 1000 * server.LONGEST_SECONDS / 10


def test_a_request_is_waited_for_until_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LONGEST_SECONDS", 60.0)
    counts, ended = HttpCounts(), threading.Event()
    counts.begin()
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
    counts.begin()
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
