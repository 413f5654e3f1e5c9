"""The writer of ``partition_changes``: one commit per batch, exactly at version N + 1.

A commit contains, atomically, the changes, the last bus position of every source, and the writer's generation; the
loser of a race stops (see ``writer``). Positions say what was applied (see ``log.commit``).
"""

from __future__ import annotations

from functools import partial
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.contracts.blocks import IDENTITY_IN_BLOCK
from streaming.contracts.columns import COMMIT_ORDER, OCCURRENCE, PARTITION_IDENTITY
from streaming.contracts.events import Subject
from streaming.contracts.identifiers import DAY, LogPosition
from streaming.contracts.tables import PARTITION_CHANGES
from streaming.delta.changes.history import expire_changes
from streaming.delta.log.commit import NO_LOG_IDS, applied_position, moved
from streaming.delta.log.definitions import arrow_schema
from streaming.delta.log.maintenance import KEEP_ALL, Apart, AppendMaintenance, RetentionPolicy
from streaming.delta.log.writer import Writer
from streaming.delta.state import CONFIG_COLUMNS, config_columns, states_to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from streaming.changes.state import Change, Event
    from streaming.contracts.observations import Observation
    from streaming.contracts.state import PartitionState
    from streaming.delta.store.place import Place

HEARTBEATS: Final = Apart("subject", Subject.SOURCE.value)
"""Most rows say only how far a source was applied: who looks for changes need not open their files."""
_NO_LOG_ID: Final = 0  # replaces a stored log id once nothing of that log is applied


class ChangeLog:
    """The only writer of ``partition_changes``. Opening it takes the next generation."""

    def __init__(self, directory: Place, policy: RetentionPolicy = KEEP_ALL) -> None:
        """Open or create the table below a directory.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._writer = Writer.opened(directory, PARTITION_CHANGES)
        self._applied: dict[str, LogPosition] = {}
        self._clock = policy.clock
        expire = partial(expire_changes, directory)
        self._maintenance = AppendMaintenance(self._writer, expire, policy, HEARTBEATS)

    @property
    def version(self) -> int:
        """The version that the next commit builds on."""
        return self._writer.version

    def at(self, source: str) -> LogPosition:
        """Return where the last applied record of a source is, as stored, or as committed since."""
        if source not in self._applied:
            log_id = self._writer.transaction_version(f"log/{source}")
            self._applied[source] = LogPosition(applied_position(self._writer, source), log_id or None)
        return self._applied[source]

    def commit(self, rows: pa.Table, positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS) -> int:
        """Append changes and move the last applied position of each source, at exactly the next version; return it.

        Raises:
            TableRefused: another writer came first; nothing was written.
        """
        # The version is certain before the commit: the writer commits at exactly this version or not at all.
        numbered = in_commit(rows, self.version + 1, self._clock())
        return self.commit_files(self._writer.written(numbered), positions, log_ids)

    def commit_files(
        self, added: Iterable[Mapping[str, Any]], positions: Mapping[str, int], log_ids: Mapping[str, int] = NO_LOG_IDS
    ) -> int:
        """Do as :meth:`commit` with files whose rows carry the next version; ``added``: their ``add`` actions."""
        logs = {f"log/{source}": log_ids.get(source, _NO_LOG_ID) for source in positions}
        version = self._writer.add_files(
            added,
            (),
            {
                **moved(positions),
                **{key: log_id for key, log_id in logs.items() if log_id or self._writer.transaction_version(key)},
            },
        )
        self._applied |= {source: LogPosition(position, log_ids.get(source)) for source, position in positions.items()}
        self._maintenance.after_commit()
        return version

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the table."""
        self._writer.check_ours()


# Changes as rows of ``partition_changes``.


SCHEMA: Final = arrow_schema(PARTITION_CHANGES)
OF_COMMIT: Final = (*(column.name for column in COMMIT_ORDER), "committed_at")
"""The columns that the commit adds."""
UNCOMMITTED: Final = pa.schema([field for field in SCHEMA if field.name not in OF_COMMIT])


def changes_to_arrow(changes: Iterable[Change]) -> pa.Table:
    """Write changes as rows of ``partition_changes``, in their order, without the columns that the commit adds."""
    rows = list(changes)
    listed = _listed_to_arrow([change for change in rows if change.listed is not None])
    others = _to_arrow([change for change in rows if change.listed is None])
    runs = [UNCOMMITTED.empty_table()]
    written = {True: 0, False: 0}
    for is_listed, run in groupby(rows, lambda change: change.listed is not None):
        count = sum(change.count for change in run)
        runs.append((listed if is_listed else others).slice(written[is_listed], count))
        written[is_listed] += count
    return pa.concat_tables(runs).combine_chunks()


