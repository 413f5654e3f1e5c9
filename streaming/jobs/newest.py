"""One micro-batch of a query that keeps the newest row of a key: positions, groups, transactions, broker metrics."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts import tables
from streaming.contracts.health import group_lag, records_lost_unread
from streaming.contracts.samples import (
    BrokerMetricObserved,
    GroupOffsetsObserved,
    LogDirectoryObserved,
    QuorumMemberObserved,
    ReplicaOffsetsObserved,
    TransactionObserved,
)
from streaming.delta.newest import NewestRows
from streaming.delta.quarantine import Quarantine
from streaming.jobs.batch import Applied, now
from streaming.jobs.understood import understand

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from streaming.contracts.columns import Table
    from streaming.contracts.observations import Channel, Observation

# Which samples go where. Every kind of a channel has its table.
TABLE_OF: Final[dict[type[Observation], Table]] = {
    ReplicaOffsetsObserved: tables.REPLICA_OFFSETS,
    GroupOffsetsObserved: tables.GROUP_OFFSETS,
    TransactionObserved: tables.TRANSACTIONS,
    LogDirectoryObserved: tables.LOG_DIRECTORIES,
    QuorumMemberObserved: tables.QUORUM_MEMBERS,
    BrokerMetricObserved: tables.BROKER_METRICS,
}


class NewestBatch:
    """Writes the newest row of each key to the tables of a channel. Their one writer."""

    def __init__(self, directory: Path, channel: Channel) -> None:
        """Open the tables and read what they hold.

        Raises:
            TableRefused: a table is not ours, or newer than this program.
        """
        self._channel = channel
        self._rows = {kind: NewestRows(directory, table) for kind, table in TABLE_OF.items() if kind.channel is channel}
        self._quarantine = Quarantine(directory, channel)

    @property
    def positions(self) -> dict[str, int]:
        """How far each source was applied, in every table."""
        heard = {source for rows in self._rows.values() for source in rows.positions}
        return {source: self.position(source) for source in heard}

    def position(self, source: str) -> int:
        """Give the position up to which every table has a source; -1 for none. What is newer may come again."""
        return min(rows.position(source) for rows in self._rows.values())

    def check_ours(self) -> None:
        """Look whether somebody else writes the tables since.

        Raises:
            TableRefused: somebody does.
        """
        for rows in self._rows.values():
            rows.check_ours()

    def apply(self, rows: pa.Table) -> Applied:
        """Apply one batch; samples that are older than what the tables hold change nothing."""
        began = time.perf_counter()
        understood = understand(rows, self, self._channel)
        self._quarantine.add(understood.refused, now())
        if understood.observations:
            for kind, table in self._rows.items():
                told = [_row(observed) for observed in understood.observations if type(observed) is kind]
                table.put(told, understood.positions)
        return Applied(
            observations=len(understood.observations),
            changes=len(understood.observations),
            refused=len(understood.refused),
            version=-1,
            seconds=time.perf_counter() - began,
        )


def _row(observed: Observation) -> dict[str, Any]:
    columns = TABLE_OF[type(observed)].column_names()
    row = {item.name: getattr(observed, item.name) for item in fields(observed) if item.name in columns}
    if isinstance(observed, GroupOffsetsObserved):
        row["lag"] = group_lag(observed.committed_offset, observed.high_watermark)
        row["records_lost"] = records_lost_unread(observed.committed_offset, observed.log_start_offset)
    return row
