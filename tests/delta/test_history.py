"""History that expires: what is kept still gives the state as of every version after it, and what is not is refused."""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.read_model.past import MomentRefused, Past, state_as_of
from exporters.read_model.versions import checked_version, oldest_known
from streaming.changes.fold import fold
from streaming.changes.incidents.grouping import IncidentGaps
from streaming.changes.state import ReplicationState
from streaming.changes.tombstones import without_expired
from streaming.contracts.observations import Channel, Heartbeat, SourceKind, TopicRemoved
from streaming.contracts.state import SourceLag
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.history import UNREAD, expire_changes
from streaming.delta.changes.log import ChangeLog, changes_to_arrow
from streaming.delta.changes.reader import ChangeReader, rows_between
from streaming.delta.incidents.table import IncidentsTable
from streaming.delta.log.queries import query, read_all
from streaming.delta.log.writer import Writer
from streaming.delta.progress import ProgressTable
from streaming.delta.projections.clusters_state import ClustersState
from streaming.errors import ConfigurationError
from tests.changes.conftest import LAG, START, Story
from tests.examples import examples
from tests.plugins.derived import Projections
from tests.plugins.played import decoded

HOUR = 3600
DAY = 24 * HOUR
ISRS = ((1, 2, 3), (1, 2), (2, 3), (2,))


