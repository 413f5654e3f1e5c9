"""What ``isrwatch doctor`` says of the tables of a job: whole, current, of this bus; each state with its fix."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streaming.bus.directory import DirectoryPublisher, DirectoryReader
from streaming.commands import doctor_machine
from streaming.commands.doctor import CHECKS_OF_THE_MACHINE, findings
from streaming.commands.doctor_machine import Status
from streaming.contracts.observations import Channel
from streaming.contracts.tables import SOURCE_PROGRESS
from streaming.delta.log.definitions import LAYOUT_PROPERTY, arrow_schema
from streaming.delta.log.queries import read_all
from streaming.jobs.application import QUERIES
from streaming.jobs.metrics import Reporter
from streaming.jobs.queries import JobLocations
from streaming.jobs.supervised import SupervisedQuery
from streaming.settings import BusSettings, JobSettings, Settings, TablesSettings
from tests.end_to_end.stories import long_story
from tests.exporters.damages import data_gone, data_torn
from tests.exporters.terminal.test_damaged_tables import with_damaged_log
from tests.plugins.logs import rows_of_log
from tests.plugins.table_writes import set_properties, write

LOG = "metadata_log:a"


def publish(bus: Path) -> None:
    with closing(DirectoryPublisher(bus, segment_bytes=20_000, fsync=False)) as publisher:
        publisher.publish(long_story(seed=1, steps=40))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bus and the tables of a job that has applied and reported everything."""
    folder = tmp_path_factory.mktemp("stopped")
    places = JobLocations(bus=folder / "bus", tables=folder / "tables", checkpoint=folder / "checkpoint")
    publish(places.bus)
    query: Any = SupervisedQuery("replication", QUERIES["replication"], JobSettings(), places, print)
    query.batch.apply(pa.Table.from_batches(rows_of_log(DirectoryReader(places.bus), Channel.REPLICATION, LOG)))
    query.batch.project()
    Reporter([query], places).report()
    return folder


