"""The claim of a job on its tables: at once, or once the job that has it is gone.

In a folder it is the lock that the system releases with the process (``sole_writer``). In a store, and in a folder
whose file system has no locks, it is a lease (``store.lease``).
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from streaming.delta.log.storage import make_folder, sole_writer
from streaming.delta.store.lease import FOLDER, JobLease, LeaseWatch, Renewals
from streaming.errors import TableRefused
from streaming.locks import has_locks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from streaming.delta.store.lease import Holder
    from streaming.delta.store.place import Place

EVERY_QUERY: Final = ("replication", "samples", "incidents")
"""All that write tables."""
SECONDS_BETWEEN_LOOKS: Final = 0.5
"""Interval at which a standby tries to take the lock of a folder."""


class Claim(Protocol):
    """Right to write the tables, which one job has at a time; :meth:`take_if_free` is called at an interval."""

    seconds_between_looks: float

    def take(self) -> Holder | None:
        """Take it at once; return who had it, if that is known.

        Raises:
            TableRefused: another job has it, and cannot be superseded.
            OSError: the store refuses, or does not answer.
        """

    def take_if_free(self) -> bool:
        """Take it if no job has it any more; return whether it was taken.

        Raises:
            OSError: the store refuses, or does not answer.
        """

    @property
    def waits_for(self) -> str:
        """The rest of the sentence that says what a standby waits for."""

    @property
    def refusal(self) -> TableRefused | None:
        """The reason to stop: another job has taken it. None while it has not."""

    def is_proven(self) -> bool:
        """Return whether the store says that no other job has taken it; False if that is not known."""

    def release(self) -> None:
        """Let another job have it."""


def claim_of(tables: Place, queries: Collection[str], lease_seconds: float, report: Callable[[str], None]) -> Claim:
    """Return the claim of a job on the tables of its queries; make their folder.

    Jobs of some queries have a lease of their own. ``report`` gets a sentence for the user, from another thread.

    Raises:
        ConfigurationError: the folder cannot be made.
    """
    make_folder(tables)
    if isinstance(tables, Path) and _may_have_locks(tables):
        return LockClaim(tables, queries)
    own = [] if {*queries} == {*EVERY_QUERY} else sorted(queries)
    return LeaseClaim(JobLease(tables / "-".join([FOLDER, *own]), lease_seconds), report)


def _may_have_locks(folder: Path) -> bool:
    """Return False for a file system without locks. Of a folder that cannot be written the attempt to lock says why."""
    with suppress(OSError):
        return has_locks(folder)
    return True


class LockClaim:
    """The locks of a folder."""

    seconds_between_looks = SECONDS_BETWEEN_LOOKS
    refusal = None

    def __init__(self, tables: Path, queries: Collection[str]) -> None:
        self._tables, self._queries, self._held = tables, queries, ExitStack()

    def take(self) -> None:
        """Take the locks; ``TableRefused`` if another process has one."""
        self._held.enter_context(sole_writer(self._tables, self._queries))

    def take_if_free(self) -> bool:
        """Take the locks, unless another process has one."""
        try:
            self.take()
        except TableRefused:
            return False
        return True

    @property
    def waits_for(self) -> str:
        """The lock, which a process has until it ends."""
        return f"the job that holds the lock of {self._tables}"

    def is_proven(self) -> bool:
        """Return False: a lock proves nothing of jobs that have none."""
        return False

    def release(self) -> None:
        """Release the locks."""
        self._held.close()


class LeaseClaim:
    """A lease, renewed from the moment that it is taken."""

    def __init__(self, lease: JobLease, report: Callable[[str], None]) -> None:
        self._lease, self._watch, self._report = lease, LeaseWatch(lease), report
        self._renewals: Renewals | None = None
        self.seconds_between_looks = self._watch.seconds_between_looks

    def take(self) -> Holder | None:
        """Create the next number; return who had the one before."""
        before = self._lease.take()
        self._renew()
        return before

    def take_if_free(self) -> bool:
        """Create the next number if no other job has for a whole lease."""
        if not self._watch.take_if_lapsed():
            return False
        self._renew()
        return True

    @property
    def waits_for(self) -> str:
        """The holder of the newest number."""
        holder = self._watch.holder
        return f"the lease {self._lease.folder} of {'no job yet' if holder is None else holder}"

    @property
    def refusal(self) -> TableRefused | None:
        """The reason to stop: another job has the lease. None while this one has it, and before."""
        return None if self._renewals is None else self._renewals.refusal

    def _renew(self) -> None:
        self._renewals = Renewals(self._lease, self._report)
        self._renewals.start()

    def is_proven(self) -> bool:
        """Return whether it could be renewed now."""
        with suppress(OSError):
            return self._renewals is not None and self._renewals.renew()
        return False

    def release(self) -> None:
        """Let a standby begin at once."""
        if self._renewals is not None:
            self._renewals.stop()
