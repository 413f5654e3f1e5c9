"""The state at a moment from ``past_states``: the newest base that had wholly occurred by then, and what came after it.

Theory: ``streaming.delta.changes.bases``. Bases that were read stay in memory. So does the state two hours before the
last moment, with the changes of the hours around it: the next moment costs what is applied to that alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.kept_rows import KeptTable
from exporters.read_model.snapshot import RECENT_MICROS, ReplicationSnapshot, TopicPartitions
from exporters.read_model.versions import MOMENT
from streaming.contracts.events import Subject
from streaming.contracts.state import PartitionState
from streaming.contracts.tables import PARTITION_CHANGES, PAST_STATES
from streaming.delta.changes.bases import bases_of, read_base
from streaming.delta.changes.history import EXPIRED_VERSION
from streaming.delta.log.cluster_files import of_clusters
from streaming.delta.log.copies import ColumnBounds, FileCopies
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import ALL, last_of_each, numbered, query, quoted, where_in
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals, states_of
from streaming.delta.tally_rows import counted
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from deltalake import DeltaTable

    from streaming.delta.changes.bases import Base
    from streaming.delta.store.place import Place


PARTITIONS_KEPT: Final = 250_000
"""Partitions of the bases in memory, together; the newest one stays whatever its size."""
_BACK: Final = 7_200_000_000
_AHEAD: Final = 3_600_000_000
"""Microseconds before and after a moment that its changes are read for: who walks through the past asks for them."""
BYTES_KEPT: Final = 96 << 20
"""Bytes of the changes after a base that stay in memory: more are read again for each moment."""
FOLLOWED: Final = 4
"""Choices of clusters that were asked for last, whose changes stay in memory."""
_KEY: Final = ["subject", "cluster_id", "topic_id", "partition", "broker"]
_READ: Final = (
    *_KEY, "cluster", "topic", "version", "ordinal", "occurred_not_after", "cause", "left_isr",
    "after", "broker_after", "cluster_after",
)  # fmt: skip
_TYPES: Final = pa.schema([arrow_schema(PARTITION_CHANGES).field(name) for name in _READ])
_PLACE: Final = ["version", "ordinal"]
_ORDER: Final = [(name, "ascending") for name in _PLACE]
_OCCURRED: Final = _TYPES.field("occurred_not_after").type
Clusters = frozenset[str] | None


class _Begin(NamedTuple):
    """A state that the changes after a version are applied to; of a base the newest time of its changes."""

    version: int
    snapshot: ReplicationSnapshot
    partitions: int = 0


_NOTHING: Final = _Begin(BEFORE_FIRST, ReplicationSnapshot())


class _Following(NamedTuple):
    """The state at a moment, and the changes after it, as they were read from a version of a table.

    Attributes:
        table_id, table_version: of the change log as it was read.
        begin: version of the base.
        clusters: that were read; None: all.
        since, until: the changes are of this time; UTC microseconds.
        snapshot: the state at ``since``.
        version: the newest that it has a change of.
        newest: key, version and ordinal of the changes since the base that it has.
        rows: the changes after it; none that it replaces.
    """

    table_id: int
    table_version: int
    begin: int
    clusters: Clusters
    since: int
    until: int
    snapshot: ReplicationSnapshot
    version: int
    newest: pa.Table
    rows: pa.Table

    @property
    def nbytes(self) -> int:
        """Bytes of its changes."""
        return int(self.rows.nbytes + self.newest.nbytes)

    def of(self, clusters: Clusters) -> _Following:
        """Return the same of some of its clusters."""
        if clusters == self.clusters or clusters is None:
            return self
        chosen = {key: each for key, each in self.snapshot.clusters.items() if key in clusters}
        snapshot, rows = replace(self.snapshot, clusters=chosen), of_clusters(self.rows, clusters)
        return self._replace(clusters=clusters, snapshot=snapshot, rows=rows)

    def after(self, rows: pa.Table) -> pa.Table:
        """Return the rows that its state does not replace: what was committed later may have occurred before."""
        if not rows.num_rows:
            return rows
        newest = self.newest.filter(pc.greater_equal(self.newest["version"], pc.min(rows["version"])))
        if not newest.num_rows:  # as mostly: a state of 100,000 partitions need not be joined
            return rows
        keyed = numbered(_without_nulls(rows.select([*_KEY, *_PLACE])), [*_KEY, *_PLACE])
        both = keyed.join(newest, _KEY, right_suffix="_of_state")
        version, ordinal = (f"{name}_of_state" for name in _PLACE)
        is_same_version = pc.equal(both["version"], both[version])
        is_older = pc.or_(
            pc.less(both["version"], both[version]), pc.and_(is_same_version, pc.less(both["ordinal"], both[ordinal]))
        )
        is_older = pc.fill_null(is_older, fill_value=False)
        if not pc.any(is_older).as_py():
            return rows
        return rows.take(both.filter(pc.invert(is_older))["row"])


class BaseSnapshots:
    """Reads bases and the changes after them. Not for more than one thread at once."""

    def __init__(self, tables: Place) -> None:
        """Read nothing yet; the folder of the tables need not exist."""
        self._tables = tables
        self.bases = KeptTable(tables, PAST_STATES)
        self._begins: OrderedDict[tuple[Base, Clusters], _Begin] = OrderedDict()
        self._following: OrderedDict[Clusters, _Following] = OrderedDict()
        self.copies = FileCopies(tables / PARTITION_CHANGES.name)
        self._damaged: set[str] = set()

    def at(
        self, kept: KeptTable, changes: DeltaTable, at: int, clusters: Collection[str] | None
    ) -> tuple[SnapshotDraft, int]:
        """Return the state at a moment, of all clusters or some, and the newest version that it has a change of.

        ``kept`` is the change log, ``changes`` the same as it was opened last.

        Raises:
            TableUnreadable: the change log cannot be read.
        """
        chosen = None if clusters is None else frozenset(clusters)
        begin = self._begin(int(changes.version()), at, chosen)
        is_counted = begin.version > BEFORE_FIRST or kept.transaction(EXPIRED_VERSION) is None
        held = self._followed(changes, begin, at, chosen)
        moment = pa.scalar(at, held.rows.schema.field("occurred_not_after").type)
        rows = held.rows.filter(pc.less_equal(held.rows["occurred_not_after"], moment))
        draft = _applied(held.snapshot, rows)
        for cluster in () if is_counted else draft.every_cluster():
            cluster.drop_isr_removals()
        return draft, max(held.version, pc.max(rows["version"]).as_py() or BEFORE_FIRST)

    def _begin(self, newest_version: int, at: int, clusters: Clusters) -> _Begin:
        for base in self._candidates(newest_version, at):
            for key in ((base, clusters), (base, None)):
                if key in self._begins:
                    self._begins.move_to_end(key)
                    return _of_clusters(self._begins[key], clusters)
            try:
                begin = self._read(base, clusters)
            except IsrwatchError:  # an older one, or the changes alone, give the same
                self._damaged.update(file.path for file in base.files)
                continue
            self._hold((base, clusters), begin)
            return begin
        return _NOTHING

    def _candidates(self, newest_version: int, at: int) -> Iterator[Base]:
        """Yield the bases that had wholly occurred by a moment, newest first."""
        try:
            opened = self.bases.opened()
            bases = [] if opened is None else bases_of(opened)
        except IsrwatchError:
            return
        for base in reversed(bases):
            is_readable = self._damaged.isdisjoint(file.path for file in base.files)
            if base.newest <= at and base.version <= newest_version and is_readable:
                yield base

    def _read(self, base: Base, clusters: Clusters) -> _Begin:
        rows = read_base(self._tables / PAST_STATES.name, base, clusters)
        draft = SnapshotDraft(ReplicationSnapshot())
        put_first(draft, rows)
        counted = rows.filter(pc.is_valid(rows["isr_departures"]))
        for row in counted.select(["cluster_id", "cluster", "broker", "isr_departures"]).to_pylist():
            for each in row["isr_departures"]:
                draft.add_isr_removals(
                    row["cluster_id"], row["cluster"], row["broker"], each["cause"], each["departures"]
                )
        return _Begin(base.version, draft.finish(base.version, base.newest, 0), rows.num_rows)

    def _hold(self, key: tuple[Base, Clusters], begin: _Begin) -> None:
        self._begins[key] = begin
        while len(self._begins) > 1 and sum(each.partitions for each in self._begins.values()) > PARTITIONS_KEPT:
            self._begins.popitem(last=False)

    def _followed(self, changes: DeltaTable, begin: _Begin, at: int, clusters: Clusters) -> _Following:
        """Return a state before a moment, and the changes after that, in any order."""
        version, table_id = int(changes.version()), changes.metadata().id
        for key in dict.fromkeys((clusters, None)):
            held = self._following.pop(key, None)
            is_same = held is not None and (held.table_id, held.begin) == (table_id, begin.version)
            if held is None or not is_same or not held.since <= at <= held.until or held.table_version > version:
                continue
            newer = held if held.table_version == version else self._with_newer(held, changes, version)
            if newer is not None:
                self._hold_changes(newer)
                return newer.of(clusters)
        since, until = at - _BACK, at + _AHEAD
        rows = self._changes(changes, begin.version, until, clusters)
        had_occurred = pc.less_equal(rows["occurred_not_after"], pa.scalar(since, _OCCURRED))
        early, late = rows.filter(had_occurred), rows.filter(pc.invert(had_occurred))
        newest = newest_of_each(early)
        snapshot = _applied(begin.snapshot, early, newest).finish(begin.version, since, 0)
        upto = max(begin.version, pc.max(early["version"]).as_py() or BEFORE_FIRST)
        keys = _without_nulls(newest.select([*_KEY, *_PLACE]))
        made = _Following(table_id, version, begin.version, clusters, since, until, snapshot, upto, keys, late)
        made = made._replace(rows=made.after(late))
        self._hold_changes(made)
        return made

    def _hold_changes(self, held: _Following) -> None:
        """Keep what was asked for last: of all clusters, and of one after the other."""
        self._following[held.clusters] = held
        while self._following and (
            len(self._following) > FOLLOWED or sum(each.nbytes for each in self._following.values()) > BYTES_KEPT
        ):
            self._following.popitem(last=False)

    def _with_newer(self, held: _Following, changes: DeltaTable, version: int) -> _Following | None:
        """Return the same with the changes of later versions; None if some had occurred before its state."""
        fresh = self._changes(changes, held.table_version, held.until, held.clusters)
        if pc.any(pc.less_equal(fresh["occurred_not_after"], pa.scalar(held.since, _OCCURRED))).as_py():
            return None
        return held._replace(table_version=version, rows=pa.concat_tables([held.rows, fresh]))

    def _changes(self, changes: DeltaTable, after: int, at: int, clusters: Clusters) -> pa.Table:
        """Read the changes after a version that had occurred by a moment."""
        near = {"version": ColumnBounds(lowest=after + 1), "occurred_not_after": ColumnBounds(highest=at)}
        where = ALL if clusters is None else where_in(clusters)
        return query(
            self.copies.holding(changes, near),
            f"SELECT {quoted(_READ)} FROM rows WHERE subject <> 'source' AND version > {after} "  # noqa: S608 - numbers
            f"AND occurred_not_after <= {MOMENT.format(at)} AND {where}",
        ).cast(_TYPES)


def _without_nulls(rows: pa.Table) -> pa.Table:
    """Return keys that can be joined: to Arrow, no null equals another one."""
    filled = {"topic_id": "", "partition": -1, "broker": -1}
    columns = {name: rows[name] for name in rows.column_names}
    return pa.table(columns | {name: pc.fill_null(rows[name], value) for name, value in filled.items()})


def _applied(snapshot: ReplicationSnapshot, rows: pa.Table, newest: pa.Table | None = None) -> SnapshotDraft:
    """Return a state with changes; ``newest``: the newest of each key, if they are chosen already."""
    draft = SnapshotDraft(snapshot, keeps_counters=False)
    newest = newest_of_each(rows) if newest is None else newest
    if snapshot.clusters:
        decode_changed(snapshot, newest)
        apply_changes(draft, newest)
    else:
        put_first(draft, newest)
    count_isr_removals(draft, rows, StateVersions())
    return draft


def put_first(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Put a whole state, one row of each key, into a draft of nothing."""
    is_partition = pc.equal(rows["subject"], Subject.PARTITION.value)
    apply_changes(draft, rows.filter(pc.invert(is_partition)))
    is_deleted = pc.fill_null(pc.struct_field(rows["after"], "is_deleted"), fill_value=False)
    deleted = _partitions(rows.filter(pc.and_(is_partition, is_deleted)))
    live = numbered(rows, ["cluster_id", "topic_id", "partition"]).filter(pc.and_not(is_partition, is_deleted))
    put_stored(draft, _partitions(_taken(rows, live.sort_by(STORED_ORDER)["row"].combine_chunks())), deleted)


