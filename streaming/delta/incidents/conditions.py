"""The ``conditions`` table: the spells of conditions, committed before the incidents that they follow with.

Spells that last, and those that ended not long ago, are in files that each write replaces; older ones are appended.
So a write costs what lasts, not what was.
"""

# Theory of operation
#
# Spells follow from the same rows as incidents, so both tables must stand at the same rows when a fold continues. Two
# tables have two commits. The first is that of ``conditions``; the commit of ``incidents`` names it (``COMMITTED``). A
# start after a kill between the two finds a table of conditions that is newer than its name there, and goes back to the
# commit of that name, whose files are still there. A table that is older, or whose old files are gone, was brought back
# alone: the spells are then made to agree with what partitions, brokers and incidents are, and begin when these say
# (``IncidentsTable``).
#
# Invariant: whatever was killed, the table has the rows that an undisturbed fold gives it.
# tests/delta/test_conditions.py.

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streaming.contracts.conditions import RECENT, Spell
from streaming.contracts.identifiers import DAY
from streaming.contracts.tables import CONDITIONS, PARTITION_CHANGES
from streaming.delta.incidents.closed import within_history
from streaming.delta.log.cluster_files import read_files
from streaming.delta.log.definitions import arrow_schema, rows_to_arrow
from streaming.delta.log.maintenance import Maintenance, RetentionPolicy, expires_by
from streaming.delta.log.queries import plain
from streaming.delta.log.storage import open_table
from streaming.delta.log.writer import Writer
from streaming.delta.state import as_of_version
from streaming.errors import TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from streaming.delta.store.place import Place

COMMITTED: Final = "conditions"
"""Transaction of ``incidents``: 1 + the version of the change log that the commit of ``conditions`` before it has."""
FILES_BEFORE_MERGING: Final = 32
_NEVER: Final = -1
_SCHEMA: Final = arrow_schema(CONDITIONS)


