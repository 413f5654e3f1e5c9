"""The tables and the bus of b3f2e02 hold what the tests of the upgrade promise: else those would prove little."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from streaming.bus.directory import DirectoryReader
from streaming.contracts.observations import Channel
from tests.plugins.old_layout import (
    CHANGES,
    FIXTURE,
    changes,
    commits,
    differences,
    facts,
    read,
    rows_in,
    tables,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.plugins.old_layout import Row

MOST_BYTES = 1_500_000
LOG = "metadata_log:collector-1"
DERIVED = (
    "replication_events", "partition_state", "broker_state", "cluster_state", "source_progress", "incidents",
)  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``tables`` and ``bus``, as a kill left them; only read."""
    directory = tmp_path_factory.mktemp("killed")
    unpack(directory)
    return directory


def at_kill() -> list[Row]:
    return [change["row"] for change in changes() if change["version"] <= facts()["version"]]


def since_kill() -> list[Row]:
    return [change["row"] for change in changes() if change["version"] > facts()["version"]]


def versions_in(path: Path, files: Iterable[dict[str, Any]]) -> list[list[int]]:
    """Give the version that committed each row of each file, in the order of the rows."""
    committed = {json.dumps(change["row"], sort_keys=True): change["version"] for change in changes()}
    return [[committed[json.dumps(row, sort_keys=True)] for row in rows_in(path, file)] for file in files]


def present(path: Path) -> list[dict[str, Any]]:
    """Give the files of the newest version, as the log has them."""
    return [named(file) for file in DeltaTable(str(path)).get_add_actions()["path"].to_pylist()]


def named(file: str) -> dict[str, Any]:
    """Spell a file as the log does."""
    return {"path": file, "partitionValues": {"date": file.split("/", maxsplit=1)[0].removeprefix("date=")}}


def operations(path: Path) -> dict[int, str]:
    """Give the operation of each version that has an entry in the log."""
    found = {}
    for entry in sorted((path / "_delta_log").glob("*.json")):
        for line in entry.read_text(encoding="utf-8").splitlines():
            found[int(entry.stem)] = json.loads(line).get("commitInfo", {}).get("operation", found.get(int(entry.stem)))
    return found


@pytest.mark.parametrize("settled", [False, True])
def test_every_table_holds_what_was_recorded_of_it(tmp_path: Path, *, settled: bool) -> None:
    unpack(tmp_path, settled=settled)

    assert differences(read(tmp_path / "tables", CHANGES), at_kill()) == {}
    for name, rows in tables("before").items():
        if not settled or facts()["true_of"][name] is None:
            assert differences(read(tmp_path / "tables", name), rows) == {}, name


def test_the_fixture_is_small() -> None:
    assert sum(file.stat().st_size for file in FIXTURE.iterdir()) < MOST_BYTES


def test_the_older_changes_lie_in_compacted_files_and_nothing_else_records_their_commits(killed: Path) -> None:
    path, oldest = killed / "tables" / CHANGES, facts()["oldest_version"]
    entries = operations(path)
    assert sorted(entries) == list(range(oldest, facts()["version"] + 1))
    assert oldest > 40

    held = versions_in(path, present(path))
    compacted = [versions for versions in held if len(set(versions)) > 10]
    assert {version for versions in held for version in versions if version < oldest} <= set().union(*compacted)
    assert len(compacted) >= 4
    on_disk = [file.relative_to(path).as_posix() for file in path.rglob("date=*/*.parquet")]
    left = versions_in(path, map(named, on_disk))
    assert min(versions[0] for versions in left if len(set(versions)) == 1) > 40, "what was compacted is deleted"
    assert any(versions != sorted(versions) for versions in compacted), (
        "not even the order of the rows is that of the commits"
    )


def test_commits_follow_the_last_compaction(killed: Path) -> None:
    path = killed / "tables" / CHANGES
    entries = operations(path)
    compactions = [version for version, operation in entries.items() if operation == "OPTIMIZE"]

    assert len(compactions) >= 2
    assert sum(operation == "WRITE" for version, operation in entries.items() if version > compactions[-1]) >= 8


def test_the_log_still_has_the_later_commits_as_they_were_made(killed: Path) -> None:
    expected: defaultdict[int, list[Row]] = defaultdict(list)
    for change in changes():
        if facts()["oldest_version"] <= change["version"] <= facts()["version"]:
            expected[change["version"]].append(change["row"])

    found = {version: rows for version, rows in commits(killed / "tables" / CHANGES, 0) if rows}

    assert set(found) == set(expected)
    for version, rows in found.items():
        assert rows == sorted(expected[version], key=lambda row: str(row["date"])), version


def test_the_derived_tables_are_behind_the_truth_and_not_all_as_far(killed: Path, tmp_path: Path) -> None:
    version, true_of = facts()["version"], facts()["true_of"]
    reached = [true_of[name] for name in ("partition_state", "broker_state", "cluster_state", "replication_events")]
    compaction = max(it for it, operation in operations(killed / "tables" / CHANGES).items() if operation == "OPTIMIZE")
    assert max(reached) < compaction, "what they lack lies in compacted files"
    assert true_of["broker_state"] < true_of["cluster_state"], "the kill came between them"
    assert {true_of[name] for name in ("incidents", "source_progress")} - set(reached)

    unpack(tmp_path, settled=True)
    with_rows = max(change["version"] for change in changes() if change["version"] <= version)
    for name in DERIVED:
        found = [DeltaTable(str(at / "tables" / name)).transaction_version(CHANGES) for at in (killed, tmp_path)]
        assert found[0] == true_of[name], name
        assert found[1] in {with_rows, version}, name


