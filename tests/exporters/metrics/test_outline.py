"""What scrapes have in common is put together once; each still shows what is right at its own moment."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from exporters.metrics import exposition as exposition_module
from exporters.metrics.compression import gzipped, plain
from exporters.metrics.exposition import Exposition, ScrapeTimes
from exporters.metrics.prepared import Outline, ScrapeRequest
from exporters.metrics.render_cache import ClusterLines, ClusterSampleLines
from exporters.metrics.series_filter import SeriesFilter
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ReplicationSnapshot
from tests.exporters.conftest import restless
from tests.exporters.metrics.test_exposition import SECOND, STALE_AFTER

HEALTH: Final = ExporterHealth("1.2.3", 1, 0.25, 7)
REQUESTS: Final = (
    ScrapeRequest(),
    ScrapeRequest(is_openmetrics=True),
    ScrapeRequest(cluster="main"),
    ScrapeRequest(names=frozenset({"kafka_brokers", "kafka_replication_cluster_state_age_seconds"})),
)


@pytest.fixture
def snapshot(still: TablesReader) -> ReplicationSnapshot:
    return still.refresh()


def page(exposition: Exposition, snapshot: ReplicationSnapshot, now: int, request: ScrapeRequest) -> str:
    blocks = exposition.render(snapshot, HEALTH, now, request)
    text = plain(blocks)
    assert gzip.decompress(gzipped(blocks)) == text
    return text.decode()


@pytest.mark.parametrize("seed", [0, *(pytest.param(it, marks=pytest.mark.long) for it in (1, 2))])
def test_each_scrape_is_that_of_an_exposition_that_has_put_nothing_together(
    snapshot: ReplicationSnapshot, fresh: int, seed: int
) -> None:
    chance, exposition, now = random.Random(seed), Exposition(STALE_AFTER), fresh
    pages = set()
    for _ in range(60):
        if chance.random() < 0.3:
            exposition.prepare(snapshot, now)
        request = chance.choice(REQUESTS)
        shown = page(exposition, snapshot, now, request)
        assert shown == page(Exposition(STALE_AFTER), snapshot, now, request)
        pages.add(shown)
        now += chance.choice((0, 1, SECOND, 5 * SECOND))
    assert len(pages) > 20


def test_a_sample_goes_when_it_is_too_old_though_no_table_changed(snapshot: ReplicationSnapshot) -> None:
    exposition, name = Exposition(STALE_AFTER), "kafka_replication_quorum_member_voter{"
    newest = max(row.collected_at for row in snapshot.clusters["id-of-main"].samples.quorum_members or ())
    last = newest + int(exposition.oldest["quorum_members"] * SECOND)
    assert name in page(exposition, snapshot, last, ScrapeRequest())
    assert name not in page(exposition, snapshot, last + 1, ScrapeRequest())


@pytest.mark.parametrize("request_", REQUESTS[:3])
def test_after_the_clock_was_set_back_every_sample_is_there_again(
    snapshot: ReplicationSnapshot, fresh: int, request_: ScrapeRequest
) -> None:
    exposition = Exposition(STALE_AFTER)
    for now in (fresh, fresh + 3600 * SECOND, fresh):
        assert page(exposition, snapshot, now, request_) == page(Exposition(STALE_AFTER), snapshot, now, request_)


def test_without_transactions_their_number_is_there_again_once_their_source_is(
    busy_cluster: Any, rows: Any, fresh: int
) -> None:
    busy_cluster.put("transactions")
    reader, exposition = restless(busy_cluster.directory), Exposition(STALE_AFTER)
    line, later = 'kafka_replication_cluster_open_transactions{cluster="main"} 0', fresh + 3600 * SECOND
    assert line in page(exposition, reader.refresh(), fresh, ScrapeRequest())
    assert line not in page(exposition, reader.refresh(), later, ScrapeRequest())
    busy_cluster.put(
        "quorum_members", {**rows.owner, "node": 100, "is_voter": True, "source": "s:1", "collected_at": later}
    )
    assert line in page(exposition, reader.refresh(), later, ScrapeRequest())


def test_a_scrape_from_before_a_preparation_puts_no_older_sample_back(
    busy_cluster: Any, rows: Any, fresh: int, snapshot: ReplicationSnapshot
) -> None:
    late = fresh + 3600 * SECOND
    newer_row = {**rows.owner, "node": 100, "is_voter": True, "source": "s:1", "collected_at": late}
    busy_cluster.put("quorum_members", newer_row)
    newer = TablesReader(busy_cluster.directory).refresh()
    interruptions: list[Callable[[], object]] = []

    class Interrupted(SeriesFilter):
        def of_labels(self, labels: Sequence[str]) -> Callable[[Sequence[str]], bool]:
            while interruptions and "node" in labels:
                interruptions.pop()()
            return super().of_labels(labels)

    exposition = Exposition(STALE_AFTER, chosen=Interrupted())
    exposition.prepare(snapshot, fresh)
    interruptions.append(lambda: exposition.prepare(newer, late))
    page(exposition, snapshot, late, ScrapeRequest())
    assert not interruptions
    assert page(exposition, newer, late, ScrapeRequest()) == page(Exposition(STALE_AFTER), newer, late, ScrapeRequest())


@pytest.mark.parametrize("request_", REQUESTS[:3])
def test_from_the_second_scrape_on_only_ages_are_rendered(
    snapshot: ReplicationSnapshot, fresh: int, request_: ScrapeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    exposition = Exposition(STALE_AFTER)
    before = page(exposition, snapshot, fresh, request_)
    exposition.prepare(snapshot, fresh)

    def put_together(*_: object) -> None:
        raise AssertionError("a scrape puts together what does not depend on its moment")

    monkeypatch.setattr(exposition_module, "Outline", put_together)
    assert page(exposition, snapshot, fresh, request_) == before
    later = page(exposition, snapshot, fresh + SECOND, request_)
    lines = zip(later.splitlines(), before.splitlines(), strict=True)
    changed = {new.split("{")[0] for new, old in lines if new != old}
    assert changed
    assert all(name.endswith("_age_seconds") for name in changed)


def test_a_refresh_that_finds_nothing_renders_nothing(
    busy_cluster: Any, fresh: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, exposition = TablesReader(busy_cluster.directory), Exposition(STALE_AFTER)
    before = page(exposition, reader.refresh(), fresh, ScrapeRequest())
    monkeypatch.setattr(exposition_module, "Outline", None)
    for renders in (ClusterLines, ClusterSampleLines):
        monkeypatch.setattr(renders, "update", None)
    again = reader.refresh()
    assert exposition.prepare(again, fresh).snapshot is again
    assert page(exposition, again, fresh, ScrapeRequest()) == before


def test_while_no_scrape_is_near_nothing_is_put_together_for_one(
    snapshot: ReplicationSnapshot, fresh: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exposition, made = Exposition(STALE_AFTER), []

    def counted(*arguments: Any) -> Outline:
        made.append(arguments)
        return Outline(*arguments)

    monkeypatch.setattr(exposition_module, "Outline", counted)
    for second in (0, 5, 10):
        page(exposition, snapshot, fresh + second * SECOND, ScrapeRequest())
    assert len(made) == 1
    for second in (11, 12):
        exposition.prepare(snapshot, fresh + second * SECOND)
    assert len(made) == 1
    exposition.prepare(replace(snapshot, clusters={**snapshot.clusters}), fresh + 12 * SECOND)
    assert len(made) == 1
    exposition.prepare(snapshot, fresh + 13 * SECOND)
    assert len(made) == 2
    page(exposition, snapshot, fresh + 15 * SECOND, ScrapeRequest())
    assert len(made) == 2


@pytest.mark.parametrize(
    ("scrapes", "near", "far"),
    [
        ([], [], [0, 1, 100]),
        ([0], [1, 100], []),
        ([0, 15, 30], [43, 45, 47], [31, 42, 48, 500]),
        ([0, 4, 15, 19], [21, 23, 30, 32], [20, 33]),
        ([100, 50], [98, 100, 102], [51, 97, 103]),
    ],
)
def test_the_next_scrape_may_be_near_as_soon_after_the_last_one_as_any_came(
    scrapes: list[int], near: list[int], far: list[int]
) -> None:
    times = ScrapeTimes()
    for second in scrapes:
        times.add(second * SECOND)
    for second in near + far:
        assert times.may_be_near(second * SECOND) == (second in near), second
