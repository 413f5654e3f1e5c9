"""The limit of a bus: samples go first, replication last, and a full disk ends nobody."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.bus.directory import DirectoryPublisher
from streaming.bus.log import BusCapacity
from streaming.contracts.codec import decode
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import BusFull
from tests.bus.conftest import Heartbeats, payloads

A = "poll:a"
LIMIT = 64_000
MARGIN = 6_000
"""The newest segments, which stay, and what is written between two looks."""


def metric(moment: int, source: str = A) -> BrokerMetricObserved:
    return BrokerMetricObserved(
        cluster_id=ClusterId("c"), cluster="prod", source=source, source_kind=SourceKind.NONE, broker=BrokerId(1),
        metric="m", metric_value=1.0, occurred_not_before=Micros(moment), occurred_not_after=Micros(moment),
        collected_at=Micros(moment),
    )  # fmt: skip


def limited(directory: Path, max_bytes: int = LIMIT) -> DirectoryPublisher:
    return DirectoryPublisher(directory, segment_bytes=1 << 26, fsync=False, max_bytes=max_bytes)


def sizes(directory: Path) -> dict[str, int]:
    return {channel: sum(file.stat().st_size for file in (directory / channel).glob("*/*.log")) for channel in Channel}


def test_samples_that_nobody_applies_take_no_more_than_their_share(tmp_path: Path, heartbeat: Heartbeats) -> None:
    with closing(limited(tmp_path)) as publisher:
        publisher.publish([heartbeat(1)])
        for moment in range(1, 1_000):
            publisher.publish([metric(moment)])
        removed = publisher.take_removed()
    assert sizes(tmp_path)["samples"] < LIMIT // 4 + MARGIN
    assert sizes(tmp_path)["replication"] > 0
    assert removed.samples > 100_000
    assert removed.replication == 0
    assert publisher.take_removed() == (0, 0)
    assert decode(payloads(tmp_path, Channel.SAMPLES)[-1]).collected_at == 999


def test_replication_goes_last_and_oldest_first_and_the_numbers_of_the_rest_say_so(
    tmp_path: Path, heartbeat: Heartbeats
) -> None:
    with closing(limited(tmp_path)) as publisher:
        for moment in range(1, 100):
            publisher.publish([metric(moment)])
        assert publisher.take_removed().replication == 0
        for moment in range(1, 1_000):
            publisher.publish([heartbeat(moment)])
        removed = publisher.take_removed()
    assert sum(sizes(tmp_path).values()) < LIMIT + MARGIN
    assert sizes(tmp_path)["samples"] < MARGIN, "there are only the newest"
    assert removed.replication > 0
    sequences = [decode(payload).sequence for payload in payloads(tmp_path)]
    assert sequences == list(range(sequences[0], 1_000))
    assert sequences[0] > 500


def test_a_restart_of_the_collector_finds_the_bus_as_full_as_it_is(tmp_path: Path, heartbeat: Heartbeats) -> None:
    for moment in range(1, 600, 3):
        with closing(limited(tmp_path)) as publisher:
            publisher.publish([heartbeat(moment + each) for each in range(3)])
    assert sum(sizes(tmp_path).values()) < LIMIT + MARGIN


def test_a_full_disk_is_an_error_of_its_own_and_costs_old_samples_only(
    tmp_path: Path, heartbeat: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(limited(tmp_path, 256_000)) as publisher:
        for moment in range(1, 300):
            publisher.publish([metric(moment), heartbeat(moment)])
        before = sizes(tmp_path)
        monkeypatch.setattr(BusCapacity, "has_space", lambda _: False)
        with pytest.raises(BusFull, match=r"the disk of the bus .* is full; free space, or give the job time"):
            publisher.publish([heartbeat(300)])
        assert sizes(tmp_path)["samples"] < before["samples"] // 2
        assert sizes(tmp_path)["replication"] == before["replication"]
        monkeypatch.undo()
        publisher.publish([heartbeat(300)])
    assert [decode(payload).sequence for payload in payloads(tmp_path)] == list(range(1, 301))


def test_every_write_may_meet_a_full_disk(
    tmp_path: Path, heartbeat: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the n-th call that writes or creates, whichever it is, the disk is full; then it is not any more."""
    calls = 0
    published: list[int] = []

    def failing_at(number: int, real: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: object) -> int:
            nonlocal calls
            calls += 1
            if calls == number:
                if isinstance(arguments[1], memoryview):
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(*arguments)

        return call

    with closing(DirectoryPublisher(tmp_path, segment_bytes=600, fsync=False)) as publisher:
        for number in range(1, 25):
            calls = 0
            with monkeypatch.context() as patched:
                patched.setattr("streaming.bus.log.os.write", failing_at(number % 4 + 1, os.write))
                patched.setattr("streaming.bus.log.os.open", failing_at(number % 4 + 1, os.open))
                for attempt in range(3):
                    try:
                        publisher.publish([replace(heartbeat(number * 10 + each), sequence=attempt) for each in (1, 2)])
                    except BusFull:
                        continue
                    break
            published += [number * 10 + 1, number * 10 + 2]

    found = [decode(payload) for payload in payloads(tmp_path)]
    assert [item.sequence for item in found] == list(range(1, len(found) + 1))
    assert list(dict.fromkeys(item.occurred_not_after for item in found)) == published