def _to_arrow(rows: Sequence[Change]) -> pa.Table:
    observations, partitions = [change.observation for change in rows], [change.after for change in rows]
    columns = [_column(field, rows, observations, partitions) for field in UNCOMMITTED]
    return pa.Table.from_arrays(columns, schema=UNCOMMITTED)


def _listed_to_arrow(rows: Sequence[Change]) -> pa.Table:
    """Write partitions of a first report; what a block or a shape has in common is converted once.

    Partitions of a block differ in number and state, those of a shape in ``IDENTITY_IN_BLOCK`` and their topic.
    """
    listed = [change.listed for change in rows if change.listed is not None]
    shapes: dict[int, tuple[int, PartitionState]] = {}
    shape = [shapes.setdefault(id(each), (len(shapes), each))[0] for block in listed for each in block.shapes]
    block = chain.from_iterable(repeat(number, len(each)) for number, each in enumerate(listed))
    identities = {
        name: list(chain.from_iterable(each.identities[place] for each in listed))
        for place, name in enumerate(IDENTITY_IN_BLOCK)
    }
    kind = UNCOMMITTED.field("after").type
    after = states_to_arrow([each for _, each in shapes.values()], kind).take(pa.array(shape, pa.int64()))
    fields = [
        pa.array(identities[field.name], field.type) if field.name in identities else column
        for field, column in zip(kind, after.flatten(), strict=True)
    ]
    own = {
        "partition": pa.array(identities["partition"], UNCOMMITTED.field("partition").type),
        "after": pa.StructArray.from_arrays(fields, fields=list(kind)),
    }
    firsts = _to_arrow([next(change.singly()) for change in rows])
    shared = firsts.take(pa.array(block, pa.int64()))
    return pa.Table.from_arrays([own.get(name, shared[name]) for name in UNCOMMITTED.names], schema=UNCOMMITTED)


def in_commit(rows: pa.Table, version: int, committed_at: int, first: int = 0) -> pa.Table:
    """Add the columns of a commit to its rows, the first of which has the ordinal ``first``."""
    count = rows.num_rows
    columns = {
        **{name: rows[name] for name in rows.column_names},
        "version": pa.repeat(pa.scalar(version, pa.int64()), count),
        "ordinal": pa.array(range(first, first + count), pa.int64()),
        "committed_at": pa.repeat(pa.scalar(committed_at, pa.int64()), count).cast(SCHEMA.field("committed_at").type),
    }
    return pa.Table.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _column(
    field: pa.Field,
    rows: Sequence[Change],
    observations: Sequence[Observation],
    partitions: Sequence[PartitionState | None],
) -> pa.Array:
    """Write one column; this takes a tenth of the time of writing row by row."""
    if field.name == "cluster_after":
        configs = [config_columns(change.configs) for change in rows if change.cluster_after is not None]
        others = {name: [each[name] for each in configs] for name in CONFIG_COLUMNS}
        return states_to_arrow([change.cluster_after for change in rows], field.type, **others)
    if field.name in _OF_CHANGE:
        return pa.array([_OF_CHANGE[field.name](change) for change in rows], field.type)
    if field.name == "date":
        days = [moment // DAY for moment in _values(observations, "occurred_not_after")]
        return pa.array(days, pa.int32()).cast(field.type)
    owners = partitions if field.name in _OF_PARTITION else observations if field.name in _OF_OBSERVATION else rows
    values = _values(owners, field.name)
    return states_to_arrow(values, field.type) if field.name in _STATES else pa.array(values, field.type)


def _values(objects: Sequence[Any], name: str) -> list[Any]:
    """Read one attribute of many objects; None where there is no object."""
    value_of = attrgetter(name)
    if None in objects:
        return [None if each is None else value_of(each) for each in objects]
    return list(map(value_of, objects))


def _event(event: Event) -> dict[str, Any]:
    return {
        "event_id": event.event_id,
        "event": event.event,
        "event_broker": event.event_broker,
        "detail": event.detail,
    }


_STATES: Final = frozenset({"before", "after", "broker_after", "source_after"})
_OF_OBSERVATION: Final = frozenset({"cluster_id", "source_kind", "sequence", *(column.name for column in OCCURRENCE)})
_OF_PARTITION: Final = frozenset(column.name for column in PARTITION_IDENTITY)
_OF_CHANGE: Final[Mapping[str, Callable[[Change], Any]]] = {
    "broker": lambda change: None if change.broker_after is None else change.broker_after.broker,
    "offset": lambda change: getattr(change.observation, "metadata_offset", None),
    "events": lambda change: [_event(event) for event in change.events],
}