class Life:
    """A job on one folder: what is observed is committed, derived and expired."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / PARTITION_CHANGES.name
        self._log, self.held = ChangeLog(directory), ClustersState()
        self.story, self.poll = Story(), Story("admin:a", SourceKind.POLL)
        self._life, self._epochs = 1, Counter[int]()
        self.seen_upto = 0
        self.story.snapshot([{}, {}])
        self.commit()

    @property
    def version(self) -> int:
        return self._log.version

    def later(self, seconds: float) -> None:
        self.story.later(seconds)

    def change(self, partition: int, isr: tuple[int, ...]) -> None:
        self._epochs[partition] += 1
        self.story.later().partition(
            partition, topic_id=f"topic-{self._life}", isr=isr, leader=isr[0], partition_epoch=self._epochs[partition],
            **LAG,
        )  # fmt: skip

    def fence(self, broker: int, is_fenced: bool) -> None:  # noqa: FBT001 - drawn
        self.story.later().broker(broker, fenced=is_fenced)

    def beat(self, hours: int) -> None:
        """Another source, whose clock is a few hours beside, reports that it lives."""
        self.poll.now = self.story.now + hours * HOUR * 1_000_000
        self.story.seen.append(Heartbeat(**self.poll.envelope()))

    def remove(self) -> None:
        self.story.later().tell(TopicRemoved, topic_id=f"topic-{self._life}", topic="orders")
        self._life += 1
        self._epochs.clear()

    def commit(self) -> int:
        folded = without_expired(self.held.state, fold(self.held.state, self.story.seen))
        self.story.seen = []
        self.held.applied(folded.touched, self._log.commit(changes_to_arrow(folded.changes), {}))
        return self.version

    def derive(self) -> None:
        """Bring up everything that follows."""
        Projections(self.directory).project(self.held)
        progress = [(source, SourceLag()) for source in self.held.state.sources.values()]
        ProgressTable(self.directory, Channel.REPLICATION).replace(progress, self.version)

    def expire(self, before: dt.date) -> int:
        """Expire; return the oldest version whose state can be rebuilt then."""
        writer = Writer.opened(self.directory, PARTITION_CHANGES)
        expire_changes(self.directory, writer, before)
        self._log = ChangeLog(self.directory)
        return oldest_known(writer.table)

    def as_of(self, version: int) -> dict[str, Any]:
        """What a person sees, as values that can be compared."""
        return {
            cluster_id: (
                it.cluster, {key: (topic.topic, topic.partitions) for key, topic in it.topics.items()}, it.tombstones,
                it.brokers, it.totals, {broker: +Counter(causes) for broker, causes in it.departures.items()},
                it.counts.states, it.counts.led, it.counts.hosted, it.counts.in_sync, it.sources,
            )
            for cluster_id, it in state_as_of(self.directory, version).clusters.items()
        }  # fmt: skip


STEPS = st.one_of(
    st.tuples(st.just("change"), st.tuples(st.integers(0, 2), st.sampled_from(ISRS))),
    st.tuples(st.just("change"), st.tuples(st.integers(0, 2), st.sampled_from(ISRS))),
    st.tuples(st.just("fence"), st.tuples(st.integers(1, 3), st.booleans())),
    st.tuples(st.just("beat"), st.tuples(st.integers(-30, 30))),
    st.tuples(st.just("later"), st.tuples(st.sampled_from([HOUR, 13 * HOUR, 1.2 * DAY, 3 * DAY]))),
    st.tuples(st.just("later"), st.tuples(st.sampled_from([HOUR, 13 * HOUR, 1.2 * DAY, 3 * DAY]))),
    st.tuples(st.sampled_from(["remove", "commit", "commit", "commit"]), st.just(())),
)


def comparable(state: ReplicationState) -> tuple[Any, ...]:
    """All of a state; that a name belonged to a topic that is deleted is not kept over a start."""
    live = {partition.topic_id for partition in state.partitions() if not partition.is_deleted}
    names = {key: topic_id for key, topic_id in state.topic_ids.items() if topic_id in live}
    return state.topics, names, state.brokers, state.clusters, state.sources, state.configs


def day(micros: int) -> dt.date:
    """UTC day of a moment."""
    return dt.date(1970, 1, 1) + dt.timedelta(microseconds=micros)


def days_of(life: Life) -> list[dt.date]:
    last = day(life.story.now)
    first = day(START)
    return [first + dt.timedelta(days=number) for number in range((last - first).days + 2)]


@settings(max_examples=examples(8))
@given(steps=st.lists(STEPS, min_size=3, max_size=16), choice=st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_the_state_as_of_every_kept_version_is_the_same_after_history_expired(
    steps: list[tuple[str, tuple[Any, ...]]], choice: list[float]
) -> None:
    with TemporaryDirectory() as directory:
        life = Life(Path(directory))
        for name, arguments in steps:
            getattr(life, name)(*arguments)
        life.commit()
        life.derive()
        before = {version: life.as_of(version) for version in range(1, life.version + 1)}
        days, oldest = days_of(life), 0

        for share in sorted(choice):
            expired_upto = life.expire(days[round(share * (len(days) - 1))])
            assert expired_upto >= oldest
            oldest = expired_upto
            for version in range(max(1, expired_upto), max(before) + 1):
                assert life.as_of(version) == before[version], version

        life.story.later().heartbeat()
        life.commit()
        assert comparable(Projections(life.directory).recover(life.version).state) == comparable(life.held.state)


@pytest.fixture
def week(tmp_path: Path) -> Life:
    """A change a day, each a version, from the second on."""
    life = Life(tmp_path)
    for number in range(7):
        life.later(DAY)
        life.change(number % 2, ISRS[number % 4])
        life.commit()
    life.derive()
    return life


def test_a_version_before_the_kept_history_is_refused_with_what_there_is(week: Life) -> None:
    newest = week.version
    first = day(START)
    assert [checked_version(week.directory, version) for version in range(newest + 1)] == list(range(newest + 1))
    oldest = week.expire(first + dt.timedelta(days=4))
    newest = week.version
    assert 3 <= oldest < newest
    for version in range(oldest, newest + 1):
        assert checked_version(week.directory, version) == version
    for version in (0, oldest - 1, newest + 1):
        with pytest.raises(ConfigurationError, match=rf"--as-of {version}: .* has the versions {oldest} to {newest}"):
            checked_version(week.directory, version)


def test_a_time_before_the_kept_history_is_refused_with_the_oldest_there_is(week: Life) -> None:
    before = day(START) + dt.timedelta(days=4)
    midnight = (before - dt.date(1970, 1, 1)).days * DAY * 1_000_000
    past = Past(week.directory)
    for moment in (midnight - 1, midnight):
        assert past.snapshot(moment).clusters
    week.expire(before)
    past = Past(week.directory)
    assert past.range() == (midnight, week.story.now)
    assert past.snapshot(midnight).clusters
    with pytest.raises(MomentRefused, match=f"give a moment from {before}T00:00:00.000Z to 20"):
        past.snapshot(midnight - 1)


def test_only_the_newest_row_of_each_key_stays_of_the_expired_days(week: Life) -> None:
    before = day(START) + dt.timedelta(days=4)
    week.expire(before)
    table = DeltaTable(str(week.path))
    keys = query(
        table,
        'SELECT subject, broker, topic_id, "partition", count(*) AS rows FROM rows '  # noqa: S608 - a date
        f"WHERE date < '{before}' GROUP BY subject, broker, topic_id, \"partition\"",
    ).to_pylist()
    assert Counter(row["subject"] for row in keys) == {"partition": 2, "broker": 3, "cluster": 1, "source": 1}
    assert {row["rows"] for row in keys} == {1}


@pytest.mark.parametrize("read", [1, 4, 8])
def test_what_a_follower_has_not_read_yet_stays(tmp_path: Path, read: int) -> None:
    life = Life(tmp_path)
    follower = ChangeReader(life.path)
    for number in range(7):
        if life.version == read:
            life.derive()
            follower.poll()
        life.later(DAY)
        life.change(number % 2, ISRS[number % 4])
        life.commit()
    if read == life.version:
        life.derive()
        follower.poll()
    unread = rows_between(life.path, read, life.version)
    expected = life.as_of(life.version)

    oldest = life.expire(day(life.story.now) + dt.timedelta(days=9))

    assert oldest <= read
    assert rows_between(life.path, read, life.version).equals(unread)
    again = Projections(tmp_path).recover(life.version)
    assert decoded(again.state) == decoded(life.held.state)
    life.derive()
    assert life.as_of(life.version) == expected
    assert sum(part.num_rows for _, part in follower.poll()) == unread.num_rows


def test_nothing_expires_while_a_follower_has_read_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path)
    rows = rows_between(life.path, -1, life.version)
    Projections(tmp_path)
    assert life.expire(day(START) + dt.timedelta(days=30)) == 0
    assert rows_between(life.path, -1, life.version).equals(rows)


def deleted(life: Life) -> list[str]:
    sql = "SELECT DISTINCT topic_id FROM rows WHERE after['is_deleted'] ORDER BY topic_id"
    topic_ids: list[str] = query(DeltaTable(str(life.path)), sql)["topic_id"].to_pylist()
    return topic_ids


def test_tombstones_go_once_their_cluster_has_dropped_them_and_their_totals_stay(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.change(0, (1,))
    life.commit()
    life.remove()
    life.commit()
    removed_on = day(life.story.now)
    life.later(6 * DAY)
    life.commit()
    life.derive()

    silent = life.version, life.as_of(life.version)
    life.expire(removed_on + dt.timedelta(days=5))
    assert deleted(life) == ["topic-1"], "nothing was heard of the cluster since, so its totals are still theirs"
    assert life.as_of(silent[0]) == silent[1]

    life.beat(0)
    life.change(0, (1, 2))
    life.commit()
    life.derive()
    totals = life.as_of(life.version)["cluster-1"][4]
    life.expire(day(life.story.now) + dt.timedelta(days=1))

    assert deleted(life) == []
    assert life.as_of(life.version)["cluster-1"][4] == totals
    assert totals.isr_shrinks == 1, "that of the deleted topic"


def tomorrow() -> dt.date:
    """The changes are observed in 2023 and committed now: on this day they are older than a day by both."""
    return dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A partition loses a replica; incidents are written; for a week they are not, and it comes back meanwhile."""
    life = Life(tmp_path)
    life.later(DAY)
    life.change(0, (1, 2))
    life.commit()
    read_on(tmp_path)
    life.seen_upto = life.version
    life.later(DAY)
    life.change(0, (1, 2, 3))
    life.commit()
    for number in range(5):
        life.later(DAY)
        life.change(1, ISRS[(number + 1) % 4])
        life.commit()
    life.derive()
    return life


