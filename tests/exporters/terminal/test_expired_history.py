"""``--as-of`` over all kept history: after Delta's log expired, after days of history expired, and what is refused."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

from exporters.read_model.event_filter import EventFilter
from exporters.read_model.past import state_as_of
from exporters.read_model.reader import TablesReader
from exporters.read_model.recorded_events import history as events
from exporters.read_model.versions import checked_version, committed_at, oldest_known
from streaming.commands import app
from streaming.contracts.tables import TABLES
from streaming.delta.changes.history import expire_changes
from streaming.delta.log.writer import Writer
from streaming.errors import ConfigurationError
from tests.exporters.histories import History, logs, play
from tests.exporters.meaning import meaning
from tests.plugins.played import expire_log

DAYS = [dt.date(2023, 11, 15), dt.date(2023, 11, 16), dt.date(2023, 11, 17), dt.date(2024, 1, 1)]
"""Three of the history's four days, and one long after it; what is before one of them expires."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Two clusters over almost three days, beginning in the evening."""
    made = play(tmp_path_factory.mktemp("history"), logs(1), Random(1), lambda _: None)
    made.project()
    return made


@pytest.fixture
def tables(history: History, tmp_path: Path) -> Path:
    """A copy to expire."""
    return shutil.copytree(history.tables, tmp_path / "tables")


def changes(tables: Path) -> DeltaTable:
    return DeltaTable(str(tables / "partition_changes"))


def expire_days(tables: Path, before: dt.date) -> DeltaTable:
    """Expire history as maintenance does, its log as well."""
    expire_changes(tables, Writer.opened(tables, TABLES["partition_changes"]), before)
    expire_log(tables / "partition_changes")
    return changes(tables)


def iso(moment: int | None) -> str:
    assert moment is not None
    return (dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=moment)).isoformat()


def ids(tables: Path, version: int) -> list[str]:
    return sorted(row["event_id"] for row in events(tables, EventFilter(), as_of=version))


def some(versions: Sequence[int]) -> list[int]:
    """Take every fifth version, and the last one."""
    return [*versions[:-1:5], versions[-1]]


def test_after_the_log_expired_every_version_is_shown(history: History, tables: Path) -> None:
    looked_at = some([*history.versions])
    before = {version: ids(tables, version) for version in looked_at}
    for name in TABLES:
        if DeltaTable.is_deltatable(str(tables / name)):
            expire_log(tables / name)
    for version in looked_at:
        assert checked_version(tables, version) == version
        assert (version, meaning(state_as_of(tables, version))) == (version, history.versions[version])
        assert ids(tables, version) == before[version]


@pytest.mark.parametrize(
    "before", [DAYS[1], *(pytest.param(each, marks=pytest.mark.long) for each in (DAYS[0], *DAYS[2:]))], ids=str
)
def test_after_days_expired_every_later_version_is_shown(history: History, tables: Path, before: dt.date) -> None:
    rows = changes(tables).count()
    table = expire_days(tables, before)
    assert table.count() < rows
    kept = [version for version in history.versions if version >= oldest_known(table)]
    assert 0 < len(kept) < len(history.versions)
    for version in some(kept):
        assert checked_version(tables, version) == version
        assert (version, meaning(state_as_of(tables, version))) == (version, history.versions[version])
    assert meaning(TablesReader(tables).refresh()) == meaning(history.reader.snapshot)


def test_days_expire_one_after_the_other(history: History, tables: Path) -> None:
    oldest = [oldest_known(expire_days(tables, before)) for before in DAYS]
    assert oldest == sorted(set(oldest))
    assert meaning(state_as_of(tables, oldest[-1])) == history.versions[oldest[-1]]
    assert meaning(TablesReader(tables).refresh()) == meaning(history.reader.snapshot)


def test_what_expired_is_refused_in_a_sentence_that_names_what_can_be_shown(tables: Path) -> None:
    path = tables / "partition_changes"
    begin = committed_at(changes(tables), 1)
    table = expire_days(tables, DAYS[1])
    oldest, newest = oldest_known(table), table.version()
    refused = refusal(tables, str(oldest - 1))
    assert refused == f"--as-of {oldest - 1}: {path} has the versions {oldest} to {newest}"
    assert refusal(tables, str(newest + 1)) == f"--as-of {newest + 1}: {path} has the versions {oldest} to {newest}"
    for command in ("state", "events"):
        done = CliRunner().invoke(app, [command, "--tables", str(tables), "--as-of", iso(begin)])
        assert (done.exit_code, done.stderr[:23]) == (2, "nothing is recorded of ")


def refusal(tables: Path, text: str) -> str:
    """Give the sentence with which the commands refuse a version."""
    with pytest.raises(ConfigurationError) as refused:
        checked_version(tables, int(text))
    for command in ("state", "events"):
        done: Any = CliRunner().invoke(app, [command, "--tables", str(tables), "--as-of", text])
        assert done.exit_code == 2
        assert str(refused.value) in " ".join(done.stderr.split())
    return str(refused.value)
