"""States of layout 1 whose changes had expired: layout 2 has a row for each of them.

Layout 1 deleted whole days of changes, the newest one of a key, too: its state was in the state tables alone. Layout 2
rebuilds the state as of a version from the changes, so what they lack comes from the state tables, as a baseline.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streaming.contracts.events import Subject
from streaming.contracts.observations import Channel
from streaming.contracts.tables import (
    BROKER_STATE_TABLE,
    CLUSTER_STATE_TABLE,
    PARTITION_CHANGES,
    PARTITION_STATE_TABLE,
    SOURCE_PROGRESS,
)
from streaming.delta.definitions import arrow_schema
from streaming.delta.queries import query, quoted
from streaming.delta.state_reader import as_of_version
from streaming.delta.storage import open_table

if TYPE_CHECKING:
    from pathlib import Path

    from streaming.contracts.columns import Table

_CHANGES: Final = arrow_schema(PARTITION_CHANGES)
_IDENTITY: Final = ("cluster_id", "cluster", "topic_id", "topic", "partition", "broker", "source", "authority")
# Table -> whose state, and the struct of ``partition_changes`` that holds it.
_STATES: Final[tuple[tuple[Table, Subject, str], ...]] = (
    (PARTITION_STATE_TABLE, Subject.PARTITION, "after"),
    (BROKER_STATE_TABLE, Subject.BROKER, "broker_after"),
    (CLUSTER_STATE_TABLE, Subject.CLUSTER, "cluster_after"),
    (SOURCE_PROGRESS, Subject.SOURCE, "source_after"),
)
_SOURCE: Final = "upgrade:layout-2"
"""The source of the rows that are not about a source: no source reported them now."""


_LAST: Final = 1 << 40
"""Ordinals from here on come after every change of the same version."""


class ExpiredStates:
    """The rows of the state tables as changes, read before others are: delta-rs must not be called while it writes.

    Attributes:
        rows: one per key, at the version of the change log up to which its table was computed.
        version: from here on the changes, together with ``rows``, hold the whole state.
    """

    def __init__(self, directory: Path, first_day: dt.date) -> None:
        """Read the state tables.

        Args:
            directory: of the tables.
            first_day: the first one that has not expired. The rows are of the day before it: as the newest ones of
                their keys they stay, until there are newer ones.
        """
        self._midnight = pa.scalar(first_day).cast(_CHANGES.field("committed_at").type)
        self._day = first_day - dt.timedelta(days=1)
        self.rows, self.version = [_CHANGES.empty_table()], 0
        for state in _STATES:
            self._read(directory, *state)

    def _read(self, directory: Path, table: Table, subject: Subject, struct: str) -> None:
        kind = _CHANGES.field(struct).type
        opened = open_table(directory / table.name)
        if opened is None:
            return
        present = {field.name for field in opened.schema().fields}  # it may lack the columns of later layouts
        names = dict.fromkeys(name for name in (*_IDENTITY, *_names(kind)) if name in present)
        where = f"channel = '{Channel.REPLICATION}'" if table is SOURCE_PROGRESS else "true"
        rows = query(opened, f"SELECT {quoted(names)} FROM rows WHERE {where}").combine_chunks()  # noqa: S608 - our own names
        state = pa.StructArray.from_arrays(
            [
                rows[field.name].combine_chunks().cast(field.type)
                if field.name in names
                else pa.nulls(rows.num_rows, field.type)
                for field in kind
            ],
            fields=list(kind),
        )
        constant = {
            "date": self._day, "version": as_of_version(opened), "committed_at": self._midnight,
            "occurred_not_before": self._midnight, "occurred_not_after": self._midnight, "collected_at": self._midnight,
            "subject": subject.value, "is_baseline": True, "missed": 0, "source": _SOURCE,
        }  # fmt: skip
        columns = {name: pa.repeat(pa.scalar(value), rows.num_rows) for name, value in constant.items()}
        columns |= {name: rows[name].combine_chunks() for name in _IDENTITY if name in rows.column_names}
        first = _LAST + sum(part.num_rows for part in self.rows)
        columns |= {struct: state, "ordinal": pa.array(range(first, first + rows.num_rows), pa.int64())}
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else _nothing(field, rows.num_rows)
            for field in _CHANGES
        ]
        self.rows.append(pa.Table.from_arrays(arrays, schema=_CHANGES))
        self.version = max(self.version, as_of_version(opened))


def _names(kind: pa.StructType) -> list[str]:
    return [field.name for field in kind]


def _nothing(field: pa.Field, count: int) -> pa.Array:
    """Return empty lists, as a change without any has them; null in all other columns."""
    if not pa.types.is_list(field.type):
        return pa.nulls(count, field.type)
    return pa.ListArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), count + 1), pa.nulls(0, field.type.value_type), type=field.type
    )