def read_on(directory: Path) -> IncidentsTable:
    """Run the query of the incidents."""
    table = IncidentsTable(directory, IncidentGaps())
    table.apply(ChangeReader(directory / "partition_changes", table.version).poll())
    return table


def incidents(directory: Path) -> list[dict[str, Any]]:
    rows = read_all(DeltaTable(str(directory / "incidents"))).to_pylist()
    return sorted(rows, key=lambda row: int(row["opened_at"]))


def rows_read(life: Life) -> int:
    sql = f"SELECT count(*) AS rows FROM rows WHERE version <= {life.version}"  # noqa: S608 - a number
    return int(query(DeltaTable(str(life.path)), sql)["rows"][0].as_py())


def test_incidents_that_are_silent_for_less_than_history_is_kept_are_waited_for(life: Life) -> None:
    unread = sum(rows.num_rows for _, rows in ChangeReader(life.path, life.seen_upto).poll())
    life.expire(day(life.story.now) + dt.timedelta(days=1))
    assert sum(rows.num_rows for _, rows in ChangeReader(life.path, life.seen_upto).poll()) == unread
    read_on(life.directory)
    (first, *_) = incidents(life.directory)
    assert first["closed_at"] is not None
    assert "its end was not seen" not in first["summary"]


def test_incidents_that_are_silent_for_longer_hold_no_history_back(life: Life) -> None:
    before = rows_read(life)
    life.expire(tomorrow())
    assert rows_read(life) < before
    newest = query(DeltaTable(str(life.path)), "SELECT count(*) AS rows FROM rows GROUP BY subject, broker, partition")
    assert set(newest["rows"].to_pylist()) == {1}, "the newest row of each key"
    assert (DeltaTable(str(life.path)).transaction_version(UNREAD) or 0) > life.seen_upto