def _taken(rows: pa.Table, places: pa.Array) -> pa.Table:
    """Return rows in an order. A row has every value of a partition: they are copied once, and only if they must be."""
    if len(places) and pc.all(pc.equal(pc.pairwise_diff(places), 1)).as_py() is not False:
        return rows.slice(places[0].as_py(), len(places))
    return rows.take(places)


def _partitions(rows: pa.Table) -> pa.Table:
    """Return rows about partitions in the columns of ``partition_state``."""
    after = rows["after"].combine_chunks()
    columns = dict(zip((field.name for field in after.type), after.flatten(), strict=True))
    return pa.table({name: columns[name] if name in columns else rows[name] for name in PartitionState._fields})


def _of_clusters(begin: _Begin, clusters: Clusters) -> _Begin:
    """Return a state of more clusters without the others."""
    if clusters is None:
        return begin
    chosen = {key: each for key, each in begin.snapshot.clusters.items() if key in clusters}
    return begin._replace(snapshot=replace(begin.snapshot, clusters=chosen))


def newest_of_each(rows: pa.Table) -> pa.Table:
    """Return the newest row of each key, in the order of their commits; ``source`` rows have no key here."""
    order = pc.sort_indices(rows, sort_keys=_ORDER)
    last = last_of_each(rows.select(_KEY).take(order), _KEY)["row"].combine_chunks()
    return rows.take(order.take(last.take(pc.sort_indices(last))))


