"""Listeners as a source: whether each responds is a metric, and a line for the user.

For the bus it observes one thing: that the certificate of a listener has ended.

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

from streaming.contracts.identifiers import MILLISECOND, Micros
from streaming.contracts.observations import EXPIRED_CERTIFICATE, ConfigObserved, ConfigOrigin, SourceKind
from streaming.sources.collector.certificates import CertificateWatch
from streaming.sources.collector.listeners import (
    Listener,
    NotAsked,
    ask_all,
    dials_of,
    discover,
    distinct,
    in_words,
    own_expiries,
    responders_at,
)
from streaming.sources.collector.metrics import PREFIX
from streaming.sources.metadata_log.opening import REPORTED_EVERY
from streaming.sources.protocol.identity import Role, WrongNode
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from streaming.contracts.identifiers import ClusterId
    from streaming.contracts.observations import Observation
    from streaming.contracts.records import EndPoint
    from streaming.settings import Settings
    from streaming.sources.collector.certificates import SecuredListener, Shown
    from streaming.sources.protocol.addresses import Peers
    from streaming.sources.protocol.identity import Responder

REMEMBERED_MICROS: Final = 86_400_000_000  # brokers that are down are not listed
WAIT_SECONDS: Final = 0.5


class ListenerWatch:
    """Asks every listener once per ``collect.config_interval``.

    Args:
        settings: of the cluster.
        peers: note what connections see.
        report: takes one line when a listener stops responding, and when it responds again.
        listed: lists the listeners of now; one that it no longer lists is still asked for a day.
        end_points: what nodes have registered in the metadata log; see :class:`certificates.CertificateWatch`.
        cluster_id: of the cluster, None until it is known.

    Attributes:
        answers: of the last round, by listener: why it does not respond, "" if it does. Replaced, never changed.
        responders: by listener who answered there last, as far as it says so. Replaced, never changed.
        metrics: of listeners and connections.
    """

    def __init__(  # noqa: PLR0913 - what a collector configures
        self,
        settings: Settings,
        peers: Peers,
        *,
        report: Callable[[str], None] = lambda _: None,
        listed: Callable[[], list[Listener]] | None = None,
        end_points: Callable[[], Mapping[tuple[str, int], tuple[EndPoint, ...]]] = dict,
        cluster_id: Callable[[], ClusterId | None] = lambda: None,
    ) -> None:
        self._cluster, self._cluster_id = settings.cluster.name, cluster_id
        self._reported: tuple[ClusterId, str | None] | None = None
        self.report_due = Timer(REPORTED_EVERY)
        self.name = f"listeners:{settings.collect.collector_name}"
        self.answers: dict[Listener, str] = {}
        self.responders: dict[Listener, Responder] = {}
        self.certificates = CertificateWatch(settings, peers, report, end_points)
        self._throttling = ThrottleWatch(peers, report)
        self.metrics = ConnectionMetrics(
            settings, lambda: self.answers, peers, lambda: self.certificates.shown, lambda: self.responders
        )
        self._settings, self._peers = settings, peers
        self._listed = listed or partial(discover, settings, peers)
        self._dials, self._report = dials_of(settings, peers), report
        self._due = Timer(Micros(round(settings.collect.config_interval * 1_000_000)))
        self._round: threading.Thread | None = None
        self._listed_at: dict[Listener, int] = {}

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Begin a round if one is due and the last has ended; return after half a second whether a certificate ended.

        That is reported when it changes, and every half minute: a source that reports nothing has stopped.
        """
        is_idle = self._round is None or not self._round.is_alive()
        if is_idle and self._due.take_due(monotonic()):
            self._round = threading.Thread(target=self.round, name=self.name, daemon=True)
            self._round.start()
        time.sleep(WAIT_SECONDS)
        return self._ended(now)

    def _ended(self, now: Micros) -> list[Observation]:
        cluster_id, ended = self._cluster_id(), self.certificates.ended
        if cluster_id is None or not self.certificates.is_known:
            return []
        if self._reported != (cluster_id, ended):
            self.report_due.expire()
        if not self.report_due.take_due(monotonic()):
            return []
        self._reported = cluster_id, ended
        return [
            ConfigObserved(
                cluster_id=cluster_id,
                cluster=self._cluster,
                source=self.name,
                source_kind=SourceKind.NONE,
                occurred_not_before=now,
                occurred_not_after=now,
                collected_at=now,
                topic="",
                key=EXPIRED_CERTIFICATE,
                value=ended,
                origin=ConfigOrigin.DESCRIBE,
            )
        ]

    def acknowledge(self) -> None:
        """Do nothing: there is no position."""

    def close(self) -> None:
        """Wait a moment for a round that runs; one that nodes hold up ends by itself."""
        if self._round is not None:
            self._round.join(timeout=WAIT_SECONDS)

    def round(self) -> None:
        """Ask every listener once, and look at the certificates of those that isrwatch does not use, too."""
        before, self.answers = self.answers, ask_all(self._current(), self._dials)
        was_silent = {(each.role, each.node) for each, reason in before.items() if reason and each.node}
        for listener, reason in self.answers.items():
            if reason and not before.get(listener):
                self._report(in_words(self._described(listener), reason))
            elif not reason and before.get(listener, (listener.role, listener.node) in was_silent):
                self._report(f"{self._described(listener)} responds again")
        self.certificates.round([listener.address for listener, reason in self.answers.items() if reason])
        self._throttling.round(monotonic())
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
CERTIFICATE: Final = ("cluster", "role", "node", "listener", "address")
PROPERTY: Final = ("cluster", "property")
NODE: Final = ("cluster", "node")
_COUNTERS: Final = {
    "requests": "Requests that were sent to a node.",
    "sent_bytes": "Bytes of requests.",
    "received_bytes": "Bytes of responses.",
    "errors": "Connections and requests that failed, and logins that were refused.",
    "throttled_ms": "Seconds for which a node was to read nothing of us, because of a quota (KIP-219).",
}
_IN_SECONDS: Final = {"throttled_ms": ("throttled_seconds", 1_000)}
"""Counters of another name and unit than their counts."""


