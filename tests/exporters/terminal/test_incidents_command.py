"""``isrwatch incidents`` on what a scenario left behind."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from exporters.read_model.incident_archive import merged_into, one_of
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.commands import app
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.observations import Channel, SourceKind
from streaming.contracts.state import SourceLag, SourceState
from streaming.contracts.tables import CLUSTER_STATE_TABLE
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.changes.reader import ChangeReader
from streaming.delta.log.definitions import arrow_schema, create_or_upgrade
from streaming.delta.progress import ProgressTable
from streaming.errors import ConfigurationError
from streaming.jobs.incidents import IncidentsBatch
from tests.changes.conftest import Story
from tests.changes.test_benign_is_proven import Orders
from tests.plugins import table_writes
from tests.plugins.played import play


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two brokers were lost, one after the other; both are back."""
    directory = tmp_path_factory.mktemp("incidents")
    play(directory, "broker_loss", seconds=75)
    batch = IncidentsBatch(directory, 10.0, 900.0)
    for added in ChangeReader(directory / "partition_changes").poll():
        batch.apply([added])
    return directory


def write(story: Story, directory: Path) -> None:
    """Write what the job makes of a story."""
    ChangeLog(directory).commit(changes_to_arrow(fold(ReplicationState(), story.seen).changes), {})
    batch = IncidentsBatch(directory, 60.0, 900.0)
    for added in ChangeReader(directory / "partition_changes").poll():
        batch.apply([added])


