"""Two processes with one node id, by their registrations. Pure.

A process chooses its incarnation id when it starts, at random, and registers with it. A controller that reads the
registration of another process with its id registers again, and so does that other one, many times a second: an
incarnation that comes back after another one proves that both run. Brokers do not: the controller refuses the second
one while the first is there; see ``contracts.quorum_members`` for what shows it then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.records import RegisterBroker, RegisterController

if TYPE_CHECKING:
    from streaming.contracts.records import RecordBatch

LATELY: Final = 60_000_000
"""Microseconds, by the controllers' clock, after which a process that did not register again may have been stopped."""


class _Registrations(NamedTuple):
    """The newest registration of a node, the one of another process before it, and when two last took turns."""

    newest: RegisterBroker | RegisterController
    other: RegisterBroker | RegisterController | None = None
    doubled_at: int | None = None


class Incarnations:
    """Follows the registrations of a log, in its order."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Registrations] = {}
        self._at = 0

    def follow(self, batch: RecordBatch) -> None:
        """Note the registrations of a batch."""
        self._at = batch.timestamp
        for record in batch.records:
            if isinstance(record, RegisterBroker):
                self._register(f"broker {record.broker}", record)
            elif isinstance(record, RegisterController):
                self._register(f"controller {record.controller}", record)

    def _register(self, node: str, record: RegisterBroker | RegisterController) -> None:
        before = self._nodes.get(node)
        if before is None:
            self._nodes[node] = _Registrations(record)
        elif before.newest.incarnation_id == record.incarnation_id:
            self._nodes[node] = before._replace(newest=record)
        else:
            is_back = before.other is not None and before.other.incarnation_id == record.incarnation_id
            self._nodes[node] = _Registrations(record, before.newest, self._at if is_back else before.doubled_at)

    def doubled(self) -> dict[str, str]:
        """Return a sentence about each node as which two processes run, by its name."""
        return {
            node: _sentence(node, each.newest, each.other)
            for node, each in self._nodes.items()
            if each.other is not None and each.doubled_at is not None and abs(self._at - each.doubled_at) < LATELY
        }


def _sentence(node: str, one: RegisterBroker | RegisterController, other: RegisterBroker | RegisterController) -> str:
    at = " and ".join(sorted((_place(one), _place(other))))
    return (
        f"two processes run as {node}: they register by turns, {at}; stop the wrong one, or give it a node.id of its "
        "own, and a disk that is formatted with it"
    )


def _place(record: RegisterBroker | RegisterController) -> str:
    points = ", ".join(f"{point.listener} at {point.host}:{point.port}" for point in record.end_points)
    return f"{points or 'without a listener'} (incarnation {record.incarnation_id})"
