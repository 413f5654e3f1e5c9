"""The brokers' own metrics, scraped from their Prometheus JMX exporters over HTTP.

Depends on HTTP, Prometheus' text format and the contracts. Each endpoint has its own thread and its own timeout, so a
dead broker delays no other. Only the aggregates of ``METRICS`` are kept: per-partition series make JMX
slow, and the other sources read partitions more precisely.
"""

from __future__ import annotations

import math
import re
import ssl
import time
from base64 import b64encode
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from prometheus_client.parser import text_string_to_metric_families

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Observation, SourceKind
from streaming.contracts.sample_blocks import BrokerMetricsObserved
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.secret_values import as_of_now
from streaming.sources.agents import APP_INFO, Agents, AgentWatch, Figures, Hosted, node_ids_in, sharing, without_login
from streaming.sources.append_times import AppendTimes
from streaming.sources.protocol.connection import ServiceRefused
from streaming.sources.protocol.tls import SUPPORTED, VERIFICATION, Tls
from streaming.sources.source import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from streaming.sources.polling.view import ClusterView

NO_METRIC: Final = "has no known metric; configure the JMX exporter with conf/jmx-exporter.yml"
MOST_BROKERS: Final = 1_000
"""The most agents of a pattern that are scraped."""
_UNLISTED_MICROS: Final = 3_600_000_000
"""An agent of a pattern is scraped for an hour after its broker was last listed: it says whether that one recovers."""
TABLE: Final = "collect.broker_metrics_client"
LOGIN: Final = "basic.auth.user.info"
_LOGIN_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_FAILURES: Final = 3  # in turn, of an exporter that has worked, before they are reported
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024  # an exporter without an allow-list gives 4 MB at 3,000 partitions
_CHUNK_BYTES: Final = 64 * 1024


def client_from(settings: Mapping[str, str]) -> MetricsClient:
    """Parse ``[collect.broker_metrics_client]``.

    Raises:
        ConfigurationError: a property is not supported, or a file cannot be used.
    """
    supported = SUPPORTED | {VERIFICATION, LOGIN}
    if unsupported := sorted(settings.keys() - supported):
        raise ConfigurationError(f"{TABLE} has no {unsupported[0]}; it has {', '.join(sorted(supported))}")
    if ":" not in settings.get(LOGIN, ":"):
        raise ConfigurationError(f'{TABLE} {LOGIN} has no colon; write "user:password"')
    tls = Tls({key: value for key, value in settings.items() if key != LOGIN}, TABLE)
    tls.context()
    return MetricsClient(tls, settings.get(LOGIN, ""))


@dataclass(frozen=True, slots=True)
class MetricsClient:
    """TLS and login for exporters; the login is that of an address that has none of its own."""

    tls: Tls
    login: str = field(default="", repr=False)


def no_response(failure: Exception) -> str:
    """Say why a scrape failed, and the fix."""
    reason = failure.reason if isinstance(failure, URLError) else failure
    fix = "check the URL in collect.broker_metrics"
    if isinstance(reason, ssl.SSLError):
        fix = f"check the ssl keys of {TABLE}"
    elif isinstance(failure, HTTPError) and failure.code in _LOGIN_REFUSED:
        fix = f"check {LOGIN} of {TABLE}, or the login in the URL"
    return f"does not respond: {reason}; {fix}"


@dataclass(slots=True)
class _Endpoint:
    """One broker's exporter and its scrape in flight."""

    broker: BrokerId
    url: str
    due: Timer
    listed_at: Micros  # by the monotonic clock
    requested_at: Micros | None = None
    response: Future[BrokerExposition] | None = None
    has_worked: bool = False
    failures: int = 0  # in turn
    problem: str = ""
    doubt: str = ""