class ConnectionMetrics(Collector):
    """Connection metrics of listeners.

    Args:
        settings: name the collector's own certificates.
        answers: returns of each listener why it does not respond, "" if it does.
        peers: what connections saw of each address.
        shown: returns what each listener with TLS has shown, also of those that isrwatch does not use.
        responders: returns who answered at listeners.
    """

    def __init__(
        self,
        settings: Settings,
        answers: Callable[[], Mapping[Listener, str]],
        peers: Peers,
        shown: Callable[[], Mapping[SecuredListener, Shown]],
        responders: Callable[[], Mapping[Listener, Responder]] = dict,
    ) -> None:
        self._settings, self._answers, self._peers = settings, answers, peers
        self._shown, self._responders = shown, responders
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
            if not isinstance(reason, NotAsked):
                up.add_metric(labels, float(not reason))
        for key, end in own_expiries(self._settings).items():
            own.add_metric([self._cluster, key], end)
        yield from (up, wrong, *self._certificates(), own, *self._counters())

    def _certificates(self) -> Iterator[Metric]:
        """Give the certificates of all listeners with TLS: those that nodes have registered, and others we use."""
        expiry = GaugeMetricFamily(
            f"{PREFIX}listener_certificate_expiry_timestamp_seconds",
            "When the certificate that a listener showed last, or the first that signs it, expires, since 1970.",
            labels=CERTIFICATE,
        )
        unseen = GaugeMetricFamily(
            f"{PREFIX}listener_certificate_unseen",
            "1 if a listener with TLS showed no certificate when it was last asked: until when it holds is not known.",
            labels=CERTIFICATE,
        )
        shown = self._shown()
        for one, seen in shown.items():
            labels = [self._cluster, one.role, one.node, one.name, str(one.address)]
            unseen.add_metric(labels, float(bool(seen.why_unseen)))
            if seen.ends_at is not None:
                expiry.add_metric(labels, seen.ends_at)
        registered, responders = {one.address for one in shown}, self._responders()
        for listener in self._answers():
            by = responders.get(listener)
            if listener.address in registered or (by is not None and by.is_meant is False):
                continue
            ends_at = self._peers.at(listener.address).certificate_expires_at
            if ends_at is not None:
                expiry.add_metric([self._cluster, listener.role, listener.node, "", str(listener.address)], ends_at)
        yield from (expiry, unseen)

    def _counters(self) -> Iterator[Metric]:
        """Count by node, or by address where no node with this address is known yet."""
        node_of = {str(each.address): each.node or str(each.address) for each in self._answers()}
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for address, peer in self._peers.all().items():
            sums[node_of.get(address, address)].update({name: getattr(peer, name) for name in _COUNTERS})
        for name, meaning in _COUNTERS.items():
            metric, unit = _IN_SECONDS.get(name, (name, 1))
            counter = CounterMetricFamily(f"{PREFIX}connection_{metric}", meaning, labels=NODE)
            for node, counts in sums.items():
                counter.add_metric([self._cluster, node], counts[name] / unit)
            yield counter


# Quotas on isrwatch itself, which make its samples late and say nothing about a broker.


THROTTLED_SHARE: Final = 0.01


class ThrottleWatch:
    """Says when nodes begin to throttle isrwatch, and when they have stopped."""

    def __init__(self, peers: Peers, report: Callable[[str], None]) -> None:
        self._peers, self._report = peers, report
        self._before: dict[str, int] = {}
        self._at: Micros | None = None
        self._throttled: frozenset[str] = frozenset()

    def round(self, now: Micros) -> None:
        """Compare what was counted since the last round; the first only counts."""
        counted = {address: peer.throttled_ms for address, peer in self._peers.all().items()}
        before, self._before = self._before, counted
        began, self._at = self._at, now
        if began is None or now <= began:
            return
        shares = {
            address: MILLISECOND * (millis - before.get(address, 0)) / (now - began)
            for address, millis in counted.items()
        }
        throttled = frozenset(address for address, share in shares.items() if share > THROTTLED_SHARE)
        if throttled - self._throttled:
            self._report(throttled_words({address: shares[address] for address in sorted(throttled)}))
        elif self._throttled and not throttled:
            self._report("no broker throttles isrwatch any more")
        self._throttled = throttled


def throttled_words(shares: Mapping[str, float]) -> str:
    """Say who throttles isrwatch, for which share of the time."""
    who = ", ".join(f"{address} for {min(share, 1.0):.0%} of the time" for address, share in shares.items())
    return (
        f"isrwatch is throttled by a quota: {who}; its samples come late, which is not the brokers' fault: raise "
        "request_percentage of its user or client id isrwatch by kafka-configs --alter --add-config"
    )
