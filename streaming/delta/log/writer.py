"""One writer per table: each commit is made exactly on top of the version that its writer read last.

A commit is never rebased. If another writer has committed in between, this one must stop, because its rows were derived
from a version that is no longer the newest. Each commit carries its writer's generation, which distinguishes writers.
Depends on Delta's commits, on no row.
"""

# Theory of operation
#
# A writer makes version N + 1 by creating its log entry, which the store lets only one writer do. Everything else
# follows from that: no lock or lease decides who may write.
#
# A request that fails may have been carried out: the answer was lost, or a retry of the client met its own first try.
# So the writer reads entry N + 1 after every failure. If it has our generation, the commit was made. If it has another
# one, another writer exists, and this one stops. If the entry is absent, the writer creates it again, for a limited
# time; should the first request arrive even later, it finds the name taken by the same content.
#
# Expiry of the log makes an absent entry ambiguous. A writer that was suspended may find N + 1 free because another one
# has made it and hundreds more, and then deleted it. Entries are deleted in order, so while entry N exists, no
# later one was deleted. So the writer looks up entry N after the commit. If it is gone, the commit was made in the
# past, where no reader looks, and is taken back. In a store, where a look is a request, the writer skips it shortly
# after the last proof that N is the newest: of a store more entries stay than a writer makes in that time.
#
# A generation is that of the opened version plus a random step, and no time of a clock: where clocks differ, two
# writers of one version could have the same one, and each would take a commit of the other for its own.
#
# Between commits the writer knows version, files and transactions of the table without reading it. The handle of
# delta-rs, which reads the log, is updated only on demand: for maintenance, or for a reader of the rows.
#
# Invariants
#   1. A version has one writer. tests/delta/test_writers.py, tests/delta/store/test_faults.py.
#   2. If ``write`` returns, the version exists, is this writer's, and was the newest. If it raises ``TableRefused``,
#      the version does not exist, and never will.
#   3. ``version``, ``transaction_version`` and ``table`` describe the same version. tests/delta/test_writers.py.

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming import movement
from streaming.delta.log.checkpoints import CopiedLog
from streaming.delta.log.commit import DataFile, Layout, Packing, entry, removed, transactions_in, written
from streaming.delta.log.definitions import CHECKPOINT_PROPERTY, STATISTICS_PROPERTY, create_or_upgrade
from streaming.delta.log.storage import writing
from streaming.delta.log.table_log import EntriesByVersion, EntryFiles, actions_of, entry_of, has_entry, newest_version
from streaming.delta.store.announced import announce
from streaming.delta.store.objects import StoreError, create, delete, remember
from streaming.delta.store.place import Url, at_once
from streaming.errors import TableRefused, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place

T = TypeVar("T")

GENERATION: Final = "generation"
Mode = Literal["append", "overwrite"]
OVERWRITE: Final = "overwrite"
APPEND: Final = "append"
# If five queries write all the time, one of them comes second twenty times in a row in one of a hundred cases (0.8 to
# the 20th), and a hundred times in a row hardly ever.
TRIES: Final = 100
TRIES_WITHOUT_OTHERS: Final = 3
"""The checkpoint of a version expires when a newer one is there, of the same version or of one that came in between."""
SECONDS_UNTIL_GIVEN_UP: Final = 60.0
"""Seconds for which a commit is tried again while the store does not say whether it was made."""
SECONDS_BETWEEN_TRIES: Final = 1.0
_STEP: Final = 1 << 32
"""Range of the step from one generation to the next: writers that open the same version do not draw the same one."""
SECONDS_OF_PROOF: Final = 20.0
"""Seconds after a commit in which no other writer can have made and expired as many versions as stay in the log."""