class BrokerMetricsSource:
    """Scrapes every broker's exporter once per period; a broker that does not respond in time is left out.

    Args:
        agents: the URLs of the exporters.
        cluster_id: gives Kafka's cluster id, which no metric has; None while it is unknown, and nothing is scraped.
        cluster: the display name of the cluster.
        name: name of the source on the bus, for example ``broker_metrics:collector-1``.
        client: TLS and login.
        append_times: takes how long brokers append.
        view: gives the newest view of the cluster, None before; an agent follows its broker to another host.
        period_micros: scrape interval.
        timeout_seconds: timeout of one scrape.
        block_seconds: how long a poll waits for samples at most.
    """

    def __init__(  # noqa: PLR0913 - one argument per setting
        self,
        *,
        agents: Agents,
        cluster_id: Callable[[], ClusterId | None],
        cluster: str,
        name: str,
        period_micros: Micros,
        client: MetricsClient | None = None,
        append_times: AppendTimes | None = None,
        view: Callable[[], ClusterView | None] = lambda: None,
        timeout_seconds: float = 5.0,
        block_seconds: float = 1.0,
    ) -> None:
        self.name = name
        self._cluster_id = cluster_id
        self._identity: dict[str, Any] = {"cluster": cluster, "source": name, "source_kind": SourceKind.NONE}
        self._agents, self._view, self._period = agents, view, period_micros
        self._watch, self._problems, self._missing = AgentWatch(view), deque[str](), ""
        self._shared_urls, self._sharing = dict[BrokerId, str](), dict[BrokerId, list[BrokerId]]()
        self._by_broker: dict[BrokerId, _Endpoint] = {}
        self._timeout, self._block, self._client = timeout_seconds, block_seconds, client or client_from({})
        self._append_times = append_times
        most = max(1, len(agents.by_broker)) + (MOST_BROKERS if agents.pattern else 0)
        self._scrapers = ThreadPoolExecutor(max_workers=most, thread_name_prefix=name)

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the samples that have arrived, or wait for the next for a moment.

        Raises:
            ConnectionRefused: an exporter does not return a known metric; raised when it begins, for each exporter.
        """
        if (cluster_id := self._cluster_id()) is None:
            time.sleep(self._block)
            return []
        self._identity["cluster_id"] = cluster_id
        self._follow()
        began = time.monotonic()
        until = began + self._block
        while True:
            moment = Micros(now + int((time.monotonic() - began) * 1_000_000))
            self._scrape_due(moment)
            observations = [item for endpoint in self._endpoints for item in self._take(endpoint, moment)]
            if observations:
                return observations
            self._raise_problem()
            left = until - time.monotonic()
            if left <= 0:
                return []
            self._wait(left)

    def acknowledge(self) -> None:
        """Do nothing: a scrape has no position."""

    def close(self) -> None:
        """Stop the threads; a scrape in flight ends by its own timeout."""
        self._scrapers.shutdown(wait=False, cancel_futures=True)

    @property
    def urls(self) -> dict[BrokerId, str]:
        """The address of each agent that is scraped now."""
        return {broker: endpoint.url for broker, endpoint in self._by_broker.items()}

    @property
    def _endpoints(self) -> Collection[_Endpoint]:
        return self._by_broker.values()

    def _follow(self) -> None:
        """Take over the brokers that are listed now, and forget those of a pattern that have not been for long."""
        moment = monotonic()
        view = self._view()
        hosts = {} if view is None else {broker: host for broker, (host, _) in view.brokers.items()}
        self._name_missing(hosts)
        for broker, url in self._agents.urls(hosts).items():
            endpoint = self._by_broker.get(broker)
            if endpoint is None and len(self._by_broker) >= len(self._agents.by_broker) + MOST_BROKERS:
                continue
            if endpoint is None or endpoint.url != url:
                endpoint = self._by_broker[broker] = _Endpoint(broker, url, Timer(self._period), moment)
            endpoint.listed_at = moment
        gone = [each.broker for each in self._endpoints if moment - each.listed_at > _UNLISTED_MICROS]
        for broker in gone:
            del self._by_broker[broker]
        if self.urls != self._shared_urls:
            self._shared_urls = self.urls
            self._sharing = sharing(self._shared_urls)

    def _name_missing(self, brokers: Collection[BrokerId]) -> None:
        """Say which brokers have no agent, when that has changed."""
        missing = self._agents.without(brokers)
        if missing and missing != self._missing:
            self._problems.append(missing)
        self._missing = missing or self._missing

    def _scrape_due(self, now: Micros) -> None:
        for endpoint in self._endpoints:
            if endpoint.response is None and endpoint.due.take_due(monotonic()):
                endpoint.requested_at = now
                endpoint.response = self._scrapers.submit(scrape, endpoint.url, self._timeout, self._client)

    def _take(self, endpoint: _Endpoint, now: Micros) -> list[BrokerMetricsObserved]:
        if endpoint.response is None or endpoint.requested_at is None or not endpoint.response.done():
            return []
        response, endpoint.response = endpoint.response, None
        try:
            exposition = response.result()
        except (OSError, ValueError, HTTPException, ConfigurationError) as failure:
            self._note_problem(endpoint, no_response(failure))
            return []
        if not exposition.own:
            self._note_problem(endpoint, NO_METRIC)
            return []
        endpoint.has_worked, endpoint.failures = True, 0
        if not self._is_its_own(endpoint, exposition):
            return []
        if self._append_times is not None:
            requests, mean_ms = (exposition.own.get(name) for name in (PRODUCE_REQUESTS, PRODUCE_MEAN_MS))
            self._append_times.put(endpoint.broker, requests, mean_ms, monotonic())
        envelope = {
            **self._identity,
            "occurred_not_before": endpoint.requested_at,
            "occurred_not_after": max(endpoint.requested_at, now),  # the clock may have been set back
            "collected_at": now,
        }
        return [
            BrokerMetricsObserved(
                **envelope,
                broker=broker,
                arrays={
                    "metric": tuple(sorted(samples)),
                    "metric_value": tuple(samples[metric] for metric in sorted(samples)),
                },
            )
            for broker, samples in ((endpoint.broker, exposition.own), *exposition.of_brokers.items())
        ]

    def _is_its_own(self, endpoint: _Endpoint, exposition: BrokerExposition) -> bool:
        """Return whether an agent is that of its broker, or may be; say once why it is not."""
        others = self._sharing.get(endpoint.broker, ())
        doubt = self._watch.doubt(endpoint.broker, endpoint.url, others, exposition.figures)
        sentence = "" if doubt is None else doubt.sentence
        if sentence and sentence != endpoint.doubt:
            self._problems.append(sentence)
        endpoint.doubt = sentence
        return doubt is None or not doubt.is_proven

    def _note_problem(self, endpoint: _Endpoint, problem: str) -> None:
        """Keep the problem of an exporter when it begins. One that has worked may only be restarted with its broker."""
        endpoint.failures += 1
        if endpoint.failures == (_FAILURES if endpoint.has_worked else 1):
            since = ", which has worked before," if endpoint.has_worked else ""
            endpoint.problem = (
                f"the metrics endpoint {without_login(endpoint.url)} of broker {endpoint.broker}{since} {problem}"
            )

    def _raise_problem(self) -> None:
        if self._problems:
            raise ServiceRefused(self._problems.popleft())
        for endpoint in self._endpoints:
            if endpoint.problem:
                problem, endpoint.problem = endpoint.problem, ""
                raise ConnectionRefused(problem)

    def _wait(self, left: float) -> None:
        in_flight = [endpoint.response for endpoint in self._endpoints if endpoint.response is not None]
        now = monotonic()
        idle = [endpoint.due.next_at - now for endpoint in self._endpoints if endpoint.response is None]
        seconds = min([left, *(max(0.001, micros / 1_000_000) for micros in idle)])
        if in_flight:
            wait(in_flight, timeout=seconds, return_when=FIRST_COMPLETED)
        else:
            time.sleep(seconds)


def scrape(url: str, timeout_seconds: float, client: MetricsClient) -> BrokerExposition:
    """Scrape one exporter.

    Raises:
        OSError, HTTPException: it does not respond, exceeds the timeout, or closes the connection early.
        ConfigurationError: a certificate cannot be read any more.
        ValueError: the response is not in Prometheus' text format.
    """
    return parse_exposition(_body(url, timeout_seconds, client))


def _body(url: str, timeout_seconds: float, client: MetricsClient) -> str:
    """Read a response within one timeout for all of it: a socket's own timeout starts again with every byte."""
    until = time.monotonic() + timeout_seconds
    parts: list[bytes] = []
    # Brokers are on the internal network, so the proxy of the environment is not used.
    tls = [HTTPSHandler(context=client.tls.context())] if urlsplit(url).scheme == "https" else []
    opener = build_opener(ProxyHandler({}), *tls)
    with opener.open(_request(url, as_of_now(client.login)), timeout=timeout_seconds) as response:
        while part := response.read1(_CHUNK_BYTES):
            parts.append(part)
            if time.monotonic() > until or sum(map(len, parts)) > _MAX_BODY_BYTES:
                raise TimeoutError(f"no complete response within {timeout_seconds:g} s")
    return b"".join(parts).decode("utf-8", errors="replace")