# Partitions of a base as the rows that were read: a topic becomes objects when something first asks for it.
# Most pages of the past show a few topics of very many: the rest is counted by column and stays columns.


STORED_ORDER: Final = [("cluster_id", "ascending"), ("topic_id", "ascending"), ("partition", "ascending")]


class _Rows:
    """Rows of one topic of a base; its partitions are decoded all at once, or some of them before that."""

    __slots__ = ("begin", "count", "is_whole", "partitions", "some", "table")

    def __init__(self, table: pa.Table, begin: int, count: int, *, is_whole: bool) -> None:
        """Keep the place of a topic; ``is_whole``: its partitions are 0, 1, 2 and so on, in this order."""
        self.table, self.begin, self.count, self.is_whole = table, begin, count, is_whole
        self.some: dict[int, PartitionState] = {}
        self.partitions: dict[int, PartitionState] | None = None

    def all(self) -> dict[int, PartitionState]:
        """Return every partition by its number."""
        partitions = self.partitions
        if partitions is None:
            rows = self.table.slice(self.begin, self.count)
            partitions = self.partitions = {each.partition: each for each in states_of(PartitionState, rows)}
        return partitions

    def __contains__(self, number: object) -> bool:
        """Return whether a partition is one of them."""
        return 0 <= number < self.count if self.is_whole and isinstance(number, int) else number in self.all()

    def numbers(self) -> Iterable[int]:
        """Return the numbers, in their order."""
        return range(self.count) if self.is_whole else self.all()


