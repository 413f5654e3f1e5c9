"""What the configuration says of the past reaches the maintenance of every table that the job writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming.commands import job as command
from streaming.contracts.tables import TABLES
from streaming.delta.log import maintenance
from streaming.delta.log.maintenance import Maintenance, RetentionPolicy
from streaming.jobs.application import QUERIES
from streaming.jobs.metrics import Reporter
from streaming.jobs.queries import JobLocations
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import JobSettings

if TYPE_CHECKING:
    from pathlib import Path

POLICY = RetentionPolicy(days=90, reader_minutes=7.5)


def test_the_job_hands_on_what_the_configuration_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[JobLocations] = []
    monkeypatch.setattr(command, "_run", lambda _, places: started.append(places))
    file = tmp_path / "isrwatch.toml"
    file.write_text(f'[tables]\ndirectory = "{tmp_path}"\nhistory_days = 90\nreader_minutes = 7.5\n')

    command.job(config=file)

    assert [places.retention for places in started] == [POLICY]


def test_every_table_of_the_job_keeps_its_files_for_readers_as_long_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies: dict[str, set[RetentionPolicy]] = {}
    begin = maintenance.Maintenance.__init__

    def recorded(self: Maintenance, table: Any, path: Path, policy: RetentionPolicy = maintenance.KEEP_ALL) -> None:
        policies.setdefault(path.name, set()).add(policy)
        begin(self, table, path, policy)

    monkeypatch.setattr(maintenance.Maintenance, "__init__", recorded)
    places = JobLocations(bus=tmp_path / "bus", tables=tmp_path / "tables", checkpoint=tmp_path / "c", retention=POLICY)
    settings = JobSettings(listen="")

    queries = [SupervisedQuery(name, each, settings, places, print) for name, each in QUERIES.items()]
    policies.pop("source_progress")  # opened to be read; its writer is the reporter
    Reporter(queries, places)

    assert policies == {name: {POLICY} for name in TABLES}