class Writer:
    """The only writer of a table: it stops as soon as another one has committed, unless they write :meth:`in_turn`.

    ``entries`` are those of a store that it has made, until maintenance deletes them.
    """

    def __init__(self, table: DeltaTable, path: Place) -> None:
        """Take the next generation, which the first commit of this writer stores; ``table`` was just opened."""
        self.path = path
        self._table = table
        self._before = int(table.transaction_version(GENERATION) or 0)
        self._generation = self._before + 1 + secrets.randbelow(_STEP)
        configuration = table.metadata().configuration
        statistics = (configuration.get(STATISTICS_PROPERTY) or "").split(",")
        self._layout = Layout(tuple(table.metadata().partition_columns), tuple(statistics))
        self._checkpoint_interval = int(configuration.get(CHECKPOINT_PROPERTY) or 0)
        self.entries: EntriesByVersion = {}
        self._took_over()

    @classmethod
    def opened(cls, directory: Place, definition: Table) -> Writer:
        """Open or create a table below a directory; raises as :func:`create_or_upgrade` does."""
        return cls(create_or_upgrade(directory, definition), directory / definition.name)

    def _took_over(self) -> None:
        """Take version, transactions and files from the handle, which was just read."""
        self._version = int(self._table.version())
        self._transactions: dict[str, int | None] = {}  # requested or stored since the table was read
        self._files: dict[str, DataFile] | None = None
        self._proved_at = _now()
        self._copied_log = CopiedLog(self.path) if isinstance(self.path, Url) else None

    @property
    def version(self) -> int:
        """The version that the next commit builds on."""
        return self._version

    @property
    def table(self) -> DeltaTable:
        """The table at that version.

        Raises:
            TableRefused: other writers have committed so much since that it has expired; the next commit builds on the
                newest version.
        """
        if self._table.version() != self._version:
            with suppress(DeltaError):  # entries may have expired: then it must start from a checkpoint
                self._table.update_incremental()
        if self._table.version() != self._version:  # or another writer has made a version, on which we do not build
            try:
                self._table.load_as_version(self._version)
            except DeltaError as error:
                if has_entry(self.path, self._version):
                    raise
                self.look_again(newest_version(self.path))
                raise self._refused("the version that was read last has expired meanwhile") from error
        return self._table

    @property
    def described(self) -> DeltaTable:
        """The same for its schema and its files: in a store without its rows, and without reading its log again."""
        copied = None if self._copied_log is None else self._copied_log.opened(self._version)
        return self.table if copied is None else copied

    def transaction_version(self, name: str) -> int | None:
        """Return the number that commits have stored under a name; None if none has."""
        if name not in self._transactions:
            self._transactions[name] = self.table.transaction_version(name)
        return self._transactions[name]

    def look_again(self, version: int | None = None) -> None:
        """Move to the newest version, or to a given one, whichever writer made it."""
        if version is None:
            self._table.update_incremental()
        else:
            self._table.load_as_version(version)
        self._took_over()

    def in_turn(self, work: Callable[[], T], may_try_again: Callable[[], bool] = lambda: True) -> T:
        """Do work that commits, on top of what other writers have committed first, until it is done or needless.

        It also fails if what it reads has expired since the version that was read last.

        Raises:
            TableRefused: others came first at every one of many tries.
        """
        failure: Exception | None = None
        without_others = 0
        for _ in range(TRIES):
            looked_at = self._version
            try:
                return work()
            except (TableRefused, TableUnreadable, DeltaError) as error:
                failure = error
            with suppress(DeltaError):  # that version has expired meanwhile, too
                self.look_again(newest_version(self.path))
            have_others_come = self._version > looked_at or isinstance(failure, TableRefused)
            without_others = 0 if have_others_come else without_others + 1
            if without_others > TRIES_WITHOUT_OTHERS or not may_try_again():
                break
        raise failure or AssertionError("TRIES is 0")

    def written(self, rows: pa.Table, packing: Packing = Packing.QUICK) -> list[dict[str, Any]]:
        """Write rows as files that no commit names yet, as :func:`streaming.delta.log.commit.written` does."""
        return list(written(self.path, rows, self._layout, packing=packing))

    def write(self, rows: pa.Table, mode: Mode, transactions: Mapping[str, int]) -> int:
        """Commit rows, and transactions with them, at exactly the next version; return that version.

        Raises:
            TableRefused: another writer came first; nothing was written.
            IsrwatchError: the disk is full, or refuses, or the store does not answer.
        """
        gone = list(self.files()) if mode == OVERWRITE else []
        return self.add_files(self.written(rows), gone, transactions)

    def exchange(
        self,
        added: Iterable[pa.Table],
        gone: Collection[str],
        transactions: Mapping[str, int] = MappingProxyType({}),
        *,
        is_new_data: bool,
    ) -> list[list[str]]:
        """Add tables of rows, each in separate files, and remove files, in one commit; raises as :meth:`write` does.

        Return the names of the files of each table. They are no new data if the rows are those of the removed files.
        """
        adds = [self.written(rows, Packing.DENSE) for rows in added]
        self.add_files((add for of_rows in adds for add in of_rows), gone, transactions, is_new_data=is_new_data)
        return [[add["path"] for add in of_rows] for of_rows in adds]

    def add_files(
        self,
        added: Iterable[Mapping[str, Any]],
        gone: Collection[str],
        transactions: Mapping[str, int],
        *,
        is_new_data: bool = True,
        definition: Iterable[Mapping[str, Any]] = (),
    ) -> int:
        """Commit files that were written at exactly the next version; return that version.

        They replace those that are ``gone``, and are no new data if their rows are those. ``definition`` are actions
        that define the table differently.

        Raises:
            TableRefused: another writer came first; nothing was done.
        """
        with writing(str(self.path)):
            files = self.files() if gone else {}
            adds = [{**add, "dataChange": is_new_data} for add in added]
            stored = {**transactions, GENERATION: self._generation}
            removes = [removed(files[name], is_new_data=is_new_data) for name in gone]
            content = entry(adds, removes, stored, definition)
            self._create(content)
            self._version += 1
            remember(entry_of(self.path, self._version), content)
            if self._copied_log is not None:
                self._copied_log.follow(self._version, content)
            self._transactions |= stored
            if self._files is not None:
                names = set(gone)
                self._files = {name: file for name, file in self._files.items() if name not in names}
                self._files |= {
                    each["path"]: DataFile(each["path"], each["size"], each["partitionValues"]) for each in adds
                }
            if isinstance(self.path, Url):  # where reading them again would be requests
                self.entries[self._version] = EntryFiles.of((add["path"] for add in adds), gone)
            announce(self.path, self._version)
            movement.note()
            if self._checkpoint_interval and self._version % self._checkpoint_interval == 0:
                with suppress(DeltaError, OSError):  # until the next checkpoint readers read more entries
                    if self._copied_log is None or not self._copied_log.has_created_checkpoint(self._version):
                        self.table.create_checkpoint()
        return self._version

    def files(self) -> dict[str, DataFile]:
        """Return the data files of the version, by name in the log."""
        if self._files is None:
            rows = pa.table(self.table.get_add_actions(flatten=True)).to_pylist()
            self._files = {row["path"]: DataFile(row["path"], row["size_bytes"], self._partition(row)) for row in rows}
        return self._files

    def _partition(self, row: Mapping[str, Any]) -> dict[str, str]:
        return {name: str(row[f"partition.{name}"]) for name in self._layout.partitioned_by}

    def _create(self, content: bytes) -> None:
        """Create the entry of the next version; see the theory of operation."""
        version, given_up_at = self._version + 1, _now() + SECONDS_UNTIL_GIVEN_UP
        while True:
            failure = None
            try:
                is_made = create(entry_of(self.path, version), content)
            except OSError as error:
                is_made, failure = False, error
            if is_made or self._has_committed(version, failure):
                break
            if failure is None:
                raise self._refused(f"version {version} exists already")
            if isinstance(failure, FileNotFoundError):  # expiry of the log may have deleted the draft of an old version
                self._check_present(version)
            if not isinstance(failure, StoreError) or _now() > given_up_at:
                raise failure
            time.sleep(SECONDS_BETWEEN_TRIES)
        self._check_present(version)

    def _check_present(self, version: int) -> None:
        """Refuse a commit of a version that has expired already; see the theory of operation."""
        is_proved = isinstance(self.path, Url) and _now() - self._proved_at < SECONDS_OF_PROOF
        if not is_proved and not has_entry(self.path, version - 1):
            delete(entry_of(self.path, version))
            raise self._refused(f"version {version} was made, and has expired, long ago")
        self._proved_at = _now()

    def _has_committed(self, version: int, failure: Exception | None = None) -> bool:
        """Return whether a version is this writer's.

        Raises:
            TableRefused: it is another writer's, which came first.
        """
        try:
            stored = transactions_in(actions_of(self.path, version))
        except (TableUnreadable, OSError):
            if failure is None:
                raise
            return False  # unknown for now; the caller tries again
        if not stored or stored.get(GENERATION) == self._generation:
            return bool(stored)
        if failure is not None:
            raise self._refused(f"version {version} exists already") from failure
        return False

    def check_ours(self) -> None:
        """Raise ``TableRefused`` if another writer has committed since this one opened the table."""
        self.look_again()
        if int(self._table.transaction_version(GENERATION) or 0) not in {self._before, self._generation}:
            raise self._refused("it has committed since this one opened the table")

    def _refused(self, why: str) -> TableRefused:
        return TableRefused(
            f"another job writes {self.path} ({why}); stop one of the two, "
            "then start this one again: it continues where the other stopped"
        )


def opened_together(directory: Place, definitions: Sequence[Table]) -> dict[str, Writer]:
    """Open or create tables below a directory, by name; raises as :func:`create_or_upgrade` does."""
    writers = at_once(directory, lambda each: Writer.opened(directory, each), definitions)
    return {definition.name: writer for definition, writer in zip(definitions, writers, strict=True)}


def _now() -> float:
    """Return seconds of a clock that never goes back, and runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
