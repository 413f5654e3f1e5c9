"""The brokers' own metrics, scraped from their Prometheus JMX exporters over HTTP.

Knows HTTP, Prometheus' text format and the contracts. Each endpoint has a thread of its own and a limit of its own, so
a dead broker delays nobody. Only the aggregates of :mod:`broker_metrics_names` are kept: per-partition series are what
makes JMX slow, and the other sources know the partitions better.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from prometheus_client.parser import text_string_to_metric_families

from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Authority, Observation
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.sources.broker_metrics_names import normalised

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PATIENCE_SECONDS: Final = 1.0
_LARGEST: Final = 64 * 1024 * 1024  # an exporter without an allow-list gives 4 MB at 3,000 partitions
_CHUNK: Final = 64 * 1024


def endpoints_from(settings: Mapping[str, str]) -> dict[BrokerId, str]:
    """Read ``collect.broker_metrics``: broker id to address.

    Raises:
        ConfigurationError: a key that is no broker id, or an address that is no HTTP address.
    """
    endpoints: dict[BrokerId, str] = {}
    for broker, url in settings.items():
        if not broker.isdecimal():
            raise ConfigurationError(f'collect.broker_metrics: {broker!r} is no broker id; write "1" = "http://..."')
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigurationError(f"collect.broker_metrics: {url!r} of broker {broker} is no http:// address")
        endpoints[BrokerId(int(broker))] = url
    return endpoints


@dataclass(slots=True)
class _Endpoint:
    """One broker's exporter and how asking it stands."""

    broker: BrokerId
    url: str
    due_at: int = 0
    asked_at: Micros | None = None
    answer: Future[dict[str, float]] | None = None
    is_judged: bool = False  # found working once, or complained about
    complaint: str = ""


class BrokerMetricsSource:
    """Scrapes every broker's exporter once a period; what does not answer in time is absent.

    Args:
        endpoints: broker id to the address of its exporter.
        cluster_id: the cluster's id.
        cluster: the name people gave the cluster.
        name: this source on the bus, for example ``broker_metrics:collector-1``.
        period_micros: period of scrapes.
        timeout_seconds: limit of one scrape.
    """

    def __init__(  # noqa: PLR0913 - one argument a setting
        self,
        *,
        endpoints: Mapping[BrokerId, str],
        cluster_id: ClusterId,
        cluster: str,
        name: str,
        period_micros: Micros,
        timeout_seconds: float = 5.0,
    ) -> None:
        self.name = name
        self._identity: dict[str, Any] = {
            "cluster_id": cluster_id,
            "cluster": cluster,
            "source": name,
            "authority": Authority.NONE,
        }
        self._endpoints = [_Endpoint(broker, url) for broker, url in endpoints.items()]
        self._period = period_micros
        self._timeout = timeout_seconds
        self._scrapers = ThreadPoolExecutor(max_workers=max(1, len(endpoints)), thread_name_prefix=name)

    def poll(self, now: Micros) -> Sequence[Observation]:
        """Return the samples that have arrived, or wait for some for at most a second.

        Raises:
            ConnectionRefused: an exporter has never given a metric that we know; told once for each.
        """
        began = time.monotonic()
        until = began + _PATIENCE_SECONDS
        while True:
            moment = Micros(now + int((time.monotonic() - began) * 1_000_000))
            self._ask(moment)
            found = [item for endpoint in self._endpoints for item in self._take(endpoint, moment)]
            if found:
                return found
            self._refuse()
            left = until - time.monotonic()
            if left <= 0:
                return []
            self._wait(moment, left)

    def acknowledge(self) -> None:
        """Do nothing: a scrape has no position."""

    def close(self) -> None:
        """Let go of the threads; a scrape under way ends by its own limit."""
        self._scrapers.shutdown(wait=False, cancel_futures=True)

    def _ask(self, now: Micros) -> None:
        for endpoint in self._endpoints:
            if endpoint.answer is None and now >= endpoint.due_at:
                endpoint.due_at, endpoint.asked_at = now + self._period, now
                endpoint.answer = self._scrapers.submit(scrape, endpoint.url, self._timeout)

    def _take(self, endpoint: _Endpoint, now: Micros) -> list[BrokerMetricObserved]:
        if endpoint.answer is None or endpoint.asked_at is None or not endpoint.answer.done():
            return []
        answer, endpoint.answer = endpoint.answer, None
        try:
            samples = answer.result()
        except (OSError, ValueError, HTTPException) as failure:
            reason = failure.reason if isinstance(failure, URLError) else failure
            self._complain(endpoint, f"does not answer: {reason}; check the address in collect.broker_metrics")
            return []
        if not samples:
            self._complain(endpoint, "has no metric that we know; give the JMX exporter conf/jmx-exporter.yml")
        endpoint.is_judged = endpoint.is_judged or bool(samples)
        return [
            BrokerMetricObserved(
                **self._identity,
                occurred_not_before=endpoint.asked_at,
                occurred_not_after=now,
                collected_at=now,
                broker=endpoint.broker,
                metric=metric,
                metric_value=value,
            )
            for metric, value in sorted(samples.items())
        ]

    def _complain(self, endpoint: _Endpoint, problem: str) -> None:
        """Keep a complaint about an exporter that never worked; one that stops is a broker that stopped."""
        if not endpoint.is_judged:
            endpoint.is_judged = True
            endpoint.complaint = f"the metrics endpoint {endpoint.url} of broker {endpoint.broker} {problem}"

    def _refuse(self) -> None:
        for endpoint in self._endpoints:
            if endpoint.complaint:
                complaint, endpoint.complaint = endpoint.complaint, ""
                raise ConnectionRefused(complaint)

    def _wait(self, now: Micros, left: float) -> None:
        open_answers = [endpoint.answer for endpoint in self._endpoints if endpoint.answer is not None]
        idle = [endpoint.due_at - now for endpoint in self._endpoints if endpoint.answer is None]
        seconds = min([left, *(max(0.001, micros / 1_000_000) for micros in idle)])
        if open_answers:
            wait(open_answers, timeout=seconds, return_when=FIRST_COMPLETED)
        else:
            time.sleep(seconds)


def scrape(url: str, timeout_seconds: float) -> dict[str, float]:
    """Read one exporter: normalised metric name to value, non-numbers left out.

    Raises:
        OSError, HTTPException: it does not answer, or not within the limit, or breaks off.
        ValueError: its answer is not Prometheus' text format.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(_body(url, timeout_seconds)):
        for sample in family.samples:
            metric = normalised(sample.name, sample.labels)
            if metric is not None and math.isfinite(sample.value):
                found[metric] = float(sample.value)
    return found


def _body(url: str, timeout_seconds: float) -> str:
    """Read within a limit for the whole answer: a socket's own limit starts anew with each byte."""
    until = time.monotonic() + timeout_seconds
    parts: list[bytes] = []
    # Brokers are neighbours: the proxy of the environment is for the world outside.
    with build_opener(ProxyHandler({})).open(url, timeout=timeout_seconds) as answer:
        while part := answer.read1(_CHUNK):
            parts.append(part)
            if time.monotonic() > until or sum(map(len, parts)) > _LARGEST:
                raise TimeoutError(f"no complete answer within {timeout_seconds:g} s")
    return b"".join(parts).decode("utf-8", errors="replace")