def _request(url: str, login: str) -> Request:
    """Send a login as basic authentication (RFC 7617); ``urllib`` takes one in an address for a part of the host.

    It is not sent to where the exporter redirects, which may be another host.
    """
    request = Request(without_login(url))  # noqa: S310 - http or https, as endpoints_from checks
    own = unquote(urlsplit(url).netloc.rpartition("@")[0])
    if login := own or login:
        request.add_unredirected_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    return request


# The broker metrics that are kept of an exporter's page, and their names under the usual JMX exporter rules.
#
# Most are the aggregates of the broker that has them. What it still has to recover is a sum over its directories and
# threads (KIP-831); what the active controller says of other brokers has their numbers as labels (KAFKA-18666).
#
# Pure. The same MBean has many names: the exporter's own Kafka example and Strimzi write ``isrshrinks_total``, Grafana
# Cloud and Confluent ``isrshrinkspersec``, Bitnami ``total_isrshrinkspersec_count``, Strimzi's reporter
# ``isrshrinkspersec_total``, and an exporter without rules ``Count{name="IsrShrinksPerSec"}``. The first one is
# stored.


PARTITIONS: Final = "kafka_server_replicamanager_partitioncount"
LEADERS: Final = "kafka_server_replicamanager_leadercount"
MAX_LAG: Final = "kafka_server_replicafetchermanager_maxlag"
FAILED_PARTITIONS: Final = "kafka_server_replicafetchermanager_failedpartitionscount"
_POOL: Final = "kafka_server_kafkarequesthandlerpool"
_IDLE: Final = "requesthandleravgidlepercent"
HANDLERS_IDLE: Final = f"{_POOL}_{_IDLE}"
METRICS: Final = frozenset(
    {
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_replicamanager_underminisrpartitioncount",
        "kafka_server_replicamanager_atminisrpartitioncount",
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka_server_replicamanager_isrexpands_total",
        "kafka_server_replicamanager_failedisrupdates_total",
        PARTITIONS,
        LEADERS,
        "kafka_server_replicamanager_reassigningpartitions",
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        "kafka_controller_kafkacontroller_fencedbrokercount",
        "kafka_controller_kafkacontroller_activebrokercount",
        "kafka_controller_kafkacontroller_globaltopiccount",
        "kafka_controller_kafkacontroller_globalpartitioncount",
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        "kafka_controller_controllerstats_electionfromeligibleleaderreplicas_total",
        "kafka_log_logmanager_offlinelogdirectorycount",
        "kafka_log_logcleaner_deadthreadcount",
        "kafka_controller_kafkacontroller_metadataerrorcount",
        "kafka_server_kafkaserver_brokerstate",
        "kafka_server_broker_metadata_metrics_metadata_load_error_count",
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
        FAILED_PARTITIONS,
        MAX_LAG,
        # Load, and how much of it a broker can still take.
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_server_brokertopicmetrics_bytesout_total",
        HANDLERS_IDLE,
        "kafka_network_socketserver_networkprocessoravgidlepercent",
    }
)
ACTIVE_CONTROLLER: Final = "kafka_controller_kafkacontroller_activecontrollercount"
OF_BROKERS: Final = frozenset(
    {
        "kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms",
        "kafka_controller_kafkacontroller_brokerregistrationstate",
    }
)
PRODUCE_REQUESTS: Final = "kafka_network_requestmetrics_localtimems_produce_count_total"
PRODUCE_MEAN_MS: Final = "kafka_network_requestmetrics_localtimems_produce_mean"
"""Mean time of the broker's own part of a produce request; see :mod:`append_times`."""
PERCENTILES: Final = frozenset(
    f"kafka_network_requestmetrics_totaltimems_{request}_99thpercentile" for request in ("produce", "fetchconsumer")
)
"""Milliseconds within which a broker answers 99 % of the requests of producers, and of the fetches of consumers."""
SUMMED: Final = {
    "kafka_log_logmanager_remaininglogstorecover": {"dir"},
    "kafka_log_logmanager_remainingsegmentstorecover": {"dir", "threadnum"},
}