def test_the_changes_are_of_several_clusters_sources_and_days() -> None:
    rows = at_kill()

    assert len({row["cluster_id"] for row in rows}) == 2
    assert {row["authority"] for row in rows if row["subject"] == "source"} == {"metadata_log", "poll", "none"}
    assert len({row["source"] for row in rows}) >= 4
    assert len({row["date"] for row in rows}) >= 5
    subjects = Counter(row["subject"] for row in rows)
    assert min(subjects[name] for name in ("partition", "broker", "cluster", "source")) > 30
    about: Counter[Any] = Counter()
    days: defaultdict[int, set[str]] = defaultdict(set)
    for change in changes():
        row = change["row"]
        about[change["version"], row["cluster_id"], row.get("topic_id"), row.get("partition")] += (
            row["subject"] == "partition"
        )
        days[change["version"]].add(row["date"])
    assert sum(count > 1 for count in about.values()) > 100, "several changes of a partition in one commit"
    assert sum(len(dates) > 1 for dates in days.values()) >= 2, "commits that reach over midnight"


def test_topics_were_deleted_made_again_and_forgotten() -> None:
    states = [row["after"] | row for row in at_kill() if row["subject"] == "partition"]
    made: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for state in states:
        made[state["cluster"], state["topic"]].add(state["topic_id"])
    assert sum(len(ids) > 1 for ids in made.values()) >= 2
    assert len({state["topic_id"] for state in states if state["is_deleted"]}) >= 5

    assert any(row["is_deleted"] for row in tables("before")["partition_state"])
    forgotten = {when: _forgotten(tables(when)["cluster_state"]) for when in ("before", "after")}
    assert all(count > 0 for count in forgotten["before"].values())
    assert forgotten["before"]["orders-east"] < forgotten["after"]["orders-east"], "and more of them in the rest"
    kept = {row["topic_id"] for row in tables("after")["partition_state"]}
    assert {state["topic_id"] for state in states if state["is_deleted"]} - kept


def _forgotten(clusters: Iterable[Row]) -> dict[str, int]:
    return {row["cluster"]: row["expired_isr_shrinks"] for row in clusters}


@pytest.mark.parametrize("rows", [at_kill, since_kill])
def test_events_of_many_kinds_are_there_before_and_after(rows: Any) -> None:
    kinds = {event["event"] for row in rows() for event in row.get("events", ())}

    assert kinds >= {"isr_shrink", "isr_expand", "leader_change", "unclean_election", "offline", "cause_revised"}
    assert kinds >= {"topic_created", "topic_deleted", "fenced", "min_isr_change"}


def test_changes_were_missed_and_totals_are_not_nothing() -> None:
    east, west = sorted(tables("before")["cluster_state"], key=lambda row: str(row["cluster"]))

    assert min(east[name] for name in ("isr_shrinks", "unclean_elections", "missed_changes", "offline_seconds")) > 0
    assert min(west[name] for name in ("isr_shrinks", "leader_changes", "unknown_seconds")) > 0


def test_incidents_are_open_closed_and_part_of_others() -> None:
    rows = tables("before")["incidents"]

    assert any("closed_at" not in row for row in rows)
    assert sum("closed_at" in row for row in rows) >= 5
    assert any("merged_into" in row for row in rows)
    assert len(tables("after")["incidents"]) > len(rows)


def test_samples_and_quarantine_have_rows() -> None:
    assert {name: len(rows) > 0 for name, rows in tables("before").items()} == dict.fromkeys(tables("before"), True)
    assert {row["source"] for row in tables("before")["quarantine"]} == {LOG, "admin:collector-3"}
    assert len(tables("after")["quarantine"]) == len(tables("before")["quarantine"]) + 1


def test_the_last_refused_record_is_not_yet_in_the_count_of_its_source() -> None:
    newest = [row["source_after"] for row in at_kill() if row["subject"] == "source" and row["source"] == LOG][-1]

    assert newest["quarantined"] < sum(row["source"] == LOG for row in tables("before")["quarantine"])
    assert newest["position"] < facts()["logs"][Channel.REPLICATION][LOG]["applied"]


def test_about_a_thousand_records_are_unread_in_several_segments(killed: Path) -> None:
    reader, log = DirectoryReader(killed / "bus"), facts()["logs"][Channel.REPLICATION][LOG]
    starts = [segment.base for segment in reader.segments(Channel.REPLICATION, LOG)]
    assert starts[0] > 0, "what was applied is deleted from the bus"
    assert sum(start > log["applied"] for start in starts) >= 5
    assert starts[0] <= log["applied"] < starts[1], "and the applied position lies within a segment"

    frames = reader.read(Channel.REPLICATION, LOG, log["applied"], log["end"])
    records = [json.loads(frame[1]) for frame in list(frames)[1:]]
    kinds = [record["kind"] for record in records]
    assert 900 < sum(facts()["unread"].values()) < 1_200
    assert len(kinds) == facts()["unread"][LOG]
    assert Counter(kinds) > Counter(partition=300, heartbeat=3, cause_revised=1, topic_removed=1, undecodable=1)
    begin, end = kinds.index("snapshot_begin"), kinds.index("snapshot_end")
    assert sum(record.get("in_snapshot", False) for record in records[begin:end]) >= 20, "a snapshot, whole"


def test_the_configuration_sets_every_key_to_something_else() -> None:
    given, defaults = facts()["settings"]["given"], facts()["settings"]["defaults"]

    assert given.keys() == defaults.keys()
    for section, keys in given.items():
        assert keys.keys() == defaults[section].keys()
        assert [key for key, value in keys.items() if value == defaults[section][key]] == []
