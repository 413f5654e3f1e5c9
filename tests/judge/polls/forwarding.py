"""Requests that a broker forwards to the active controller, each on its one connection to one (``ForwardingManager``).

The broker asks the controller that it was connected with before, and looks for another one only when that connection
breaks, when that node says that it is not active, or when a request was not answered for its timeout. So while the
active controller hangs, or is cut off, the request stays open although another one has long been elected.
"""

from __future__ import annotations

from typing import Final

from streaming.contracts.identifiers import BrokerId
from streaming.sources.simulated.simulation import Simulation

REQUEST_TIMEOUT_MS: Final = 30_000
_RETRANSMIT_MS: Final = 200


def resumed_at(lost_at: int, now: int) -> int:
    """Return when TCP sends again what was lost: after this time, then after twice, four times as long."""
    again, delay = lost_at + _RETRANSMIT_MS, 2 * _RETRANSMIT_MS
    while again < now:
        again, delay = again + delay, 2 * delay
    return again


class Forwarding:
    """The connections of all brokers to controllers."""

    def __init__(self, simulation: Simulation) -> None:
        self._cluster, self._network = simulation.cluster, simulation.network
        self._connected: dict[BrokerId, BrokerId] = {}
        self._stuck_since: dict[BrokerId, int] = {}
        self._lost_at: dict[BrokerId, int] = {}
        self._resumes_at: dict[BrokerId, int] = {}

    def is_answered(self, broker: BrokerId, asked: int) -> bool:
        """Return whether a request that was forwarded at a time is answered now, by the active controller."""
        now, active = self._cluster.now, self._cluster.controllers.active
        former = self._connected.get(broker, active)
        is_running = former is not None and former in self._cluster.controllers.running
        is_stuck = former is not None and is_running and self._is_stuck(broker, former, now)
        if is_stuck and now - self._stuck_since.setdefault(broker, asked) < REQUEST_TIMEOUT_MS:
            return False
        if active is None or self._cluster.is_paused(active) or self._is_cut(broker, active):
            return False
        self._connected[broker] = active
        self._stuck_since.pop(broker, None)
        return True

    def _is_cut(self, broker: BrokerId, controller: BrokerId) -> bool:
        return self._network.is_held((broker, controller)) or self._network.is_held((controller, broker))

    def _is_stuck(self, broker: BrokerId, controller: BrokerId, now: int) -> bool:
        """Return whether nothing comes back from a controller: it hangs, it is cut off, or packets were lost."""
        if self._is_cut(broker, controller):
            self._lost_at.setdefault(broker, now)
            return True
        if (lost_at := self._lost_at.pop(broker, None)) is not None:
            self._resumes_at[broker] = resumed_at(lost_at, now)
        return self._cluster.is_paused(controller) or now < self._resumes_at.get(broker, 0)
