"""Every side table with every damage, step by step: it costs what comes from that table, until it can be read again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from exporters.read_model.cluster_samples import ClusterSamples
from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.reader import TablesReader
from exporters.read_model.side_tables import REST_AFTER_ERROR, SIDE_CONTENTS, SideContent, SideTable
from exporters.read_model.snapshot import ReplicationSnapshot
from streaming.contracts.state import SourceLag
from tests.exporters.conftest import Stopwatch
from tests.exporters.damages import DAMAGES, with_another_version


def of_side_tables(snapshot: ReplicationSnapshot) -> dict[str, Any]:
    """Give all that a snapshot has of these tables, by name."""
    cluster = snapshot.clusters["id-of-main"]
    return {
        **cluster.samples._asdict(),
        "offsets": cluster.offsets,
        "offsets_at": cluster.offsets_at,
        "advice": cluster.advice and asdict(cluster.advice),
        "times": cluster.times,
        "incidents": cluster.incidents and asdict(cluster.incidents),
        "conditions": cluster.conditions,
        "sampled_conditions": cluster.sampled_conditions,
        "lags": {key: source.lag for key, source in cluster.sources.items() if source.lag != SourceLag()},
    }


def fields_without(whole: dict[str, Any], alone: dict[str, Any], table: str) -> dict[str, Any]:
    """Give what is left without one table: that of a reader that never saw it, and None for unread samples."""
    lost = {name: value for name, value in alone.items() if value != whole[name]}
    assert lost, f"{table} adds nothing to the hand-made cluster"
    left = {**whole, **lost, **dict.fromkeys(lost.keys() & {*ClusterSamples._fields})}
    if table in {"conditions", "sampled_conditions"}:  # nothing is over because they cannot be read
        left[table] = whole[table]
    if table == "cluster_state":  # by that the advice is dated, which stays true
        left["advice"] = whole["advice"]
    return left


@dataclass(frozen=True)
class Known:
    """The hand-made cluster: its tables, what is read of all of them, and what is left without each."""

    tables: Path
    whole: ReplicationSnapshot
    left_without: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def known(written_busy_cluster: Path, tmp_path_factory: pytest.TempPathFactory) -> Known:
    whole, left = TablesReader(written_busy_cluster).refresh(), {}
    for content in SIDE_CONTENTS:
        name = content.definition.name
        others = tmp_path_factory.mktemp("others") / "tables"
        shutil.copytree(written_busy_cluster, others, ignore=shutil.ignore_patterns(name))
        left[name] = fields_without(of_side_tables(whole), of_side_tables(TablesReader(others).refresh()), name)
    return Known(written_busy_cluster, whole, left)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("content", SIDE_CONTENTS, ids=lambda content: content.definition.name)
def test_a_damaged_table_costs_what_comes_from_it_until_it_can_be_read_again(
    content: SideContent, damage: Callable[[Path], None], known: Known, tmp_path: Path
) -> None:
    name, clock, shown = content.definition.name, Stopwatch(), [known.whole]
    shutil.copytree(known.tables / name, tmp_path / name)

    def step(table: SideTable) -> dict[str, Any]:
        table.look()
        draft = SnapshotDraft(shown[-1])
        table.put_into(draft)
        shown.append(draft.finish(known.whole.version, known.whole.read_at, 0))
        return of_side_tables(shown[-1])

    table = SideTable(tmp_path, content, monotonic=clock)
    assert (step(table), table.status.error) == (of_side_tables(known.whole), None)
    with_another_version(tmp_path / name)
    damage(tmp_path / name)
    # One that was damaged before it was ever read costs the same.
    for damaged in (table, SideTable(tmp_path, content, monotonic=clock)):
        assert step(damaged) == known.left_without[name]
        assert name in (damaged.status.error or "")
    shutil.rmtree(tmp_path / name)
    shutil.copytree(known.tables / name, tmp_path / name)
    clock.now += REST_AFTER_ERROR / 2
    assert step(table) == known.left_without[name], "it rests after an error"
    clock.now += REST_AFTER_ERROR / 2
    assert (step(table), table.status.error) == (of_side_tables(known.whole), None)
