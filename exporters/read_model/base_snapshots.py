"""The state at a moment from ``past_states``: the newest base that had wholly occurred by then, and what came after it.

Theory: ``streaming.delta.changes.bases``. Bases that were read stay in memory, and so do the changes that followed the
last one: the next moment costs what is applied to it alone.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from exporters.read_model.draft import SnapshotDraft
from exporters.read_model.kept_rows import KeptTable
from exporters.read_model.snapshot import ReplicationSnapshot
from exporters.read_model.stored_partitions import decode_changed, put_stored
from streaming.contracts.events import Subject
from streaming.contracts.state import PartitionState
from streaming.contracts.tables import PARTITION_CHANGES, PAST_STATES
from streaming.delta.changes.bases import bases_of, read_base
from streaming.delta.changes.history import EXPIRED_VERSION
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.queries import ALL, last_of_each, query, quoted, where_in
from streaming.delta.log.table_log import BEFORE_FIRST
from streaming.delta.state import StateVersions, apply_changes, count_isr_removals
from streaming.errors import IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
_MOMENT: Final = "arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
_KEY: Final = ["subject", "cluster_id", "topic_id", "partition", "broker"]
_READ: Final = (
    *_KEY, "cluster", "topic", "version", "ordinal", "occurred_not_after", "cause", "left_isr",
    "after", "broker_after", "cluster_after",
)  # fmt: skip
_TYPES: Final = pa.schema([arrow_schema(PARTITION_CHANGES).field(name) for name in _READ])
_ORDER: Final = [("version", "ascending"), ("ordinal", "ascending")]
Clusters = frozenset[str] | None


class _Begin(NamedTuple):
    """A state that the changes after a version are applied to; of a base the newest time of its changes."""

    version: int
    snapshot: ReplicationSnapshot
    partitions: int = 0


_NOTHING: Final = _Begin(BEFORE_FIRST, ReplicationSnapshot())


class _Following(NamedTuple):
    """The changes after a base, as they were read from a version of a table, for moments of some hours."""

    table_id: int
    table_version: int
    begin: int
    clusters: Clusters
    since: int
    until: int
    rows: pa.Table


class BaseSnapshots:
    """Reads bases and the changes after them. Not for more than one thread at once."""

    def __init__(self, tables: Place) -> None:
        """Read nothing yet; the folder of the tables need not exist."""
        self._tables = tables
        self._bases = KeptTable(tables, PAST_STATES)
        self._begins: OrderedDict[tuple[Base, Clusters], _Begin] = OrderedDict()
        self._following: _Following | None = None
        self._damaged: set[str] = set()

    def at(self, changes: DeltaTable, at: int, clusters: Collection[str] | None) -> tuple[SnapshotDraft, int]:
        """Return the state at a moment, and the newest version that it has a change of.

        Args:
            changes: the change log.
            at: UTC microseconds.
            clusters: ids; None: all.

        Raises:
            TableUnreadable: the change log cannot be read.
        """
        chosen = None if clusters is None else frozenset(clusters)
        begin = self._begin(int(changes.version()), at, chosen)
        rows = self._rows(changes, begin.version, at, chosen)
        draft = SnapshotDraft(begin.snapshot)
        newest = newest_of_each(rows)
        if begin is _NOTHING:
            put_first(draft, newest)
        else:
            decode_changed(begin.snapshot, newest)
            apply_changes(draft, newest)
        if begin.version > BEFORE_FIRST or changes.transaction_version(EXPIRED_VERSION) is None:
            count_isr_removals(draft, rows, StateVersions())
        else:
            for cluster in draft.every_cluster():
                cluster.drop_isr_removals()
        return draft, max(begin.version, pc.max(rows["version"]).as_py() or BEFORE_FIRST)

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
            opened = self._bases.opened()
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

    def _rows(self, changes: DeltaTable, begin: int, at: int, clusters: Clusters) -> pa.Table:
        """Return the changes after a version that had occurred by a moment, in any order."""
        held, version, table_id = self._following, int(changes.version()), changes.metadata().id
        is_same = held is not None and (held.table_id, held.begin, held.clusters) == (table_id, begin, clusters)
        if held is None or not is_same or not held.since <= at <= held.until or held.table_version > version:
            since, until = at - _BACK, at + _AHEAD
            rows = _thinned(_changes(changes, begin, until, clusters), since)
            held = _Following(table_id, version, begin, clusters, since, until, rows)
        elif held.table_version < version:  # they may have occurred before
            fresh = _changes(changes, held.table_version, held.until, clusters)
            rows = _thinned(pa.concat_tables([held.rows, fresh]), held.since)
            held = held._replace(table_version=version, rows=rows)
        self._following = held if held.rows.nbytes <= BYTES_KEPT else None
        moment = pa.scalar(at, held.rows.schema.field("occurred_not_after").type)
        return held.rows.filter(pc.less_equal(held.rows["occurred_not_after"], moment))


def put_first(draft: SnapshotDraft, rows: pa.Table) -> None:
    """Put a whole state, one row of each key, into a draft of nothing."""
    is_partition = pc.equal(rows["subject"], Subject.PARTITION.value)
    apply_changes(draft, rows.filter(pc.invert(is_partition)))
    put_stored(draft, _partitions(rows.filter(is_partition)))


def _partitions(rows: pa.Table) -> pa.Table:
    """Return rows about partitions in the columns of ``partition_state``."""
    after = rows["after"].combine_chunks()
    columns = dict(zip((field.name for field in after.type), after.flatten(), strict=True))
    return pa.table({name: columns[name] if name in columns else rows[name] for name in PartitionState._fields})


def _thinned(rows: pa.Table, since: int) -> pa.Table:
    """Leave out the rows of clusters that others replace by a moment: who votes is written down each minute."""
    had_occurred = pc.less_equal(rows["occurred_not_after"], pa.scalar(since, rows["occurred_not_after"].type))
    is_old = pc.and_(had_occurred, pc.equal(rows["subject"], Subject.CLUSTER.value))
    return pa.concat_tables([rows.filter(pc.invert(is_old)), newest_of_each(rows.filter(is_old))])


def _of_clusters(begin: _Begin, clusters: Clusters) -> _Begin:
    """Return a state of more clusters without the others."""
    if clusters is None:
        return begin
    chosen = {key: each for key, each in begin.snapshot.clusters.items() if key in clusters}
    return begin._replace(snapshot=replace(begin.snapshot, clusters=chosen))


def _changes(changes: DeltaTable, after: int, at: int, clusters: Clusters) -> pa.Table:
    where = ALL if clusters is None else where_in(clusters)
    return query(
        changes,
        f"SELECT {quoted(_READ)} FROM rows WHERE subject <> 'source' AND version > {after} "  # noqa: S608 - numbers
        f"AND occurred_not_after <= {_MOMENT.format(at)} AND {where}",
    ).cast(_TYPES)


def newest_of_each(rows: pa.Table) -> pa.Table:
    """Return the newest row of each key, in the order of their commits; ``source`` rows have no key here."""
    order = pc.sort_indices(rows, sort_keys=_ORDER)
    last = last_of_each(rows.select(_KEY).take(order), _KEY)["row"].combine_chunks()
    return rows.take(order.take(last.take(pc.sort_indices(last))))