@pytest.fixture
def place(stopped: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    return Path(shutil.copytree(stopped, tmp_path / "place"))


def settings_of(place: Path, bus: Path | None = None) -> Settings:
    return Settings(
        bus=BusSettings(directory=str(bus or place / "bus")), tables=TablesSettings(directory=str(place / "tables"))
    )


def said(place: Path, bus: Path | None = None) -> list[tuple[Status, str]]:
    return list(CHECKS_OF_THE_MACHINE["tables"](settings_of(place, bus)))


def wrong(place: Path, bus: Path | None = None) -> list[tuple[Status, str]]:
    return [each for each in said(place, bus) if each[0] is not Status.OK]


def test_tables_that_are_whole_and_current_and_belong_to_the_bus_are_three_lines(place: Path) -> None:
    (counted, age, bus) = said(place)
    tables = len(list((place / "tables").iterdir()))
    assert counted == (
        Status.OK,
        f"{tables} tables in {place}/tables have all their files, in the layout of this program",
    )
    assert age[0] is Status.OK
    assert age[1].startswith("the newest commit is ")
    assert bus == (Status.OK, f"the tables continue from 1 log of the bus {place}/bus")


def test_before_the_first_start_of_the_job_there_is_nothing_to_check(tmp_path: Path) -> None:
    assert said(tmp_path) == [(Status.SKIPPED, f"{tmp_path}/tables has no tables yet: isrwatch job creates them")]


def test_a_store_that_does_not_answer_is_one_problem_and_not_one_for_each_table() -> None:
    login = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    storage = {"aws_endpoint": "http://127.0.0.1:9", "aws_allow_http": "true", "max_retries": "0", **login}
    settings = Settings(tables=TablesSettings(directory="s3://b/x", storage=storage))
    found = [each for each in findings([settings]) if each.check == "tables"]
    assert [each.status for each in found] == [Status.PROBLEM]
    assert found[0].sentence.startswith("cannot read the table s3://b/x/partition_changes: s3://b failed: ")


@pytest.mark.parametrize("damage", [with_damaged_log, data_torn, data_gone])
@pytest.mark.parametrize("table", ["partition_changes", "partition_state", "source_progress"])
def test_a_table_that_cannot_be_read_is_one_problem_that_names_it(
    place: Path, damage: Callable[[Path], None], table: str
) -> None:
    damage(place / "tables" / table)
    ((status, sentence),) = wrong(place)
    assert status is Status.PROBLEM
    assert f"{place}/tables/{table}" in sentence
    assert "bring back the whole folder of the tables from one copy" in sentence


def test_a_file_of_the_right_size_with_other_bytes_is_a_problem_and_no_exception(place: Path) -> None:
    for file in (place / "tables" / "source_progress").rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.write_bytes(b"?" * file.stat().st_size)
    found = [each for each in findings([settings_of(place)]) if each.check == "tables"]
    assert [each.status for each in found] == [Status.OK, Status.PROBLEM]
    assert f"cannot read the table {place}/tables/source_progress" in found[-1].sentence


@pytest.mark.parametrize(
    ("layout", "fix"),
    [("99", "upgrade isrwatch"), ("", "is not a table of isrwatch; point tables.directory at another folder")],
)
def test_another_layout_says_who_has_to_be_upgraded(place: Path, layout: str, fix: str) -> None:
    table = DeltaTable(str(place / "tables" / "partition_state"))
    set_properties(table, {LAYOUT_PROPERTY: layout})
    ((found, sentence),) = wrong(place)
    assert found is Status.PROBLEM
    assert "partition_state" in sentence
    assert sentence.endswith(fix)


def test_a_table_that_lacks_a_new_column_waits_for_the_job(place: Path) -> None:
    path = str(place / "tables" / "source_progress")
    before = pa.schema([field for field in arrow_schema(SOURCE_PROGRESS) if field.name != "log_id"])
    rows = read_all(DeltaTable(path)).drop_columns(["log_id"])
    write(DeltaTable(path), rows.cast(before), "overwrite")
    ((found, sentence),) = wrong(place)
    assert found is Status.WARNING
    assert sentence.endswith(
        "source_progress/ lacks log_id; start isrwatch job of this version once: it adds new columns"
    )


def test_an_old_commit_is_stale_and_the_program_that_is_missing_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = max((place / "tables" / "partition_changes" / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] -= 3 * 3_600_000
    entry.write_text("\n".join(map(json.dumps, actions)))
    ((status, sentence),) = wrong(place)
    assert (status, sentence.partition(";")[0]) == (Status.WARNING, "the newest commit is 3 hours old: stale")
    assert "the job runs, but nothing new comes: start isrwatch collect" in sentence
    later = doctor_machine.time.time() + 4 * 86_400
    monkeypatch.setattr(doctor_machine.time, "time", lambda: later)
    ((status, sentence),) = wrong(place)
    assert (status, sentence.partition(";")[0]) == (Status.WARNING, "the newest commit is 4 days old: stale")
    assert "no job runs: start isrwatch job" in sentence


def test_a_bus_without_the_logs_that_were_applied_is_named(place: Path, tmp_path: Path) -> None:
    ((status, sentence),) = wrong(place, bus=tmp_path / "other")
    assert status is Status.WARNING
    assert sentence.startswith(f"the bus {tmp_path}/other has no log that was applied to the tables: correct ")


def test_a_log_that_was_replaced_is_named(place: Path) -> None:
    shutil.rmtree(place / "bus")
    publish(place / "bus")
    ((status, sentence),) = wrong(place)
    assert status is Status.WARNING
    assert sentence.startswith(f"the log replication/{LOG} of the bus {place}/bus is not the one that was applied")


def test_a_bus_that_is_a_file_is_a_problem(place: Path) -> None:
    shutil.rmtree(place / "bus")
    (place / "bus").touch()
    found = [each for each in findings([settings_of(place)]) if each.check == "tables"]
    (sentence,) = [each.sentence for each in found if each.status is Status.PROBLEM]
    assert "is not a folder; point bus.directory" in sentence