# With an underscore at the end: "kafka_server_broker" alone begins the names of thousands of lines about topics.
_MBEANS: Final = {"_".join(name.split("_")[:3]) + "_" for name in METRICS}
# Times of requests are thousands of lines, and so are the bytes of topics: of either only the few that are kept.
_OF_REQUESTS: Final = (
    r"kafka_network_requestmetrics_\w*(?:count|mean|_total|99thpercentile|totaltimems)\{"
    r"[^}]*=\"(?:produce|fetchconsumer)\""
)
_OF_A_TOPIC: Final = r"(?!\S*\btopic=)"
_KEPT: Final = re.compile(
    rf"\s*(?:(?:#\s*TYPE\s+)?(?:{'|'.join(sorted(_MBEANS))}){_OF_A_TOPIC}|{_OF_REQUESTS}|{APP_INFO})", re.IGNORECASE
)
_METER: Final = re.compile(r"persec(?:_total|_count|_count_total)?$")
_INFIX: Final = re.compile(r"^(kafka_[a-z]+_[a-z]+)_total_")
_REPLICA_FETCHERS: Final = {"clientid": "replica"}
_PERCENTILE: Final = "99thpercentile"
_QUANTILES: Final = {"0.99": _PERCENTILE}
"""The name of the percentile in the label of other rules."""
_REQUEST_FIGURES: Final = {
    ("kafka_network_requestmetrics_localtimems", "produce", "count"): PRODUCE_REQUESTS,
    ("kafka_network_requestmetrics_localtimems", "produce", "mean"): PRODUCE_MEAN_MS,
    **{("kafka_network_requestmetrics_totaltimems", name.split("_")[4], _PERCENTILE): name for name in PERCENTILES},
}
_IDLE_SHARES: Final = {
    (HANDLERS_IDLE, None),
    (f"{HANDLERS_IDLE}_oneminuterate", None),
    (f"{_POOL}_requesthandleravgidle_percent", None),
    (f"{_POOL}_oneminuterate", _IDLE),
}
"""The share of the last minute, with rules and without. The meter's count is nanoseconds, and no share."""
_LINES_OF_A_FORMAT: Final = 100  # show whether a page without any known metric is one of metrics at all
_NUMBER: Final = re.compile(r"\d{1,9}")


