"""``isrwatch incidents`` on what a scenario left behind."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from streaming.commands import app
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.tail import ChangeTail
from streaming.jobs.changes_source import VERSION
from streaming.jobs.incidents import IncidentsBatch
from tests.plugins.played import play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two brokers were lost, one after the other; both are back."""
    directory = tmp_path_factory.mktemp("incidents")
    play(directory, "broker_loss", seconds=75)
    batch = IncidentsBatch(directory, 10.0, 900.0)
    for version, rows in ChangeTail(directory / PARTITION_CHANGES.name).poll():
        batch.apply(rows.append_column(VERSION, pa.array([version] * rows.num_rows, pa.int64())))
    return directory


def incidents(tables: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["incidents", "--tables", str(tables), *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_those_that_are_over_are_told_only_if_they_are_asked_for(tables: Path) -> None:
    assert incidents(tables) == "no incident is open; 2 are over, --all shows them\n"
    rows = [json.loads(line) for line in incidents(tables, "--all", "--format", "json").splitlines()]
    assert [(row["incident_class"], row["suspects"][0]["broker"]) for row in rows] == [
        ("broker_loss", 2),
        ("broker_loss", 3),
    ]
    assert incidents(tables, "--all", "--class", "slow_follower", "--format", "json") == ""
    assert len(incidents(tables, "--since", "2023-11-14T22:14:00", "--format", "csv").splitlines()) == 1 + 1


def test_one_is_told_with_the_events_that_are_its_evidence(tables: Path) -> None:
    (newest, _) = (json.loads(line) for line in incidents(tables, "--all", "--format", "json").splitlines())
    told = json.loads(incidents(tables, newest["incident_id"], "--format", "json"))
    assert [event["event_id"] for event in told["evidence"]] != []
    assert {event["event_id"] for event in told["evidence"]} == set(newest["event_ids"])
    lines = incidents(tables, newest["incident_id"]).splitlines()
    assert lines[0] == f"incident  {newest['incident_id']}"
    assert lines[-1].startswith("2023-11-14T22:14:10.750Z  broker_loss  ")


def test_a_part_of_an_id_that_many_have_is_refused(tables: Path) -> None:
    done = CliRunner().invoke(app, ["incidents", "loss:", "--tables", str(tables)])
    assert (done.exit_code, "2 incidents begin with 'loss:'; write more of the id" in done.stderr) == (2, True)
