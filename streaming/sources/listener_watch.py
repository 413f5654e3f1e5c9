"""Listeners as a source that observes nothing for the bus: whether each responds is a metric, and a line for the user.

Each round runs in a thread of its own, so that neither a poll nor a stop waits for a node that hangs.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import Micros
from streaming.sources.connection_metrics import ConnectionMetrics
from streaming.sources.listeners import Listener, ask_all, dials_of, discover, distinct
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.contracts.observations import Observation
    from streaming.settings import Settings
    from streaming.sources.protocol.peers import Peers

_REMEMBERED_MICROS: Final = 86_400_000_000  # brokers that are down are not listed
_WAIT_SECONDS: Final = 0.5


class ListenerWatch:
    """Asks every listener once per ``collect.config_seconds``.

    Args:
        settings: of the cluster.
        peers: note what connections see.
        report: takes one line when a listener stops responding, and when it responds again.
        listed: lists the listeners of now; one that it no longer lists is still asked for a day.

    Attributes:
        answers: of the last round, by listener: why it does not respond, "" if it does. Replaced, never changed.
        metrics: of listeners and connections.
    """

    def __init__(
        self,
        settings: Settings,
        peers: Peers,
        *,
        report: Callable[[str], None] = lambda _: None,
        listed: Callable[[], list[Listener]] | None = None,
    ) -> None:
        self.name = f"listeners:{settings.collect.collector}"
        self.answers: dict[Listener, str] = {}
        self.metrics = ConnectionMetrics(settings, lambda: self.answers, peers)
        self._listed = listed or partial(discover, settings, peers)
        self._dials, self._report = dials_of(settings, peers), report
        self._due = Timer(Micros(round(settings.collect.config_seconds * 1_000_000)))
        self._round: threading.Thread | None = None
        self._listed_at: dict[Listener, int] = {}

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Begin a round if one is due and the last has ended; return nothing after half a second."""
        del now
        is_idle = self._round is None or not self._round.is_alive()
        if is_idle and self._due.take_due(monotonic()):
            self._round = threading.Thread(target=self.round, name=self.name, daemon=True)
            self._round.start()
        time.sleep(_WAIT_SECONDS)
        return []

    def acknowledge(self) -> None:
        """Do nothing: there is no position."""

    def close(self) -> None:
        """Wait a moment for a round that runs; one that nodes hold up ends by itself."""
        if self._round is not None:
            self._round.join(timeout=_WAIT_SECONDS)

    def round(self) -> None:
        """Ask every listener once."""
        before, self.answers = self.answers, ask_all(self._current(), self._dials)
        for listener, reason in self.answers.items():
            if reason and not before.get(listener):
                self._report(f"{listener} does not respond: {reason}")
            elif before.get(listener) and not reason:
                self._report(f"{listener} responds again")

    def _current(self) -> list[Listener]:
        now = monotonic()
        for listener in self._listed():
            self._listed_at.pop(listener, None)
            self._listed_at[listener] = now  # the newest last
        recent = [listener for listener, at in self._listed_at.items() if now - at < _REMEMBERED_MICROS]
        self._listed_at = {listener: self._listed_at[listener] for listener in distinct(recent)}
        return list(self._listed_at)