class BrokerExposition(NamedTuple):
    """Response of an exporter: metrics of its broker, and those of other brokers if it is the active controller.

    Only the active controller hears their heartbeats; another one may be late. ``node_ids``: those that it says it has.
    """

    own: dict[str, float]
    of_brokers: dict[BrokerId, dict[str, float]]
    node_ids: frozenset[int] = frozenset()

    @property
    def figures(self) -> Figures:
        """The figures that show whose exporter it is."""
        counts = [self.own.get(name) for name in (PARTITIONS, LEADERS)]
        return Figures(self.node_ids, None if None in counts else Hosted(*(int(each or 0) for each in counts)))


def parse_exposition(text: str) -> BrokerExposition:
    """Parse what is kept of a page, a few lines of many thousands: normalised metric name to value, all finite.

    Raises:
        ValueError: it is not in Prometheus' text format.
    """
    lines = text.split("\n")
    kept = [line for line in lines if may_be_kept(line)] or lines[:_LINES_OF_A_FORMAT]
    own: dict[str, float] = {}
    of_brokers: dict[BrokerId, dict[str, float]] = {}
    node_ids: frozenset[int] = frozenset()
    for family in text_string_to_metric_families("\n".join(kept)):
        for sample in family.samples:
            node_ids |= node_ids_in(sample.name, sample.labels)
            metric, value = normalised(sample.name, sample.labels), float(sample.value)
            if metric is None or not math.isfinite(value):
                continue
            if metric in OF_BROKERS:
                of_brokers.setdefault(BrokerId(int(_lowered(sample.labels)["broker"])), {})[metric] = value
            else:
                own[metric] = value + (own.get(metric, 0.0) if metric in SUMMED else 0.0)
    return BrokerExposition(own, of_brokers if own.get(ACTIVE_CONTROLLER) == 1 else {}, node_ids)


