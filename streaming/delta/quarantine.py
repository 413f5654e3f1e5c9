"""Unparseable records, kept verbatim, with the reason and their position on the bus."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from streaming.contracts.tables import QUARANTINE
from streaming.delta.change_log import NOTHING_APPLIED, applied_position, moved
from streaming.delta.definitions import arrow_schema
from streaming.delta.layouts import create_or_upgrade
from streaming.delta.maintenance import KEEP_ALL, Maintenance, RetentionPolicy
from streaming.delta.queries import read_all
from streaming.delta.table_log import newest_version
from streaming.delta.writer import APPEND, Writer, lost_race
from streaming.errors import TableRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from streaming.contracts.identifiers import Micros


# Every query writes this table: whoever comes second looks again and tries again. Of five that write all the time, one
# comes second twenty times in a row in a hundredth of all cases (0.8 to the 20th), a hundred times hardly ever.
TRIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """One refused record: where it stands on the bus, why, and its bytes."""

    source: str
    position: int
    reason: str
    raw: bytes | None


def reason_kind(reason: str) -> str:
    """Return the kind of a reason: one of a few words.

    >>> reason_kind("unknown kind 'dream'"), reason_kind("partition: leader is missing")
    ('unknown_kind', 'field')
    """
    return next((kind for kind, mark in _KINDS.items() if mark.search(reason)), "damaged")


_KINDS: Final = {
    "json": re.compile(r"^not (a )?JSON"),
    "schema_version": re.compile(r"^schema version "),
    "unknown_kind": re.compile(r"^unknown kind "),
    "undecodable": re.compile(r"^undecodable at its source"),
    "channel": re.compile(r" does not belong on the channel "),
    "field": re.compile(r"^\w+: \w+ is |has an unknown value "),
}


class Quarantine:
    """A writer of ``quarantine``, for one channel. A replayed record is not written twice."""

    def __init__(self, directory: Path, channel: str, policy: RetentionPolicy = KEEP_ALL) -> None:
        self._table = create_or_upgrade(directory, QUARANTINE)
        self._path = directory / QUARANTINE.name
        self._writer = Writer(self._table)
        # Neither compacted, because several streams append to it, nor expired: a record that could not be read stays
        # until somebody has looked at it.
        self._maintenance = Maintenance(self._table, self._path, policy)
        self._channel = channel
        self._there: dict[str, int] | None = None

    def refused_up_to(self, positions: Mapping[str, int]) -> Counter[str]:
        """Count the rows of each source of this channel, up to a position of it."""
        return Counter(source for source, position in self._rows() if position <= positions.get(source, -1))

    def _rows(self) -> list[tuple[str, int]]:
        rows = read_all(self._table).select(["channel", "source", "position"])
        ours = rows.filter(pc.equal(rows["channel"], self._channel))
        return list(zip(ours["source"].to_pylist(), ours["position"].to_pylist(), strict=True))

    def by_source(self) -> Counter[str]:
        """Count the rows of each source of this channel."""
        return Counter(source for source, _ in self._rows())

    def add(self, refused: Sequence[Refused], now: Micros) -> Counter[str]:
        """Append what is not there yet; return how many rows of each source those were.

        Raises:
            TableRefused: others wrote at every one of many tries.
        """
        outrun: TableRefused | None = None
        for _ in range(TRIES):
            try:
                fresh = self._fresh(refused)
                return self._append(fresh, now) if fresh else Counter()
            except TableRefused as error:
                outrun = error
        raise outrun or AssertionError("no try at all")

    def _append(self, fresh: Sequence[Refused], now: Micros) -> Counter[str]:
        rows = [{"channel": self._channel, **asdict(record), "quarantined_at": now} for record in fresh]
        newest: dict[str, int] = {}
        for record in fresh:
            log = self._log(record.source)
            newest[log] = max(newest.get(log, record.position), record.position)
        self._writer.write(pa.Table.from_pylist(rows, schema=_SCHEMA), APPEND, moved(newest))
        self._maintenance.after_commit()
        return Counter(record.source for record in fresh)

    def _fresh(self, refused: Sequence[Refused]) -> list[Refused]:
        """Leave out what is there already, whoever wrote it."""
        if not refused:
            return []
        try:
            self._table.update_incremental()
            applied = self._applied({record.source for record in refused})
        except DeltaError as error:
            # As the log lies there now: without a new version no update would read it again. It may expire meanwhile.
            with suppress(DeltaError):
                self._table.load_as_version(newest_version(self._path))
            raise lost_race(self._table.table_uri, "the log that it looked at has expired meanwhile") from error
        return [record for record in refused if record.position > applied[record.source]]

    def _applied(self, sources: set[str]) -> dict[str, int]:
        """Return up to which position each source has its refused records in the table."""
        if self._there is None:  # rows that the distributed mode wrote came with no position
            self._there = dict(sorted(self._rows()))
        return {
            source: max(applied_position(self._table, self._log(source)), self._there.get(source, NOTHING_APPLIED))
            for source in sources
        }

    def _log(self, source: str) -> str:
        return f"{self._channel}/{source}"


_SCHEMA: Final = arrow_schema(QUARANTINE)
