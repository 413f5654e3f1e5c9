"""Connections as metrics, read at each scrape: which listeners respond, how much is asked, when certificates expire.

librdkafka's own connections are not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from streaming.sources.collector_metrics import PREFIX
from streaming.sources.listeners import own_expiries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import Metric

    from streaming.settings import Settings
    from streaming.sources.listeners import Listener
    from streaming.sources.protocol.peers import Peers

LISTENER: Final = ("cluster", "role", "node", "address")
PROPERTY: Final = ("cluster", "property")
NODE: Final = ("cluster", "node")
_COUNTERS: Final = {
    "requests": "Requests that were sent to a node; librdkafka's are not counted.",
    "sent_bytes": "Bytes of requests.",
    "received_bytes": "Bytes of responses.",
    "errors": "Connections and requests that failed, and logins that were refused.",
}


class ConnectionMetrics(Collector):
    """What was seen of listeners.

    Args:
        settings: name the collector's own certificates.
        answers: returns of each listener why it does not respond, "" if it does.
        peers: what connections saw of each address.
    """

    def __init__(self, settings: Settings, answers: Callable[[], Mapping[Listener, str]], peers: Peers) -> None:
        self._settings, self._answers, self._peers = settings, answers, peers
        self._cluster = settings.cluster.name

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of now. A node that does not respond keeps the certificate that it showed last."""
        up = GaugeMetricFamily(
            f"{PREFIX}listener_up",
            "1 if a listener responded when it was last asked; the log has the reason.",
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
        for listener, reason in self._answers().items():
            labels = [self._cluster, listener.role, listener.node, str(listener.address)]
            up.add_metric(labels, float(not reason))
            expires_at = self._peers.at(listener.address).certificate_expires_at
            if expires_at is not None:
                expiry.add_metric(labels, expires_at)
        for key, end in own_expiries(self._settings).items():
            own.add_metric([self._cluster, key], end)
        yield from (up, expiry, own, *self._counters())

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