def may_be_kept(line: str) -> bool:
    """Return whether a line of a page is of an MBean of which something is kept; then it is worth to be parsed.

    >>> may_be_kept('kafka_log_Log_Size{topic="orders",partition="0"} 17.0')
    False
    """
    return _KEPT.match(line) is not None


def normalised(sample: str, labels: Mapping[str, str]) -> str | None:
    """Return the stored name of a sample, None when it is not kept.

    A sample with labels is dropped, because it is not the aggregate of its broker; except for the MBean's own name,
    which an exporter without rules leaves in a label, the client id of the replica fetchers, the labels of ``SUMMED``
    and ``OF_BROKERS``, and those of requests.

    >>> normalised("kafka_server_ReplicaManager_total_IsrShrinksPerSec_count", {})
    'kafka_server_replicamanager_isrshrinks_total'
    """
    rest = _lowered(labels)
    name = sample.lower()
    bean = rest.pop("name", None)
    if "request" in rest:
        return _of_requests(name, bean, rest)
    if name.startswith(_POOL):
        return HANDLERS_IDLE if not rest and (name, bean) in _IDLE_SHARES else None
    if bean is not None:
        name = f"{re.sub('_(value|count)(_total)?$', '', name)}_{bean}"
    name = _METER.sub("_total", _INFIX.sub(r"\1_", name)).removesuffix("_value")
    name = re.sub("idle_percent$", "idlepercent", name)
    if name in METRICS:
        is_kept = not rest or (name in {FAILED_PARTITIONS, MAX_LAG} and rest == _REPLICA_FETCHERS)
    else:
        is_of_broker = name in OF_BROKERS and rest.keys() == {"broker"} and _NUMBER.fullmatch(rest["broker"])
        is_kept = bool(is_of_broker) or rest.keys() == SUMMED.get(name)
    return name if is_kept else None


def _of_requests(name: str, bean: str | None, labels: Mapping[str, str]) -> str | None:
    """Return the stored name of a figure of requests; without rules the MBean's own name is in a label."""
    if labels.keys() - {"request", "quantile"}:
        return None
    quantile = labels.get("quantile")
    subject, _, figure = name.removesuffix("_total").rpartition("_") if quantile is None else (name, "", "")
    figure = figure if quantile is None else _QUANTILES.get(quantile, "")
    subject = f"{subject}_{bean}" if bean else subject
    return _REQUEST_FIGURES.get((subject, labels["request"], figure))


def _lowered(labels: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value.lower() for key, value in labels.items()}
