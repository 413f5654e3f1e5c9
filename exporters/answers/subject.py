"""A subject: what is read to answer a question about it, what is a row, what is said about the rows."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from exporters.answers.answer import (
    Answer,
    AsOf,
    ClusterFreshness,
    Question,
    Row,
    Sentence,
    Tone,
    UnknownName,
    refuse_unknown,
)
from exporters.metrics.sample_ages import oldest_ages
from exporters.read_model.cluster_names import clusters_by_name, selected_then
from exporters.read_model.conditions import DEFAULT_SETTINGS, ConditionSettings
from exporters.read_model.incident_archive import read_names
from exporters.read_model.past import Past
from exporters.read_model.reader import TablesReader
from exporters.read_model.times import SECOND, Version, read_moment, span
from exporters.read_model.versions import checked_version
from streaming.cluster_settings import each_cluster
from streaming.contracts.identifiers import ClusterId
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.log.queries import columns_of, open_ours, select, where_in
from streaming.errors import ConfigurationError, TableUnreadable
from streaming.name_patterns import patterns_of
from streaming.settings import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from exporters.read_model.conditions import Raised
    from exporters.read_model.incident_archive import IncidentArchive
    from exporters.read_model.snapshot import ClusterSnapshot, ReplicationSnapshot
    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

_STATE: Final = frozenset(
    table.name
    for table in (PARTITION_CHANGES, PARTITION_STATE_TABLE, BROKER_STATE_TABLE, CLUSTER_STATE_TABLE, SOURCE_PROGRESS)
)
FRESHNESS: Final = ("cluster_id", "cluster", "data_age_seconds", "is_stale")
"""Columns that every row of the state begins with."""
OF_SAMPLES: Final = "sample_age_seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of a configuration, in seconds.

    Attributes:
        stale_after: age up to which state counts.
        oldest_ages: the same of samples, by table.
        poll_intervals: how often the brokers of a cluster are polled, by its name.
        conditions: what is raised, and what severities are called.
    """

    stale_after: float
    oldest_ages: Mapping[str, float]
    poll_intervals: Mapping[str, float]
    conditions: ConditionSettings = DEFAULT_SETTINGS

    @classmethod
    def of(cls, config_file: Path | None) -> Limits:
        """Read a configuration, as of the option ``--config``."""
        configured = load(config_file)
        stale_after = configured.export.stale_after
        polls = {each.cluster.name: each.collect.poll_interval for each in each_cluster(config_file)}
        ages = oldest_ages(stale_after, configured.collect)
        conditions = ConditionSettings.of(configured.alerts)
        return cls(stale_after=stale_after, oldest_ages=ages, poll_intervals=polls, conditions=conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Source of answers.

    Attributes:
        folder: of the tables.
        limits: from which age on nothing counts.
        now: UTC microseconds.
        snapshot: of the present; None reads it from the tables.
        unreadable: why a table of the snapshot could not be read, by its name.
        archive: every incident; None reads them from the tables.
        past: of the same tables; None opens it.
        raised: the conditions of that snapshot at a time, with those of the exporter; None derives them.
    """

    folder: Place
    limits: Limits
    now: int
    snapshot: ReplicationSnapshot | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    archive: IncidentArchive | None = None
    past: Past | None = None
    raised: Callable[[ReplicationSnapshot, int], Iterable[Raised]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """A question, with the clusters that it is about.

    Attributes:
        question: what is asked.
        tables: where the answer comes from.
        as_of: the moment of the past; None is the present.
        clusters: by name, each with the columns that its rows begin with.
        unreadable: takes the tables that cannot be read, by name.
        errors: the same of every table of the snapshot, whether or not this answer needs it.
    """

    question: Question
    tables: Tables
    as_of: AsOf | None
    clusters: list[tuple[ClusterSnapshot, Row]]
    unreadable: dict[str, str]
    errors: Mapping[str, str]

    @property
    def now(self) -> int:
        """UTC microseconds of the present, also in a question about the past."""
        return self.tables.now

    @property
    def moment(self) -> int:
        """UTC microseconds that the answer is of."""
        return self.now if self.as_of is None else self.as_of.moment

    @property
    def is_now(self) -> bool:
        """True if it is about the present, of which alone there are samples and advice."""
        return self.as_of is None

    @property
    def current(self) -> list[ClusterSnapshot]:
        """The clusters whose state is the present one and not stale."""
        return [each for each, row in self.clusters if self.is_now and not row["is_stale"]]

    @property
    def no_cluster(self) -> str:
        """The sentence that says why there is no cluster."""
        if self.question.clusters:
            return f"no cluster is chosen by {', '.join(self.question.clusters)}"
        return "no cluster has been observed; start isrwatch job and collect"

    def patterns(self, name: str) -> tuple[str, ...]:
        """Return the patterns of a filter; empty chooses everything."""
        return tuple(self.question.filters.get(name, ()))

    def of_cluster(self, name: str) -> str:
        """Return the words that name a cluster; none where there is only one."""
        return f" of cluster {name}" if len(self.clusters) > 1 else ""

    @contextmanager
    def reading(self, table: Table) -> Iterator[None]:
        """Leave the block when a table cannot be read, and continue after it."""
        try:
            yield
        except TableUnreadable as error:
            self.unreadable.setdefault(table.name, str(error))

    def samples(self, table: Table, *, sampled_at: str = "collected_at") -> list[Row]:
        """Return the rows of a table of samples of these clusters, each with its age; none where there is no table."""
        names, rows = {each.cluster.cluster_id: each.name for each, _ in self.clusters}, list[Row]()
        with self.reading(table):
            samples = select(open_ours(self.tables.folder, table), table, where_in(names))
            columns = columns_of(samples, samples.column_names)
            for values in zip(*columns.values(), strict=True):
                row = dict(zip(columns, values, strict=True))
                row["cluster"] = names[row["cluster_id"]]  # it may have been renamed since
                row[OF_SAMPLES] = max(0, self.now - row[sampled_at]) / SECOND
                rows.append(row)
        return rows

    def sampled(self, cluster: ClusterSnapshot, table: Table) -> tuple[Any, ...]:
        """Return the samples of a table that the snapshot of a cluster holds; none while they cannot be read."""
        rows: tuple[Any, ...] | None = getattr(cluster.samples, table.name)
        if rows is None:
            self.unreadable.setdefault(table.name, self.errors.get(table.name, f"{table.name} cannot be read"))
        return rows or ()

    def said_of_age(self, table: Table, what: str, rows: Iterable[Row]) -> Iterator[Sentence]:
        """Say of which cluster even the newest samples are old: what rows of them show may be over."""
        newest: dict[str, float] = {}
        for row in rows:
            newest[row["cluster"]] = min(row[OF_SAMPLES], newest.get(row["cluster"], row[OF_SAMPLES]))
        for name, age in newest.items():
            if age > self.tables.limits.oldest_ages.get(table.name, age):
                text = f"the newest samples of {what}{self.of_cluster(name)} are {span(age)} old"
                yield Sentence(text, Tone.WARNING)

    def without_samples(self, table: Table, what: str, needs: str) -> Sentence:
        """Say why a table has no samples of something, and what it needs to have any."""
        if not self.clusters:
            return Sentence(self.no_cluster)
        if table.name in self.unreadable:
            return Sentence(f"whether there are {what} is unknown: {table.name} cannot be read", Tone.WARNING)
        return Sentence(f"no samples of {what}: {needs}; isrwatch doctor checks that")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameFilter:
    """A choice of rows by patterns of names.

    Attributes:
        name: of the parameter and the option, and what it chooses, in the singular.
        help: what is written there.
        names: the names by which a row is chosen.
        every_name: that there is; None is those of the rows.
    """

    name: str
    help: str
    names: Callable[[Row], Iterable[str]]
    every_name: Callable[[Inquiry], Iterable[str]] | None = None

    def chosen(self, asked: Inquiry, rows: list[Row]) -> list[Row]:
        """Return the rows that are chosen.

        Raises:
            ConfigurationError: a pattern fits nothing that there is.
        """
        patterns = asked.question.filters.get(self.name, ())
        if not patterns:
            return rows
        if self.every_name is not None:
            refuse_unknown(patterns, self.every_name(asked), self.name)
        elif rows:
            refuse_unknown(patterns, (name for row in rows for name in self.names(row)), self.name)
        chosen = patterns_of(*patterns)
        return [row for row in rows if chosen(*self.names(row))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSubject:
    """Subject that can be asked about.

    Attributes:
        name: of the command and of the path of the API.
        help: one sentence.
        filters: the first one chooses the subject itself.
        columns: of its rows.
        rows: reads them.
        said: what is said of those that were chosen; where there are none, why.
        has_history: whether it can be asked about the past.
    """

    name: str
    help: str
    filters: tuple[NameFilter, ...]
    columns: tuple[str, ...]
    rows: Callable[[Inquiry], Iterable[Row]]
    said: Callable[[Inquiry, list[Row]], Iterable[Sentence]]
    has_history: bool = False

    def answer(self, tables: Tables, question: Question) -> Answer:
        """Answer from tables.

        Raises:
            ConfigurationError: something is asked for that does not exist, or a moment that cannot be shown.
            TableUnreadable: there is no state without this table.
        """
        if question.at is not None and not self.has_history:
            raise ConfigurationError(
                f"of {self.name} only the newest samples are kept, so there is no answer as of {question.at}; leave it "
                "out for the present"
            )
        if others := sorted(set(question.filters) - {each.name for each in self.filters}):
            raise ConfigurationError(f"{self.name} are not filtered by {others[0]}")
        asked = opened(tables, question)
        every = rows = list(self.rows(asked))
        for each in self.filters:
            rows = each.chosen(asked, rows)
        given = ", ".join(f"{name} {' '.join(patterns)}" for name, patterns in question.filters.items())
        chosen_none = [Sentence(f"none of {len(every):,} {self.name} is chosen by {given}")]
        return Answer(
            columns=self.columns,
            rows=rows,
            sentences=chosen_none if every and not rows else list(self.said(asked, rows)),
            clusters=[ClusterFreshness(*_freshness_of(row)) for _, row in asked.clusters],
            now=asked.now,
            as_of=asked.as_of,
            unreadable=asked.unreadable,
        )


def opened(tables: Tables, question: Question) -> Inquiry:
    """Find the clusters that a question is about, as of its moment.

    Raises:
        ConfigurationError: a pattern of a cluster fits none, or the moment cannot be shown.
    """
    errors, moment = {} if question.at is not None else dict(tables.unreadable), None
    if question.at is not None:
        snapshot, moment = _past(tables, question.at, errors)
        chosen = _chosen_then(tables, snapshot, question.clusters)
    else:
        snapshot = _present(tables.folder, errors) if tables.snapshot is None else tables.snapshot
        chosen = _chosen_now(snapshot, question.clusters)
    then = tables.now if moment is None else moment.moment
    clusters = [(each, _freshness(each, then, tables.limits.stale_after)) for each in chosen]
    unreadable = {name: why for name, why in errors.items() if name in _STATE}
    return Inquiry(
        question=question, tables=tables, as_of=moment, clusters=clusters, unreadable=unreadable, errors=errors
    )


def _chosen_now(snapshot: ReplicationSnapshot, patterns: tuple[str, ...]) -> list[ClusterSnapshot]:
    shown = sorted(clusters_by_name(snapshot).values(), key=lambda each: each.name)
    names = {  # two clusters that have one name are shown with their ids, and are chosen by the name as well
        each.cluster.cluster_id: (each.name, snapshot.clusters[each.cluster.cluster_id].name, each.cluster.cluster_id)
        for each in shown
    }
    refuse_unknown(patterns, (name for each in names.values() for name in each), "cluster")
    chosen = patterns_of(*patterns)
    return [each for each in shown if chosen(*names[each.cluster.cluster_id])]


def _chosen_then(tables: Tables, then: ReplicationSnapshot, patterns: tuple[str, ...]) -> list[ClusterSnapshot]:
    now = names_of_now(tables.folder, tables.snapshot) if patterns else {}
    selected = selected_then(then, now, patterns)
    refuse_unknown(selected.unknown, clusters_by_name(then), "cluster")
    if selected.not_yet:
        raise UnknownName(f"cluster {min(selected.not_yet.values())} had not been observed by then")
    return [each for _, each in sorted(selected.clusters.items())]


def names_of_now(tables: Place, snapshot: ReplicationSnapshot | None = None) -> dict[ClusterId, str]:
    """Return the name that each cluster is shown under now, by its id; without a snapshot the one in the tables."""
    if snapshot is None:
        return {ClusterId(key): name for key, name in read_names(tables).items()}
    return {each.cluster.cluster_id: name for name, each in clusters_by_name(snapshot).items()}


def past_of(tables: Tables) -> Past:
    """Return the past of these tables."""
    return tables.past or Past(tables.folder, lambda: tables.now)


def _past(tables: Tables, at: str, errors: dict[str, str]) -> tuple[ReplicationSnapshot, AsOf]:
    """Return the state as of a time, by what had occurred, or of a version of the changes."""
    moment, past = read_moment(at, tables.now), past_of(tables)
    if not isinstance(moment, Version):
        return past.snapshot(moment), AsOf(moment)
    version = checked_version(tables.folder, moment.number)
    snapshot = past.at_version(version, lambda why: errors.update({BROKER_STATE_TABLE.name: why}))
    return snapshot, AsOf(snapshot.read_at, version)


def _present(folder: Place, errors: dict[str, str]) -> ReplicationSnapshot:
    """Read the present state from the tables that can be read."""
    reader = TablesReader(folder)
    try:
        snapshot = reader.refresh()
    except TableUnreadable as error:
        with suppress(TableUnreadable):
            errors[PARTITION_CHANGES.name] = str(error)
            return reader.state_alone()
        raise
    errors |= {status.table: status.error for status in reader.statuses if status.error is not None}
    return snapshot


def _freshness(cluster: ClusterSnapshot, now: int, stale_after: float) -> Row:
    age, is_stale = cluster.age_seconds(now), cluster.is_stale(now, stale_after)
    return dict(zip(FRESHNESS, (cluster.cluster.cluster_id, cluster.name, age, is_stale), strict=True))


def _freshness_of(row: Row) -> tuple[Any, ...]:
    return row["cluster"], row["cluster_id"], row["data_age_seconds"], row["is_stale"]
