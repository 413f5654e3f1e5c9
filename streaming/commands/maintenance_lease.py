"""Announces planned work on the bus, and holds a lease for as long as a command runs."""

from __future__ import annotations

import getpass
import signal
import socket
import subprocess
import threading
import time
import uuid
from typing import TYPE_CHECKING, Final

from streaming.bus.directory import DirectoryPublisher
from streaming.contracts.identifiers import SECOND, Micros
from streaming.contracts.observations import IN_ITS_TAIL, MaintenanceObserved, SourceKind
from streaming.errors import ConfigurationError, IsrwatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import FrameType

    from streaming.contracts.state import BrokerState
    from streaming.settings import AdvancedSettings

_SEGMENT_BYTES: Final = 1 << 20
_LOCK_SECONDS: Final = 10.0
_RENEWALS_PER_LEASE: Final = 3
_COMMAND_NOT_FOUND: Final = 127
_SIGNALLED: Final = 128


class Announcer:
    """Writes records of planned work to the bus, as the source of this machine.

    The log is opened for each record, because several commands of one machine may run at once. Times continue by
    the monotonic clock: a clock that is set back meanwhile makes no record look old.
    """

    def __init__(self, bus: Path, why: str) -> None:
        self._bus, self._why = bus, why
        self._begin_at, self._begin = time.time_ns() // 1_000, time.monotonic_ns() // 1_000
        host = socket.gethostname() or "unknown"
        self._source, self._by = f"maintenance:{host}", f"{_user()}@{host}"

    def now(self) -> Micros:
        """Return the time, UTC microseconds."""
        return Micros(self._begin_at + time.monotonic_ns() // 1_000 - self._begin)

    def publish(
        self, leases: Sequence[tuple[BrokerState, str]], until: int, *, is_renewal: bool = False, is_tail: bool = False
    ) -> None:
        """Write one record per broker and lease; with ``until`` not after now it ends the lease.

        Raises:
            IsrwatchError: the bus cannot be written.
        """
        at = self.now()
        records = [
            MaintenanceObserved(
                cluster_id=broker.cluster_id,
                cluster=broker.cluster,
                source=self._source,
                source_kind=SourceKind.NONE,
                occurred_not_before=at,
                occurred_not_after=at,
                collected_at=at,
                broker=broker.broker,
                lease=lease,
                lease_until=Micros(until),
                is_renewal=is_renewal,
                why=self._why + IN_ITS_TAIL * is_tail,
                announced_by=self._by,
            )
            for broker, lease in leases
        ]
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            publisher = DirectoryPublisher(self._bus, segment_bytes=_SEGMENT_BYTES)
            try:
                return publisher.publish(records)
            except ConfigurationError:  # another command of this machine writes at the moment
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            finally:
                publisher.close()


def new_lease() -> str:
    """Return the id of another lease."""
    return uuid.uuid4().hex


class HeldLease:
    """A lease that is renewed in the background; entered before the work and left after it.

    If this process is killed, it lapses after ``advanced.maintenance_lease``.

    Args:
        announcer: writes the records.
        brokers: the brokers that the work may take down.
        settings: how long a record holds, and the tail.
        longest_micros: it is not renewed beyond this.
        report: takes one line for the user.
    """

    def __init__(
        self,
        announcer: Announcer,
        brokers: Sequence[BrokerState],
        settings: AdvancedSettings,
        longest_micros: int,
        report: Callable[[str], None],
    ) -> None:
        self._announcer, self._report = announcer, report
        lease = new_lease()
        self._leases = [(broker, lease) for broker in brokers]
        self._lasts, self._tail = int(settings.maintenance_lease * SECOND), int(settings.maintenance_tail * SECOND)
        self._latest = announcer.now() + longest_micros
        self._done = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)

    def begin(self) -> None:
        """Announce the work and begin to renew.

        Raises:
            IsrwatchError: the bus cannot be written.
        """
        self._announcer.publish(self._leases, min(self._announcer.now() + self._lasts, self._latest))
        self._renewing.start()

    def end(self, *, at_once: bool) -> None:
        """Stop renewing; the lease holds for a short tail, until the brokers have caught up, or ends at once."""
        self._done.set()
        self._renewing.join()
        until = 0 if at_once else min(self._announcer.now() + self._tail, self._latest)
        self._publish(until, is_tail=not at_once)

    def _renew(self) -> None:
        period = self._lasts / SECOND / _RENEWALS_PER_LEASE
        while not self._done.wait(period):
            if self._announcer.now() >= self._latest:
                self._report("the lease has reached its longest time and lapses: from now on nothing of it is planned")
                return
            self._publish(min(self._announcer.now() + self._lasts, self._latest))

    def _publish(self, until: int, *, is_tail: bool = False) -> None:
        try:
            self._announcer.publish(self._leases, until, is_renewal=True, is_tail=is_tail)
        except IsrwatchError as error:
            self._report(f"{error}; the work continues, but its lease lapses")


def run_under(lease: HeldLease, command: Sequence[str]) -> int:
    """Run a command while a lease is held; return its exit code, 128 and the signal if one killed it.

    Raises:
        IsrwatchError: the bus cannot be written; the command is not run then.
    """
    lease.begin()
    has_run = False
    try:
        try:
            process = subprocess.Popen(command)  # noqa: S603 - the user's own command
        except OSError as error:
            raise CommandNotRunnable(f"cannot run {command[0]}: {error.strerror}") from None
        has_run = True
        with _SignalForwarding(process):
            code = process.wait()
        return code if code >= 0 else _SIGNALLED - code
    finally:
        lease.end(at_once=not has_run)


class CommandNotRunnable(IsrwatchError):
    """The command does not exist or may not be executed."""

    exit_code = _COMMAND_NOT_FOUND


class _SignalForwarding:
    """Leaves Ctrl-C to the command, which the terminal sends it, too, and passes SIGTERM on."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
                signal.SIGTERM: signal.signal(signal.SIGTERM, self._terminate),
            }

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _terminate(self, _number: int, _frame: FrameType | None) -> None:
        self._process.terminate()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
