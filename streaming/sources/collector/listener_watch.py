"""Listeners as a source that observes nothing for the bus: whether each responds is a metric, and a line for the user.

Each round runs in a thread of its own, so that neither a poll nor a stop waits for a node that hangs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streaming.contracts.identifiers import Micros
from streaming.sources.collector.listeners import (
    Listener,
    ask_all,
    dials_of,
    discover,
    distinct,
    own_expiries,
    responders_at,
)
from streaming.sources.collector.metrics import PREFIX
from streaming.sources.protocol.identity import Role, WrongNode
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from streaming.contracts.observations import Observation
    from streaming.settings import Settings
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.protocol.identity import Responder

REMEMBERED_MICROS: Final = 86_400_000_000  # brokers that are down are not listed
_WAIT_SECONDS: Final = 0.5


class ListenerWatch:
    """Asks every listener once per ``collect.config_interval``.

    Args:
        settings: of the cluster.
        peers: note what connections see.
        report: takes one line when a listener stops responding, and when it responds again.
        listed: lists the listeners of now; one that it no longer lists is still asked for a day.

    Attributes:
        answers: of the last round, by listener: why it does not respond, "" if it does. Replaced, never changed.
        responders: by listener who answered there last, as far as it says so. Replaced, never changed.
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
        self.name = f"listeners:{settings.collect.collector_name}"
        self.answers: dict[Listener, str] = {}
        self.responders: dict[Listener, Responder] = {}
        self.metrics = ConnectionMetrics(settings, lambda: self.answers, peers, lambda: self.responders)
        self._settings, self._peers = settings, peers
        self._listed = listed or partial(discover, settings, peers)
        self._dials, self._report = dials_of(settings, peers), report
        self._due = Timer(Micros(round(settings.collect.config_interval * 1_000_000)))
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
                self._report(f"{self._described(listener)} does not respond: {reason}")
            elif before.get(listener) and not reason:
                self._report(f"{self._described(listener)} responds again")
        self._identify()

    def _identify(self) -> None:
        """Ask who answers at each listener that responds; of one that does not, nothing new is known.

        Of brokers the samples report it, which are asked earlier.
        """
        before, responding = self.responders, [listener for listener, reason in self.answers.items() if not reason]
        kept = {listener: by for listener, by in before.items() if listener in self.answers}
        self.responders = {**kept, **responders_at(responding, self._settings, self._peers)}
        for listener, by in self.responders.items():
            last = before.get(listener)
            is_known = by.is_meant is not None and listener.role is Role.CONTROLLER
            if is_known and by.is_meant != (last is None or last.is_meant is not False):
                refusal = WrongNode(listener.address, by)
                leads = f"the address of {by.meant}, {listener.address}, leads to that controller again"
                self._report(leads if by.is_meant else str(refusal))

    def _described(self, listener: Listener) -> str:
        """Name a listener, and who answered there if that was another node."""
        by = self.responders.get(listener)
        if by is None or by.is_meant is not False:
            return str(listener)
        return f"{listener}, where {WrongNode(listener.address, by).who} has answered,"

    def _current(self) -> list[Listener]:
        now = monotonic()
        for listener in self._listed():
            self._listed_at.pop(listener, None)
            self._listed_at[listener] = now  # the newest last
        recent = [listener for listener, at in self._listed_at.items() if now - at < REMEMBERED_MICROS]
        self._listed_at = {listener: self._listed_at[listener] for listener in distinct(recent)}
        return list(self._listed_at)


# Connections as metrics, read at each scrape: which listeners respond, how much is asked, when certificates expire.


LISTENER: Final = ("cluster", "role", "node", "address")
PROPERTY: Final = ("cluster", "property")
NODE: Final = ("cluster", "node")
_COUNTERS: Final = {
    "requests": "Requests that were sent to a node.",
    "sent_bytes": "Bytes of requests.",
    "received_bytes": "Bytes of responses.",
    "errors": "Connections and requests that failed, and logins that were refused.",
}


class ConnectionMetrics(Collector):
    """Connection metrics of listeners.

    Args:
        settings: name the collector's own certificates.
        answers: returns of each listener why it does not respond, "" if it does.
        peers: what connections saw of each address.
        responders: returns who answered at listeners.
    """

    def __init__(
        self,
        settings: Settings,
        answers: Callable[[], Mapping[Listener, str]],
        peers: Peers,
        responders: Callable[[], Mapping[Listener, Responder]] = dict,
    ) -> None:
        self._settings, self._answers, self._peers, self._responders = settings, answers, peers, responders
        self._cluster = settings.cluster.name

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of now. A node that does not respond keeps the certificate that it showed last."""
        up = GaugeMetricFamily(
            f"{PREFIX}listener_up",
            "1 if a listener responded when it was last asked; the log has the reason. None if another node answers.",
            labels=LISTENER,
        )
        wrong = GaugeMetricFamily(
            f"{PREFIX}listener_wrong_node",
            "1 if another node than its own answers at a listener, 0 if its own does; none while that is unknown.",
            labels=LISTENER,
        )
        expiry = GaugeMetricFamily(
            f"{PREFIX}listener_certificate_expiry_timestamp_seconds",
            "When the certificate that a listener showed last expires, since 1970.",
            labels=LISTENER,
        )
        own = GaugeMetricFamily(
            f"{PREFIX}client_certificate_expiry_timestamp_seconds",
            "When a configured certificate expires, since 1970: of a chain the first, of authorities the last.",
            labels=PROPERTY,
        )
        responders = self._responders()
        for listener, reason in self._answers().items():
            labels = [self._cluster, listener.role, listener.node, str(listener.address)]
            is_meant = responders[listener].is_meant if listener in responders else None
            if is_meant is not None:
                wrong.add_metric(labels, float(not is_meant))
            if is_meant is False:
                continue  # neither its silence nor its certificate is that of the node
            up.add_metric(labels, float(not reason))
            expires_at = self._peers.at(listener.address).certificate_expires_at
            if expires_at is not None:
                expiry.add_metric(labels, expires_at)
        for key, end in own_expiries(self._settings).items():
            own.add_metric([self._cluster, key], end)
        yield from (up, wrong, expiry, own, *self._counters())

    def _counters(self) -> Iterator[Metric]:
        """Count by node, or by address where no node with this address is known yet."""
        node_of = {str(each.address): each.node or str(each.address) for each in self._answers()}
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for address, peer in self._peers.all().items():
            sums[node_of.get(address, address)].update({name: getattr(peer, name) for name in _COUNTERS})
        for name, meaning in _COUNTERS.items():
            counter = CounterMetricFamily(f"{PREFIX}connection_{name}", meaning, labels=NODE)
            for node, counts in sums.items():
                counter.add_metric([self._cluster, node], counts[name])
            yield counter
