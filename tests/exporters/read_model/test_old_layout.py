"""Tables that an older isrwatch wrote: refused in one sentence, and shown whole as soon as a job has upgraded them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.terminal.state_as_of import state_as_of
from streaming.commands import app
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.change_reader import ChangeReader
from streaming.delta.state_reader import AsOf, apply_changes, count_isr_removals
from streaming.errors import TableRefused
from streaming.jobs.driver.batch import ReplicationBatch
from tests.exporters.meaning import compare_with_tables, meaning
from tests.plugins.old_layout import unpack

if TYPE_CHECKING:
    from pathlib import Path

SENTENCE = re.compile(
    r"/\w+/ has the layout 1 of an older isrwatch, this program reads [2-9]; "
    r"start isrwatch job of this version once: it upgrades the tables\n?$"
)


@pytest.fixture(params=["killed", "settled"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The tables of b3f2e02, as a kill left them, or as a clean stop does."""
    unpack(tmp_path, settled=request.param == "settled")
    return tmp_path / "tables"


def test_an_older_layout_is_refused_in_one_sentence_at_each_look(
    tables: Path, caplog: pytest.LogCaptureFixture
) -> None:
    refresher = Refresher(TablesReader(tables), 0.01, "1.2.3")
    for errors in (1, 2, 3):
        refresher.refresh_once()
        assert refresher.health.refresh_errors == errors
        assert (refresher.last_error or "").startswith("TableRefused: ")
        assert SENTENCE.search(refresher.last_error or "")
    assert refresher.snapshot.clusters == {}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("command", [["state"], ["state", "--as-of", "30"], ["events"], ["events", "--as-of", "30"]])
def test_the_commands_refuse_it_in_the_same_sentence(tables: Path, command: list[str]) -> None:
    done: Any = CliRunner().invoke(app, [*command, "--tables", str(tables)])
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert SENTENCE.search(done.stderr)


def test_after_the_upgrade_the_same_reader_shows_what_the_job_counts(tables: Path) -> None:
    reader = TablesReader(tables)
    with pytest.raises(TableRefused, match="an older isrwatch"):
        reader.refresh()
    job = ReplicationBatch(tables)
    snapshot = reader.refresh()
    partitions = [each for cluster in snapshot.clusters.values() for each in cluster.partitions()]
    deleted = [each for cluster in snapshot.clusters.values() for each in cluster.tombstones.values()]
    assert sorted([*partitions, *deleted]) == sorted(job.shared.state.partitions())
    job.projections.project(job.shared)
    compare_with_tables(snapshot, tables)
    assert meaning(reader.refresh()) == meaning(snapshot) == meaning(TablesReader(tables).refresh())


def test_after_the_upgrade_every_version_is_what_the_changes_up_to_it_make(tables: Path) -> None:
    ReplicationBatch(tables)
    followed = ReplicationSnapshot()
    for version, rows in ChangeReader(tables / PARTITION_CHANGES.name).poll():
        draft = SnapshotDraft(followed)
        apply_changes(draft, rows)
        count_isr_removals(draft, rows, AsOf())
        followed = draft.finish(version, 0, 0)
        assert (version, meaning(state_as_of(tables, version))) == (version, meaning(followed))
    shown = meaning(TablesReader(tables).refresh())
    assert {name: each["totals"] for name, each in shown.items()} == {
        cluster_id: cluster.totals for cluster_id, cluster in followed.clusters.items()
    }
