"""Lets planned work begin only where it is safe: the advice of the tables, once they have what is announced of others.

The job applies an announcement, and its end, a second or two after it is on the bus. Until then the advice is that of
before: it would let two people stop two brokers at once, and refuse the next broker of a rolling restart.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from streaming.changes.maintenance import leases_of
from streaming.commands.maintenance_advice import stop_warnings
from streaming.commands.maintenance_clusters import stored_brokers, watched_clusters
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.delta.log.queries import open_ours
from streaming.errors import NotSafe, TableRefused, TableUnreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from streaming.changes.maintenance import Lease
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.state import BrokerState

# Longer than a session, and than the job may take to write the tables while nothing but time goes on.
PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
_NOTHING_DONE: Final = "nothing was announced or run"


def wait_until_safe(
    bus: Path, tables: Path, brokers: Sequence[BrokerState], report: Callable[[str], None], *,
    patience: float = PATIENCE_SECONDS,
) -> None:  # fmt: skip
    """Return as soon as brokers of one cluster are known to be safe to stop.

    It waits only for what is announced of other brokers: until the tables have it, and until a command that has ended
    is seen to have left its brokers up and in sync. Whatever else is against it is refused at once.

    Args:
        bus: directory of the bus.
        tables: directory of the Delta tables.
        brokers: those that work is to be announced on.
        report: takes one line for the user, when it begins to wait.
        patience: how long it waits, seconds.

    Raises:
        NotSafe: one of them may not be stopped, or it is unknown.
    """
    deadline, is_waiting = time.monotonic() + patience, False
    while obstacles := _obstacles(bus, tables, brokers):
        against, may_pass = obstacles
        if not may_pass or time.monotonic() >= deadline:
            raise NotSafe(f"{against}: {_NOTHING_DONE}")
        if not is_waiting:
            report(f"waiting for {patience:g} s at most: {against}")
        is_waiting = True
        time.sleep(_PAUSE_SECONDS)


def _obstacles(bus: Path, tables: Path, brokers: Sequence[BrokerState]) -> tuple[str, bool] | None:
    """Return what is against the work, and whether that may pass by waiting; None for nothing.

    The tables are compared with the bus before the advice is read, so the advice has what the bus had.
    """
    if open_ours(tables, BROKER_STATE_TABLE) is None:
        return f"there are no tables in {tables} to say whether it is safe", False
    now = time.time_ns() // 1_000
    try:
        announced = _announced_beside(bus, tables, brokers, now)
        stored = _open_leases(stored_brokers(tables), brokers, now)
        warnings = list(stop_warnings(tables, brokers, now))
    except (TableUnreadable, TableRefused) as error:
        return f"whether it is safe is unknown: {error}", False
    lacking = sorted(broker for broker in stored if _signs(stored[broker]) != _signs(announced.get(broker, ())))
    if lacking and not warnings:
        numbers = ", ".join(map(str, lacking))
        warnings.append(f"the job has not applied yet what is announced of broker {numbers}, or ended")
    own = {lease.lease for one in brokers for lease in leases_of(one)}
    others = [lease for leases in announced.values() for lease in leases if lease.lease not in own]
    is_over = bool(others) and all(lease.has_ended_command for lease in others)
    return ("; ".join(warnings), bool(lacking) or is_over) if warnings else None


def _announced_beside(
    bus: Path, tables: Path, brokers: Sequence[BrokerState], now: int
) -> dict[BrokerId, tuple[Lease, ...]]:
    clusters = (each for each in watched_clusters(bus, tables) if each.cluster_id == brokers[0].cluster_id)
    return _open_leases((one for each in clusters for one in each.brokers.values()), brokers, now)


def _open_leases(
    states: Iterable[BrokerState], beside: Sequence[BrokerState], now: int
) -> dict[BrokerId, tuple[Lease, ...]]:
    """Return the leases that hold at a moment, of each other broker of the cluster."""
    cluster_id, own = beside[0].cluster_id, {one.broker for one in beside}
    return {
        one.broker: tuple(lease for lease in leases_of(one) if lease.is_open and lease.until > now)
        for one in states
        if one.cluster_id == cluster_id and one.broker not in own
    }


def _signs(leases: Iterable[Lease]) -> set[tuple[str, bool]]:
    """Return what the advice depends on: until when a running command holds its lease changes nothing."""
    return {(lease.lease, lease.has_ended_command) for lease in leases}
