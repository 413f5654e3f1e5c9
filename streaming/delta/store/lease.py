"""The lease of a job on its tables: numbered objects, each created by the job that has it then.

A standby watches them, and takes over once no new number has come for a while. Who may write the tables is not decided
here (``delta.log.writer``). Depends on the verbs of a store, on no table.
"""

# Theory of operation
#
# The active job creates the next number, three times per lease, and deletes older ones but a few. A standby looks for
# the number after the newest one it has seen. Once none has come for a whole lease, it creates that number itself; of
# several standbys the store lets one succeed.
#
# No time of another machine is read or compared, neither from an object nor from its status. A standby counts seconds
# of its own clock, and only those between two looks that succeeded: what it could not see is not gone. So a lease does
# not end because the store was away for an hour, or the standby suspended. Before it takes over it lists the numbers,
# because those that it waited for may have come and been deleted meanwhile.
#
# The active job never ends because a renewal failed, only because it sees that its next number is another job's. It
# looks up the number that it had before, too: after a long pause its next number may be free again, because others have
# taken it and hundreds more, and have deleted them, in order.
#
# The lease only decides when a standby begins, so a wrong decision costs a change of jobs and no row: of two jobs that
# write, one finds its version of a table taken, and stops.
#
# Invariants, tried by tests/delta/store/test_lease.py
#   1. A number has one holder, and knows it even if the answer of the store was lost.
#   2. A job that was superseded finds out at its next renewal, however long it was paused.
#   3. Besides the newest ``NUMBERS_LEFT`` numbers of a running job none stays for long.

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.delta.store.objects import create, delete, get, head, names_below
from streaming.errors import TableRefused
from streaming.escapes import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.delta.store.place import Place

FOLDER: Final = "_lease"
RENEWALS: Final = 3
"""Numbers that the active job creates per lease."""
NUMBERS_LEFT: Final = 4
SECONDS_BETWEEN_LOOKS: Final = 1.0
SECONDS_BETWEEN_TRIES: Final = 1.0
LONGEST_LEASE: Final = 3_600.0
NONE_YET: Final = -1
UNSEEN: Final = -2
"""The number that a standby has seen before its first look."""


class Holder(NamedTuple):
    """The job that created a number.

    Attributes:
        host: name of its machine.
        pid: its process.
        seconds: its lease.
        token: differs between any two jobs.
        is_released: it has stopped in order, so a standby need not wait.
    """

    host: str
    pid: int
    seconds: float
    token: str
    is_released: bool = False

    def __str__(self) -> str:
        return f"process {self.pid} on {printable(self.host)}"


UNKNOWN: Final = Holder("an unknown machine", 0, 0.0, "")


def boot_clock() -> float:
    """Return seconds of a clock that never goes back, and runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class JobLease:
    """The lease that this process may have. ``LeaseWatch`` waits for it, ``take`` does not. Not safe for threads."""

    def __init__(self, folder: Place, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self._holder = Holder(socket.gethostname(), os.getpid(), seconds, secrets.token_hex(8))
        self._number = NONE_YET

    def take(self) -> Holder | None:
        """Create the next number, whichever job has the newest; return who had it before, None for no job.

        Raises:
            OSError: the store refuses, or does not answer.
        """
        while True:
            newest = newest_number(self.folder)
            before = holder_of(self.folder, newest)
            if self.take_after(newest):
                return before

    def take_after(self, number: int) -> bool:
        """Create the number after the newest one; return whether this process has the lease now.

        Raises:
            OSError: the store refuses, or does not answer.
        """
        following = number + 1
        try:
            if not self._create(following, self._holder):
                return False
        except FileNotFoundError:  # deleted between two requests: others are far ahead
            return False
        numbers = numbers_below(self.folder)
        if max(numbers, default=following) > following:  # it was free because others have had it, and deleted it
            delete(self._place(following))
            return False
        self._number = following
        with suppress(OSError):
            for each in numbers:
                if each <= following - NUMBERS_LEFT:
                    delete(self._place(each))
        return True

    def renew(self) -> None:
        """Create the next number.

        Raises:
            TableRefused: another job has taken it.
            OSError: the store refuses, or does not answer: whether it was created is unknown, and nothing is lost.
        """
        following = self._number + 1
        if not self._create(following, self._holder):
            raise self._lost(following)
        if head(self._place(self._number)) is None and (newest := newest_number(self.folder)) > following:
            delete(self._place(following))
            raise self._lost(newest)
        self._number = following
        with suppress(OSError):
            delete(self._place(following - NUMBERS_LEFT))

    def release(self) -> None:
        """Let a standby begin at once, by a last number; raises as :meth:`renew` does."""
        self._create(self._number + 1, self._holder._replace(is_released=True))

    def _create(self, number: int, holder: Holder) -> bool:
        """Create a number; return whether it is this process's, also if the answer to an earlier try was lost."""
        if create(self._place(number), _content(holder)):
            return True
        stored = holder_of(self.folder, number)
        if stored is None:
            raise FileNotFoundError(f"{self._place(number)} was there, and is gone")
        return stored.token == self._holder.token

    def _lost(self, number: int) -> TableRefused:
        holder = None
        with suppress(OSError):
            holder = holder_of(self.folder, number)
        return TableRefused(
            f"another job, {holder or UNKNOWN}, has taken over the tables below {self.folder.parent}, so this one "
            "stops; started with --standby it waits for that one to end"
        )

    def _place(self, number: int) -> Place:
        return self.folder / f"{number:010}"


