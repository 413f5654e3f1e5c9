"""The state as of any version is what an exporter showed at that version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.reader import TablesReader
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.terminal.state_as_of import state_as_of
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.table_log import newest_version
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals
from tests.exporters.meaning import meaning


@pytest.fixture(scope="module")
def tables(played_tables: Callable[..., Path]) -> Path:
    return played_tables("under_min_isr", "broker_loss")


@pytest.fixture(scope="module")
def followed(tables: Path) -> list[Any]:
    """What every change up to each version, one after the other, makes of the state."""
    snapshot, meanings = ReplicationSnapshot(), []
    added = dict(ChangeReader(tables / "partition_changes").poll())
    for version in range(newest_version(tables / "partition_changes") + 1):
        if version in added:
            draft = SnapshotDraft(snapshot)
            apply_changes(draft, added[version])
            count_isr_removals(draft, added[version], StateVersions())
            snapshot = draft.finish(version, 0, 0)
        meanings.append(meaning(snapshot))
    return meanings


@pytest.mark.parametrize("part", range(4))
def test_the_state_as_of_a_version_is_what_following_the_changes_gives(
    tables: Path, followed: list[Any], part: int
) -> None:
    for version in range(len(followed))[part::4]:
        assert (version, meaning(state_as_of(tables, version))) == (version, followed[version])


def test_as_of_the_newest_version_it_is_the_current_state(tables: Path, followed: list[Any]) -> None:
    assert followed[-1] == meaning(state_as_of(tables, len(followed) - 1)) == meaning(TablesReader(tables).refresh())