def test_the_query_that_runs_again_ends_what_was_open_and_warns(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    (was_open,) = incidents(life.directory)
    assert was_open["closed_at"] is None
    changed_upto = life.version
    life.expire(tomorrow())

    with caplog.at_level(logging.WARNING):
        table = read_on(life.directory)

    assert table.version == changed_upto
    ended, *later = incidents(life.directory)
    assert (ended["incident_id"], ended["closed_at"]) == (was_open["incident_id"], was_open["updated_at"])
    assert ended["under_replicated_seconds"] == was_open["under_replicated_seconds"]
    assert ended["summary"].endswith("; its end was not seen: the changes after it expired before they were read")
    assert [incident["topics"] for incident in later] == [["orders"]], "that of the partition that is degraded now"
    expired_upto = DeltaTable(str(life.path)).transaction_version(UNREAD)
    (warned,) = caplog.records
    assert warned.message == (
        "the query incidents did not run for longer than history is kept: of the changes of versions "
        f"{life.seen_upto + 1} to {expired_upto} only the newest of each partition and broker are left, so incidents "
        "of that time are missing or incomplete"
    )

    caplog.clear()
    before = incidents(life.directory)
    assert read_on(life.directory).version == changed_upto
    assert (incidents(life.directory), caplog.records) == (before, []), "it is said once"


def test_a_query_that_runs_commits_how_far_it_is_every_hour(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    table = read_on(life.directory)
    monkeypatch.setattr("streaming.delta.incidents.table.SECONDS_WITHOUT_NEWS", 0.0)
    life.later(1)
    life.story.heartbeat()
    life.commit()
    table.apply(ChangeReader(life.path, table.version).poll())
    assert IncidentsTable(life.directory, IncidentGaps()).version == life.version