def numbers_below(folder: Place) -> list[int]:
    """List the numbers of a lease."""
    return [int(name) for name in names_below(folder) if name.isdecimal()]


def newest_number(folder: Place) -> int:
    """Return the newest number of a lease, ``NONE_YET`` if there is none."""
    return max(numbers_below(folder), default=NONE_YET)


def holder_of(folder: Place, number: int) -> Holder | None:
    """Return who created a number; None if there is no such number, ``UNKNOWN`` if the object cannot be read as one.

    Raises:
        OSError: the store refuses, or does not answer.
    """
    try:
        stored = json.loads(get(folder / f"{number:010}"))
        return Holder(
            str(stored["host"]), int(stored["pid"]), float(stored["lease_seconds"]), str(stored["token"]),
            stored.get("released") is True,
        )  # fmt: skip
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return UNKNOWN


def _content(holder: Holder) -> bytes:
    """Return the content of a number, for people; a standby reads how long it is to wait."""
    content = {"host": holder.host, "pid": holder.pid, "lease_seconds": holder.seconds, "token": holder.token}
    return json.dumps(content | ({"released": True} if holder.is_released else {})).encode()


class LeaseWatch:
    """Watches the lease of another job, the ``holder``; None if no number was seen yet."""

    def __init__(self, lease: JobLease, clock: Callable[[], float] = boot_clock) -> None:
        self.holder: Holder | None = None
        self.seconds_between_looks = min(SECONDS_BETWEEN_LOOKS, lease.seconds / (2 * RENEWALS))
        self._lease, self._clock = lease, clock
        self._number = UNSEEN
        self._looked_at: float | None = None
        self._unchanged = 0.0

    def take_if_lapsed(self) -> bool:
        """Look for a new number, and take the lease if none has come for long enough; return whether it was taken.

        Raises:
            OSError: the store refuses, or does not answer: the count begins again.
        """
        try:
            return self._is_lapsed() and self._lease.take_after(self._number)
        except OSError:
            self._looked_at, self._unchanged = None, 0.0
            raise

    def _is_lapsed(self) -> bool:
        began = self._clock()
        if self._number == UNSEEN:
            self._list()
            return self._is_released()
        if self._has_next():
            return self._is_released()
        if self._looked_at is not None:
            self._unchanged += max(0.0, min(began - self._looked_at, 2 * self.seconds_between_looks))
        self._looked_at = began
        if self._unchanged < self._allowed():
            return False
        before = self._number
        self._list()
        return before == self._number or self._is_released()

    def _list(self) -> None:
        """List the numbers; the count begins again if the newest one is another one."""
        if (newest := newest_number(self._lease.folder)) != self._number:
            self._saw(newest, holder_of(self._lease.folder, newest))

    def _has_next(self) -> bool:
        """Return whether the number after the newest one has come, and move on to it."""
        holder = holder_of(self._lease.folder, following := self._number + 1)
        if holder is not None:
            self._saw(following, holder)
        return holder is not None

    def _saw(self, number: int, holder: Holder | None) -> None:
        self._number, self.holder = number, holder
        self._looked_at, self._unchanged = self._clock(), 0.0

    def _is_released(self) -> bool:
        return self.holder is not None and self.holder.is_released

    def _allowed(self) -> float:
        """Return the seconds to wait: those of the holder, if it is configured to renew more rarely."""
        theirs = self.holder.seconds if self.holder is not None else 0.0
        return max(self._lease.seconds, theirs if theirs <= LONGEST_LEASE else 0.0)


class Renewals(threading.Thread):
    """Renews a lease until it is stopped, or lost; then ``refusal`` says why this job must stop."""

    def __init__(self, lease: JobLease, report: Callable[[str], None]) -> None:
        """``report`` gets a sentence for the user, from this thread."""
        super().__init__(name="lease", daemon=True)
        self.refusal: TableRefused | None = None
        self._lease, self._report = lease, report
        self._stopped, self._one_at_a_time = threading.Event(), threading.Lock()

    def run(self) -> None:
        """Renew; a renewal that fails is tried again soon, and reported once it has failed for a whole lease."""
        renewed_at, is_reported = boot_clock(), False
        pause = usual = self._lease.seconds / RENEWALS
        while not self._stopped.wait(pause):
            try:
                if not self.renew():
                    return
            except OSError as error:
                pause = min(SECONDS_BETWEEN_TRIES, usual)
                if not is_reported and boot_clock() - renewed_at > self._lease.seconds:
                    is_reported = True
                    self._report(
                        f"the lease in {self._lease.folder} cannot be renewed, so a standby may begin: {error}"
                    )
            else:
                renewed_at, is_reported, pause = boot_clock(), False, usual

    def renew(self) -> bool:
        """Renew now, from any thread; return whether this job has the lease. Raises ``OSError`` if that is unknown."""
        with self._one_at_a_time:
            if self.refusal is None:
                try:
                    self._lease.renew()
                except TableRefused as error:
                    self.refusal = error
            return self.refusal is None

    def stop(self) -> None:
        """Stop, and let a standby begin at once, unless the lease is lost."""
        self._stopped.set()
        self.join(self._lease.seconds)
        if self.refusal is None and not self.is_alive():
            with suppress(OSError):
                self._lease.release()