class StoredTopic(MutableMapping[int, PartitionState]):
    """The partitions of one topic by number: those of a base but for what a draft has set since. For any thread."""

    __slots__ = ("_changed", "_gone", "rows")

    def __init__(
        self, rows: _Rows, changed: Mapping[int, PartitionState] = MappingProxyType({}), gone: Iterable[int] = ()
    ) -> None:
        """Begin with the rows of a base, some of which were replaced or are gone."""
        self.rows, self._changed, self._gone = rows, dict(changed), set(gone)

    def __copy__(self) -> StoredTopic:
        """Return a copy that a draft may change."""
        return StoredTopic(self.rows, self._changed, self._gone)

    def __getitem__(self, number: int) -> PartitionState:
        """Return a partition by its number."""
        if number in self._changed:
            return self._changed[number]
        if number in self._gone or number not in self.rows:
            raise KeyError(number)
        return self.rows.some.get(number) or self.rows.all()[number]

    def __setitem__(self, number: int, partition: PartitionState) -> None:
        """Set a partition of a draft."""
        self._changed[number] = partition
        self._gone.discard(number)

    def __delitem__(self, number: int) -> None:
        """Take a partition out of a draft."""
        if number not in self:
            raise KeyError(number)
        self._changed.pop(number, None)
        if number in self.rows:
            self._gone.add(number)

    def __contains__(self, number: object) -> bool:
        """Return whether there is such a partition."""
        return number in self._changed or (number not in self._gone and number in self.rows)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers."""
        yield from (number for number in self.rows.numbers() if number not in self._gone)
        yield from (number for number in self._changed if number not in self.rows)

    def __len__(self) -> int:
        """Return how many there are."""
        if self.rows.is_whole and (not self._changed or max(self._changed) < self.rows.count):  # almost always
            return self.rows.count - len(self._gone)
        return self.rows.count - len(self._gone) + sum(number not in self.rows for number in self._changed)


def put_stored(draft: SnapshotDraft, live: pa.Table, deleted: pa.Table) -> None:
    """Put the partitions of a base into a draft that has no partitions yet, after its clusters.

    ``live`` are in ``STORED_ORDER``, each once; ``deleted`` are tombstones.
    """
    live = live.combine_chunks()
    for rows in (live, deleted):
        for row in rows.select(["cluster_id", "cluster"]).group_by(["cluster_id", "cluster"]).aggregate([]).to_pylist():
            draft.cluster(row["cluster_id"], row["cluster"])
    for cluster_id, shapes, totals in counted(live):
        draft.drafts[cluster_id].put_counted(shapes, totals)
    _put_topics(draft, live)
    for partition in states_of(PartitionState, live.filter(_are_unsettled(live))):
        draft.drafts[partition.cluster_id].put_unsettled(partition)
    for partition in states_of(PartitionState, live.filter(_are_recent(draft, live))):
        draft.drafts[partition.cluster_id].put_recent(partition)
    for partition in states_of(PartitionState, deleted):
        draft.put_partition(partition)


def decode_changed(snapshot: ReplicationSnapshot, changes: pa.Table) -> None:
    """Decode the partitions of a snapshot that some changes are about, at once: one by one costs many times as much."""
    names = ("cluster_id", "topic_id", "partition")
    waiting: list[tuple[_Rows, int]] = []
    for cluster_id, topic_id, number in zip(*(changes[name].to_pylist() for name in names), strict=True):
        cluster = snapshot.clusters.get(cluster_id)
        topic = None if cluster is None else cluster.topics.get(topic_id)
        if topic is not None and isinstance(topic.partitions, StoredTopic):
            rows = topic.partitions.rows
            if rows.is_whole and rows.partitions is None and number in rows and number not in rows.some:
                waiting.append((rows, number))
    if waiting:
        places = pa.array([rows.begin + number for rows, number in waiting], pa.int64())
        for (rows, number), partition in zip(
            waiting, states_of(PartitionState, waiting[0][0].table.take(places)), strict=True
        ):
            rows.some[number] = partition


def _put_topics(draft: SnapshotDraft, live: pa.Table) -> None:
    if not live.num_rows:
        return
    topics: dict[str, dict[str, TopicPartitions]] = {}
    begins = _begins(live, ("cluster_id", "topic_id"))
    names = (live[name].take(begins).to_pylist() for name in ("cluster_id", "topic_id", "topic"))
    places = begins.to_pylist()
    ends = [*places[1:], live.num_rows]
    last = live["partition"].take(pa.array([end - 1 for end in ends], pa.int64())).to_pylist()
    for begin, end, number, cluster_id, topic_id, name in zip(places, ends, last, *names, strict=False):
        stored = StoredTopic(_Rows(live, begin, end - begin, is_whole=number == end - begin - 1))
        topics.setdefault(cluster_id, {})[topic_id] = TopicPartitions(topic_id, name, stored)
    for cluster_id, of_cluster in topics.items():
        draft.drafts[cluster_id].put_topics(of_cluster)


def _begins(rows: pa.Table, names: Iterable[str]) -> pa.Array:
    """Return the number of each row of which a value differs from the row before."""
    is_begin = pa.array([False] * (rows.num_rows - 1), pa.bool_())
    for name in names:
        column = rows[name].combine_chunks()
        is_begin = pc.or_(is_begin, pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)))
    return pa.concat_arrays([pa.array([0], pa.int64()), pc.add(pc.indices_nonzero(is_begin).cast(pa.int64()), 1)])


def _are_unsettled(rows: pa.Table) -> Any:  # noqa: ANN401 - pyarrow ships no types
    is_unsettled = pc.or_(rows["is_offline"], rows["is_under_replicated"])
    is_unsettled = pc.or_(is_unsettled, pc.fill_null(rows["is_under_min_isr"], fill_value=False))
    for name in ("adding_replicas", "removing_replicas"):
        is_unsettled = pc.or_(is_unsettled, pc.greater(pc.fill_null(pc.list_value_length(rows[name]), 0), 0))
    return pc.fill_null(is_unsettled, fill_value=False)


def _are_recent(draft: SnapshotDraft, rows: pa.Table) -> Any:  # noqa: ANN401 - as above
    """Return, per row, whether a partition changed lately by the clock of its cluster."""
    clusters = rows["cluster_id"].combine_chunks().dictionary_encode()
    since = [draft.drafts[each].watermark - RECENT_MICROS for each in clusters.dictionary.to_pylist()]
    oldest = pa.array(since, pa.int64()).take(clusters.indices)
    return pc.fill_null(pc.greater_equal(rows["changed_at"].cast(pa.int64()), oldest), fill_value=False)