def later(moment: str, seconds: int) -> str:
    at = dt.datetime.fromisoformat(moment) + dt.timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def incidents(tables: Path, *options: str) -> str:
    done = CliRunner().invoke(app, ["incidents", "--tables", str(tables), *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def rows_of(tables: Path, *options: str) -> list[dict[str, Any]]:
    return list(json.loads(incidents(tables, *options, "-o", "json"))["rows"])


def of_lost_broker(partitions: int = 1) -> Story:
    """Broker 3 is fenced, and leaves the ISR of each partition."""
    story = Story()
    story.snapshot([{} for _ in range(partitions)])
    story.later().broker(3, fenced=True)
    for number in range(partitions):
        story.partition(number, isr=(1, 2), partition_epoch=1, cause=Cause.FENCED, evidence=Evidence.PROVEN)
    return story


def test_closed_incidents_are_shown_only_on_request(tables: Path) -> None:
    assert incidents(tables) == "no open incidents; 2 closed, --all shows them\n"
    assert incidents(tables, "--all", "--class", "rack_loss") == "no incident matches\n"
    lost = [(row["incident_class"], row["suspects"][0]["broker"]) for row in rows_of(tables, "--all")]
    assert lost == [("broker_loss", 2), ("broker_loss", 3)]
    assert rows_of(tables, "--all", "--class", "slow_follower") == []
    assert len(incidents(tables, "--since", "2023-11-14T22:14:00", "-o", "csv").splitlines()) == 1 + 1


def test_every_time_says_its_zone_and_is_alike_in_json(tables: Path) -> None:
    assert incidents(tables, "--all").splitlines()[0].split()[:3] == ["id", "opened", "(UTC)"]
    assert "opened (local)" in incidents(tables, "--all", "--local")
    last, first = rows_of(tables, "--all")
    shown = json.loads(incidents(tables, first["short_id"], "-o", "json"))
    assert shown["moments"][0]["at"] == first["opened_at"]
    assert shown["now"].endswith("Z")
    assert [row["short_id"] for row in rows_of(tables, "--until", first["opened_at"])] == [first["short_id"]]
    assert rows_of(tables, "--since", last["opened_at"], "--until", first["opened_at"]) == []


def test_an_open_incident_is_shown_however_long_it_has_not_changed(tmp_path: Path) -> None:
    story = of_lost_broker()
    story.later(3600).heartbeat()
    write(story, tmp_path)
    (row,) = rows_of(tmp_path, "--since", "1h")
    assert (row["incident_class"], row["closed_at"]) == ("broker_loss", None)
    assert row["under_replicated_now"] == 1
    # It runs on, and the row says only how long it was at its last change.
    assert (row["under_replicated_seconds"], row["under_replicated_partition_seconds"]) == (None, None)
    assert row["under_min_isr_seconds"] == 0.0


def test_the_duration_of_an_incident_that_has_recovered_ends_there_though_it_is_still_open(tmp_path: Path) -> None:
    story = of_lost_broker()
    story.later(30).broker(3, fenced=False)
    story.partition(0, partition_epoch=2, cause=Cause.EXPAND, evidence=Evidence.PROVEN)
    write(story, tmp_path)
    assert "recovered after 30.0s" in incidents(tmp_path)
    (row,) = rows_of(tmp_path)
    (line,) = (line for line in incidents(tmp_path, row["incident_id"]).splitlines() if line.startswith("closed"))
    assert row["closes_at"] == later(row["updated_at"], 60)
    until = f"kept open, if nothing more happens, until {row['closes_at']} (job.incident_gap)"
    assert line == f"closed    not yet: recovered after 30.0s, at {row['updated_at']}; {until}"


@pytest.mark.parametrize("turns", [(1,), (1, 2)])
def test_planned_work_that_is_over_has_recovered_and_says_what_it_stays_open_for(
    tmp_path: Path, turns: tuple[int, ...]
) -> None:
    story = Orders()
    for broker in turns:
        story.restart(broker)
    write(story, tmp_path)

    (row,) = rows_of(tmp_path)
    shown = incidents(tmp_path, row["incident_id"]).splitlines()
    (line,) = (line for line in shown if line.startswith("closed"))
    gap, why, key = (
        (60, ", if nothing more happens,", "job.incident_gap")
        if turns == (1,)
        else (900, " for more restarts", "job.incident_rolling_gap")
    )
    assert row["incident_class"] == ("controlled_shutdown" if turns == (1,) else "rolling_restart")
    assert row["closes_at"] == later(row["updated_at"], gap)
    assert line.endswith(f", at {row['recovered_at']}; kept open{why} until {row['closes_at']} ({key})")
    assert line.startswith("closed    not yet: recovered after ")
    assert "suspects  none" in shown, "who was stopped by an order is to blame for nothing"
    assert [each["broker"] for each in row["suspects"]] == list(turns), "the table names them"

    story.later(gap - 2).heartbeat()
    write(story, tmp_path / "before")
    assert "no open incidents" not in incidents(tmp_path / "before")
    story.later(5).heartbeat()
    write(story, tmp_path / "after")
    assert incidents(tmp_path / "after") == "no open incidents; 1 closed, --all shows them\n"


def test_planned_work_beside_harm_names_the_incident_that_accounts_for_it(tmp_path: Path) -> None:
    story = Orders(minimum="2")
    story.stop(1)
    story.later(1).partition(isr=(3,), leader=3, leader_epoch=9, partition_epoch=9, cause="fenced", evidence="proven")
    story.broker(2, fenced=True)
    story.later(1).heartbeat()
    write(story, tmp_path)
    rows = {row["incident_class"]: row for row in rows_of(tmp_path)}
    planned, lost = (rows[kind]["short_id"] for kind in ("controlled_shutdown", "broker_loss"))
    assert f"harm by   {lost}" in incidents(tmp_path, planned).splitlines()
    assert "harm by" not in incidents(tmp_path, lost)


def test_the_command_that_is_named_shows_every_event_of_an_incident(tmp_path: Path) -> None:
    story = of_lost_broker(partitions=30)
    story.later(30)
    write(story, tmp_path)
    (row,) = rows_of(tmp_path)
    (line,) = (line for line in incidents(tmp_path, row["incident_id"]).splitlines() if line.startswith("evidence"))
    shown, _, command = line.partition("; each of that time: isrwatch ")
    assert shown == f"evidence  {row['evidence_events']} events"
    done = CliRunner().invoke(app, [*shlex.split(command), "--tables", str(tmp_path), "-o", "json"])
    named = [each["event_id"] for each in json.loads(done.stdout)["rows"]]
    assert done.exit_code == 0
    assert len(named) >= row["evidence_events"], "others of that time may be among them"
    assert set(row["event_ids"]) < set(named)


def test_incidents_of_a_cluster_that_nobody_observes_any_more_are_marked(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path, dirs_exist_ok=True)
    fresh, old = (SourceState(ClusterId(name), name, f"log:{name}", SourceKind.METADATA_LOG, observed_until=Micros(at))
                  for name, at in (("fresh", time.time_ns() // 1_000), ("old", 1_700_000_000_000_000)))  # fmt: skip
    ProgressTable(tmp_path, Channel.REPLICATION).replace([(state, SourceLag()) for state in (fresh, old)], 1)
    first, *others = incidents(tmp_path).splitlines()
    assert first.startswith("STALE: cluster old was last observed ")
    assert first.endswith(" ago; its state is that old")
    assert others == ["no open incidents; 2 closed, --all shows them"]
    (said,) = incidents(tmp_path, "--cluster", "fresh").splitlines()
    assert said == "no open incidents", "who asks about one cluster is not answered about others"
    (newest, _) = rows_of(tables, "--all")
    assert "STALE" not in incidents(tmp_path, newest["incident_id"])
    assert incidents(tmp_path, "--cluster", "old").splitlines()[0] == first


def test_one_incident_is_shown_with_the_events_that_are_its_evidence(tables: Path) -> None:
    (newest, _) = rows_of(tables, "--all")
    shown = json.loads(incidents(tables, newest["incident_id"], "-o", "json"))
    assert [event["event_id"] for event in shown["evidence"]] != []
    assert {event["event_id"] for event in shown["evidence"]} == set(newest["event_ids"])
    lines = incidents(tables, newest["incident_id"]).splitlines()
    assert lines[0] == f"incident  {newest['short_id']}"
    assert f"long id   {newest['incident_id']}" in lines
    lost = [line.split("  ")[1].strip() for line in lines if line.endswith("fenced (proven)")]
    assert lost == ["27 partitions"], "what happened to partitions at once is said once"


def test_a_short_id_is_one_incident_and_the_beginning_of_one_is_none(tables: Path) -> None:
    newest, oldest = rows_of(tables, "--all")
    assert [newest["short_id"], oldest["short_id"]] == ["broker_loss-2", "broker_loss-1"]
    assert [line.split()[0] for line in incidents(tables, "--all").splitlines()[1:]] == [
        "broker_loss-2", "broker_loss-1",
    ]  # fmt: skip
    for wanted in ("broker_loss-2", newest["incident_id"]):
        assert json.loads(incidents(tables, wanted, "-o", "json"))["incident_id"] == newest["incident_id"]
    for wanted in ("broker_loss-3", "broker_loss-", "broker_loss"):
        done = CliRunner().invoke(app, ["incidents", wanted, "--tables", str(tables)])
        assert (done.exit_code, f"there is no incident '{wanted}'" in done.stderr) == (2, True)


def row(number: int, cluster_id: str = "c", cluster: str = "prod", merged_into: str | None = None) -> dict[str, Any]:
    return {
        "incident_id": f"loss:{cluster_id}/{number}", "short_id": f"{cluster}-{number}", "merged_into": merged_into,
        "cluster_id": cluster_id, "cluster": cluster,
    }  # fmt: skip


def found(rows: list[dict[str, Any]], wanted: str, **names: str) -> str:
    return str(one_of(rows, wanted, names)["incident_id"])


def test_the_id_of_what_was_merged_finds_the_one_that_it_is_part_of_now() -> None:
    rows = [row(1), row(2, merged_into="loss:c/1"), row(3, merged_into="loss:c/2")]
    wanted = ("prod-1", "prod-2", "prod-3", "loss:c/3", "loss:c/1")
    assert {found(rows, each) for each in wanted} == {"loss:c/1"}
    assert found(rows, "loss:c/") == "loss:c/1", "all that begin so are one incident"
    assert merged_into(rows[0], rows) == ["prod-2", "prod-3"]


def test_either_name_of_a_renamed_cluster_finds_its_incidents_unless_another_cluster_has_had_it() -> None:
    rows = [row(1), row(2), row(3, cluster="live"), row(1, "other", "live-1"), row(4, "new", "prod")]
    names = {"c": "live", "other": "live-1", "new": "prod"}
    assert [found(rows, f"live-{number}", **names) for number in (1, 2, 3)] == [f"loss:c/{each}" for each in (1, 2, 3)]
    assert found(rows, "prod-1", **names) == "loss:c/1"
    assert found(rows, "prod-4", **names) == "loss:new/4"
    assert found(rows, "live-1-1", **names) == "loss:other/1"
    for missing in ("prod-3", "live-4"):  # prod is another cluster's now, and live has no number 4
        with pytest.raises(ConfigurationError, match=f"there is no incident '{missing}'"):
            found(rows, missing, **names)


def test_one_incident_is_as_known_today_and_found_as_its_id_is_typed(tables: Path) -> None:
    done = CliRunner().invoke(app, ["incidents", "broker_loss-2", "--tables", str(tables), "--as-of", "1m"])
    assert (done.exit_code, "an incident is as it is known today; leave out --as-of" in done.stderr) == (2, True)
    assert incidents(tables, "Broker_Loss-2 ") == incidents(tables, "broker_loss-2")
    done = CliRunner().invoke(app, ["incidents", "", "--tables", str(tables)])
    assert (done.exit_code, "there is no incident ''" in done.stderr) == (2, True)


def test_the_list_of_a_renamed_cluster_is_selected_by_either_name(tables: Path, tmp_path: Path) -> None:
    shutil.copytree(tables, tmp_path, dirs_exist_ok=True)
    state = {column.name: None for column in CLUSTER_STATE_TABLE.columns}
    state |= {"cluster_id": "id-of-broker_loss", "cluster": "live", "as_of_version": 0}
    table = create_or_upgrade(tmp_path, CLUSTER_STATE_TABLE)
    schema = arrow_schema(CLUSTER_STATE_TABLE)
    table_writes.write(table, pa.Table.from_pylist([state], schema=schema), "overwrite")
    by_name = [row["short_id"] for row in rows_of(tmp_path, "--all", "--cluster", "live")]
    assert by_name == ["broker_loss-2", "broker_loss-1"]
    done = CliRunner().invoke(app, ["incidents", "--tables", str(tmp_path), "--cluster", "x"])
    assert (done.exit_code, "unknown cluster x; known: " in done.stderr) == (2, True), "none would look like no trouble"
    assert rows_of(tmp_path, "--all", "--cluster", "broker_loss") == rows_of(tmp_path, "--all")
    assert incidents(tmp_path, "live-2") == incidents(tmp_path, "broker_loss-2")


def test_a_name_that_two_clusters_have_now_finds_only_what_was_opened_under_it() -> None:
    rows = [row(1, "a", "old-a"), row(1, "b", "old-b"), row(2, "a", "both")]
    names = {"a": "both", "b": "both"}
    assert found(rows, "both-2", **names) == "loss:a/2"
    with pytest.raises(ConfigurationError, match="there is no incident 'both-1'"):
        found(rows, "both-1", **names)


def test_an_ambiguous_beginning_of_a_long_id_is_refused(tables: Path) -> None:
    done = CliRunner().invoke(app, ["incidents", "loss:", "--tables", str(tables)])
    assert (done.exit_code, "2 incidents begin with 'loss:'; give more of the id" in done.stderr) == (2, True)
