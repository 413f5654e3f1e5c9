"""The brokers' own metrics, scraped from their Prometheus JMX exporters over HTTP.

Depends on HTTP, Prometheus' text format and the contracts. Each endpoint has its own thread and its own timeout, so a
dead broker delays no other. Only the aggregates of :mod:`broker_metrics_names` are kept: per-partition series make JMX
slow, and the other sources read partitions more precisely.
"""

from __future__ import annotations

import ssl
import time
from base64 import b64encode
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Observation, SourceKind
from streaming.contracts.sample_blocks import BrokerMetricsObserved
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.broker_metrics_names import (
    PRODUCE_MEAN_MS,
    PRODUCE_REQUESTS,
    BrokerExposition,
    parse_exposition,
)
from streaming.sources.protocol.tls import SUPPORTED, VERIFICATION, Tls
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming.sources.append_times import AppendTimes

NO_METRIC: Final = "has no known metric; configure the JMX exporter with conf/jmx-exporter.yml"
TABLE: Final = "collect.broker_metrics_client"
LOGIN: Final = "basic.auth.user.info"
_LOGIN_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_FAILURES: Final = 3  # in turn, of an exporter that has worked, before they are reported
_MAX_BLOCK_SECONDS: Final = 1.0
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024  # an exporter without an allow-list gives 4 MB at 3,000 partitions
_CHUNK_BYTES: Final = 64 * 1024


def endpoints_from(settings: Mapping[str, str]) -> dict[BrokerId, str]:
    """Parse ``collect.broker_metrics``: broker id to URL.

    Raises:
        ConfigurationError: a key is not a broker id, or a URL is not an HTTP URL.
    """
    endpoints: dict[BrokerId, str] = {}
    for broker, url in settings.items():
        if not broker.isdecimal():
            raise ConfigurationError(f'collect.broker_metrics: {broker!r} is no broker id; write "1" = "http://..."')
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigurationError(f"collect.broker_metrics: the address of broker {broker} is no http:// address")
        endpoints[BrokerId(int(broker))] = url
    return endpoints


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


def without_login(url: str) -> str:
    """Return an address as it may be printed."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@dataclass(slots=True)
class _Endpoint:
    """One broker's exporter and its scrape in flight."""

    broker: BrokerId
    url: str
    due: Timer
    requested_at: Micros | None = None
    response: Future[BrokerExposition] | None = None
    has_worked: bool = False
    failures: int = 0  # in turn
    problem: str = ""


class BrokerMetricsSource:
    """Scrapes every broker's exporter once per period; a broker that does not respond in time is left out.

    Args:
        endpoints: broker id to the URL of its exporter.
        cluster_id: gives Kafka's cluster id, which no metric has; None while it is unknown, and nothing is scraped.
        cluster: the display name of the cluster.
        name: name of the source on the bus, for example ``broker_metrics:collector-1``.
        client: TLS and login.
        append_times: takes how long brokers append.
        period_micros: scrape interval.
        timeout_seconds: timeout of one scrape.
    """

    def __init__(  # noqa: PLR0913 - one argument per setting
        self,
        *,
        endpoints: Mapping[BrokerId, str],
        cluster_id: Callable[[], ClusterId | None],
        cluster: str,
        name: str,
        period_micros: Micros,
        client: MetricsClient | None = None,
        append_times: AppendTimes | None = None,
        timeout_seconds: float = 5.0,
    ) -> None:
        self.name = name
        self._cluster_id = cluster_id
        self._identity: dict[str, Any] = {"cluster": cluster, "source": name, "authority": SourceKind.NONE}
        self._endpoints = [_Endpoint(broker, url, Timer(period_micros)) for broker, url in endpoints.items()]
        self._timeout, self._client = timeout_seconds, client or client_from({})
        self._append_times = append_times
        self._scrapers = ThreadPoolExecutor(max_workers=max(1, len(endpoints)), thread_name_prefix=name)

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the samples that have arrived, or wait for the next for at most a second.

        Raises:
            ConnectionRefused: an exporter does not return a known metric; raised when it begins, for each exporter.
        """
        if (cluster_id := self._cluster_id()) is None:
            time.sleep(_MAX_BLOCK_SECONDS)
            return []
        self._identity["cluster_id"] = cluster_id
        began = time.monotonic()
        until = began + _MAX_BLOCK_SECONDS
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
                metric_by_sample=tuple(sorted(samples)),
                metric_value_by_sample=tuple(samples[metric] for metric in sorted(samples)),
            )
            for broker, samples in ((endpoint.broker, exposition.own), *exposition.of_brokers.items())
        ]

    def _note_problem(self, endpoint: _Endpoint, problem: str) -> None:
        """Keep the problem of an exporter when it begins. One that has worked may only be restarted with its broker."""
        endpoint.failures += 1
        if endpoint.failures == (_FAILURES if endpoint.has_worked else 1):
            since = ", which has worked before," if endpoint.has_worked else ""
            endpoint.problem = (
                f"the metrics endpoint {without_login(endpoint.url)} of broker {endpoint.broker}{since} {problem}"
            )

    def _raise_problem(self) -> None:
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
    with opener.open(_request(url, client.login), timeout=timeout_seconds) as response:
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