class ConditionsTable:
    """The only writer of ``conditions``, owned by that of ``incidents``."""

    def __init__(self, directory: Place, policy: RetentionPolicy) -> None:
        """Open or create the table below a directory.

        Raises:
            TableRefused: the table is not ours, or newer than this program.
        """
        self._writer = Writer.opened(directory, CONDITIONS)
        self._path, self._policy = directory / CONDITIONS.name, policy
        self._maintenance = Maintenance(self._writer, policy)
        self._merged_on, self._is_changed = _NEVER, False
        self._read()

    def _read(self) -> None:
        """Read the files with spells that last, or ended not long ago."""
        rows = {name: self._spells_in([name]) for name in self._writer.files()}
        newest = _newest(spell for spells in rows.values() for spell in spells)
        self._files = {name for name, spells in rows.items() if any(_is_live(each, newest) for each in spells)}
        self._spells = {spell.condition_id: spell for name in self._files for spell in rows[name]}

    def _rows_of(self, files: Iterable[str]) -> pa.Table:
        return read_files(self._path, CONDITIONS, sorted(files))

    def _spells_in(self, files: Iterable[str]) -> list[Spell]:
        return [spell_of(row) for row in plain(self._rows_of(files)).to_pylist()]

    @property
    def committed(self) -> int:
        """The name of its newest commit, which the commit of ``incidents`` behind it stores."""
        return as_of_version(self._writer) + 1

    @property
    def spells(self) -> tuple[Spell, ...]:
        """Those that a fold needs to continue."""
        return tuple(self._spells.values())

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if a later writer has claimed the table."""
        self._writer.check_ours()

    def go_back(self, committed: int) -> bool:
        """Go back to a commit, if there are later ones; return whether the table has what it had then."""
        if self.committed > committed:
            with suppress(TableUnreadable, OSError):
                self._restore(committed)
        return self.committed == committed

    def _restore(self, committed: int) -> None:
        """Commit the files of an older version again.

        Raises:
            TableUnreadable: some of them are gone.
        """
        for version in range(self._writer.version - 1, -1, -1):
            older = open_table(self._path, version)
            if older is None or as_of_version(older) + 1 < committed:
                return
            if as_of_version(older) + 1 == committed:
                before = set(pa.table(older.get_add_actions(flatten=True))["path"].to_pylist())
                now = set(self._writer.files())
                rows = self._rows_of(before - now)
                added = [rows] if len(rows) else []
                self._writer.exchange(added, now - before, {PARTITION_CHANGES.name: committed - 1}, is_new_data=True)
                self._read()
                return

    def put(self, changed: Mapping[str, Spell | None], short_ids: Mapping[str, str | None]) -> None:
        """Take over spells that have changed, by id, for the next write; None: it was withdrawn.

        ``short_ids`` has those of incidents that were opened since the last time, or may still change.
        """
        if not changed:
            return
        names = {each.incident_id: each.short_id for each in self._spells.values() if each.short_id is not None}
        for condition_id, spell in changed.items():
            if spell is None:
                self._spells.pop(condition_id, None)
                continue
            name = spell.incident_id
            short_id = None if name is None else names.get(name) or short_ids.get(name)
            self._spells[condition_id] = spell._replace(short_id=short_id)
        self._is_changed = True

    def write(self, version: int) -> None:
        """Commit what has changed, as of a version of the change log; nothing if nothing has."""
        if not self._is_changed:
            return
        newest = _newest(self._spells.values())
        live = {key: spell for key, spell in self._spells.items() if _is_live(spell, newest)}
        final = rows_to_arrow([_row(spell, version) for key, spell in self._spells.items() if key not in live], _SCHEMA)
        final, merged = self._with_older(final)
        rows = [rows_to_arrow([_row(spell, version) for spell in live.values()], _SCHEMA), final]
        added = self._writer.exchange(
            [each for each in rows if len(each)],
            self._files | merged,
            {PARTITION_CHANGES.name: version},
            is_new_data=True,
        )
        self._files, self._spells, self._is_changed = set(added[0]) if live else set(), live, False
        self._maintenance.after_commit()

    def _with_older(self, final: pa.Table) -> tuple[pa.Table, set[str]]:
        """Return the final rows to write, and the files that they replace: files are merged, and rows expire, daily."""
        now = self._policy.clock()
        files = self._writer.files().keys() - self._files
        if self._merged_on == now // DAY and len(files) < FILES_BEFORE_MERGING:
            return final, set()
        self._merged_on = now // DAY
        rows = pa.concat_tables([self._rows_of(files), final])
        by = expires_by(self._writer, self._policy)
        return within_history(rows, "condition_id", self._policy.days, by), set(files)


def _newest(spells: Iterable[Spell]) -> defaultdict[str, int]:
    """Return the newest time of each cluster that its spells show."""
    newest: defaultdict[str, int] = defaultdict(int)
    for each in spells:
        newest[each.cluster_id] = max(newest[each.cluster_id], each.began_at, each.ended_at or 0)
    return newest


def _is_live(spell: Spell, newest: Mapping[str, int]) -> bool:
    """Return whether a spell lasts, or ended so shortly ago that it may still count."""
    return spell.ended_at is None or spell.ended_at > newest[spell.cluster_id] - RECENT


def _row(spell: Spell, version: int) -> dict[str, Any]:
    return {**spell._asdict(), "topics": list(spell.topics), "as_of_version": version}


def spell_of(row: Mapping[str, Any]) -> Spell:
    """Read a row of the table."""
    return Spell(**{**{name: row[name] for name in Spell._fields}, "topics": tuple(row["topics"] or ())})


def of_clusters(spells: Iterable[Spell], clusters: Collection[str] | None) -> Iterable[Spell]:
    """Return the spells of some clusters; None: of all."""
    return (each for each in spells if clusters is None or each.cluster_id in clusters)
