"""When all offsets moved at once they are rendered in steps, between which a change is shown."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import pytest

from exporters.metrics import render_cache
from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.read_model.cluster_samples import ReplicaOffsets
from exporters.read_model.draft import ClusterDraft
from exporters.read_model.refresher import ExporterHealth
from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
from tests.exporters.metrics.test_detail import NOW, cluster_of, partition

TOPICS: Final = 32
A_STEP: Final = 8
HEALTH: Final = ExporterHealth("1.2.3", 1, 0.1, 0)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_cache, "OFFSETS_OF_A_STEP", A_STEP)


def with_offsets(cluster: ClusterSnapshot, offset: int) -> ClusterSnapshot:
    draft, replica = ClusterDraft(cluster), (ReplicaOffsets(1, 1, offset),)
    draft.put_offsets({each: dict.fromkeys(topic.partitions, replica) for each, topic in cluster.topics.items()}, NOW)
    return draft.finish()


@pytest.fixture
def before() -> ClusterSnapshot:
    return with_offsets(cluster_of(partition(f"topic-{number:02}", 0) for number in range(TOPICS)), 100)


def snapshot_of(cluster: ClusterSnapshot, version: int) -> ReplicationSnapshot:
    return ReplicationSnapshot(clusters={"id": cluster}, version=version, read_at=NOW)


def offsets_in(shown: str) -> list[str]:
    lines = shown.splitlines()
    return [each.split()[-1] for each in lines if each.startswith("kafka_topic_partition_current_offset{")]


def page(exposition: Exposition, snapshot: ReplicationSnapshot) -> str:
    return plain(exposition.render(snapshot, HEALTH, NOW, ScrapeRequest())).decode()


def steps(exposition: Exposition, snapshot: ReplicationSnapshot) -> Iterator[str]:
    while True:
        is_complete = exposition.prepare(snapshot, NOW, in_steps=True).is_complete
        yield page(exposition, snapshot)
        if is_complete:
            return


def test_each_step_moves_some_offsets_until_the_lines_are_those_rendered_at_once(before: ClusterSnapshot) -> None:
    exposition = Exposition(60.0)
    (first,) = steps(exposition, snapshot_of(before, 1))
    assert offsets_in(first) == ["100"] * TOPICS
    moved = snapshot_of(with_offsets(before, 200), 2)
    pages = list(steps(exposition, moved))
    assert [offsets_in(each).count("200") for each in pages] == [8, 16, 24, 32]
    assert pages[-1] == page(Exposition(60.0), moved)


def test_the_offsets_of_a_topic_with_more_partitions_than_a_step_move_too() -> None:
    exposition, large = Exposition(60.0), [partition("a-large-one", number) for number in range(A_STEP + 1)]
    before = with_offsets(cluster_of([*large, partition("small", 0)]), 100)
    list(steps(exposition, snapshot_of(before, 1)))
    pages = list(islice(steps(exposition, snapshot_of(with_offsets(before, 200), 2)), 3))
    assert [offsets_in(each).count("200") for each in pages] == [A_STEP + 1, A_STEP + 2]


def test_a_change_is_shown_before_the_offsets_that_are_left(before: ClusterSnapshot) -> None:
    exposition = Exposition(60.0)
    list(steps(exposition, snapshot_of(before, 1)))
    moved = with_offsets(before, 200)
    next(steps(exposition, snapshot_of(moved, 2)))
    changed = cluster_of([partition("topic-31", 0)._replace(leader=3)], last=moved)
    shown = next(steps(exposition, snapshot_of(changed, 3)))
    assert 'kafka_topic_partition_leader{topic="topic-31",partition="0"} 3' in shown.splitlines()
    assert offsets_in(shown).count("200") == 2 * A_STEP


def test_a_snapshot_that_nobody_prepared_is_rendered_whole(before: ClusterSnapshot) -> None:
    exposition = Exposition(60.0)
    exposition.prepare(snapshot_of(before, 1), NOW, in_steps=True)
    moved = snapshot_of(with_offsets(before, 200), 2)
    assert offsets_in(page(exposition, moved)) == ["200"] * TOPICS


def test_a_scrape_that_began_before_a_newer_snapshot_was_prepared_does_not_undo_it(before: ClusterSnapshot) -> None:
    exposition = Exposition(60.0)
    older = snapshot_of(before, 1)
    exposition.prepare(older, NOW)
    # Offsets are read apart from the log of changes: neither the version nor the time of reading is another.
    exposition.prepare(snapshot_of(with_offsets(before, 200), 1), NOW)
    assert offsets_in(page(exposition, older)) == ["200"] * TOPICS


def test_a_scrape_while_something_is_prepared_shows_all_of_what_was_before(before: ClusterSnapshot) -> None:
    exposition, pages = Exposition(60.0), set[str]()
    older = snapshot_of(before, 1)
    exposition.prepare(older, NOW)
    whole = page(exposition, older)
    exposition.give_way = lambda: pages.add(page(exposition, older))
    changed = cluster_of([partition(f"topic-{number:02}", 0)._replace(leader=3) for number in range(8)], last=before)
    exposition.prepare(snapshot_of(changed, 2), NOW)
    assert pages == {whole}
