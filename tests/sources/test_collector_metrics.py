"""The collector's own page: what each source reported, whether it answers, and health that asks for partition state."""

from __future__ import annotations

import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streaming.errors import ConnectionRefused
from streaming.runtime.listening import address_of, listen
from streaming.sources.collector.collector import Collector
from streaming.web.status import StatusServer
from tests.sources.test_collector import Scripted, WithUndecodable, heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.contracts.observations import Observation

LOG, ADMIN = "metadata_log:a", "admin:a"


class Ordering(Scripted):
    is_primary = False


class Kept:
    def publish(self, observations: Any) -> None:
        self.last = observations

    def publish_raw(self, *raw: Any) -> None:
        self.raw = raw

    def close(self) -> None:
        """Keep everything."""


def collected(*sources: Scripted) -> Collector:
    """Run sources until each has reported all that it has."""
    collector = Collector(sources, Kept, cluster="prod")  # type: ignore[arg-type]
    collector.start()
    for source in sources:
        assert source.is_over.wait(30)
    collector.stop()
    collector.wait()
    return collector


def values(text: str) -> dict[tuple[str, str], float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (sample.name.removeprefix("isrwatch_collector_"), sample.labels.get("source", "")): sample.value
        for sample in samples
    }


@pytest.fixture
def page() -> Iterator[Any]:
    servers: list[StatusServer] = []

    def of(collector: Collector) -> Any:
        opened = listen("127.0.0.1:0", "--listen")
        address = address_of(opened)
        metrics = collector.metrics
        servers.append(
            StatusServer([opened], metrics.registry, metrics.problems, program="collect", prefix="", healthy="it reads")
        )

        def get(path: str) -> tuple[int, str]:
            try:
                with closing(urllib.request.urlopen(f"http://{address}{path}", timeout=10)) as response:
                    return response.status, response.read().decode()
            except HTTPError as refusal:
                return refusal.code, refusal.read().decode()

        return get

    yield of
    for server in servers:
        server.close()


def beats(source: str, count: int) -> list[Observation]:
    return [heartbeat(source, at) for at in range(count)]


def test_what_a_source_reported_is_counted_and_whether_it_answers(page: Any) -> None:
    log = WithUndecodable(LOG, beats(LOG, 2), [], beats(LOG, 3))
    admin = Scripted(ADMIN, ConnectionRefused("no broker answers"), ConnectionRefused("no broker answers"))
    _, text = page(collected(log, admin))("/metrics")

    found = values(text)
    assert 'isrwatch_collector_source_up{cluster="prod",source="metadata_log:a"} 1.0' in text
    assert found["observations_total", LOG] == 5
    assert found["undecodable_total", LOG] == 1
    assert found["refused_polls_total", LOG] == 0
    assert found["refused_polls_total", ADMIN] == 2
    assert found["observations_total", ADMIN] == 0
    assert found["source_up", LOG] == 1
    assert f'last_publication_timestamp_seconds{{cluster="prod",kind="heartbeat",source="{LOG}"}}' in text


def test_it_is_healthy_while_one_of_both_reads_partition_state_and_else_says_why_none_does(page: Any) -> None:
    log, admin = Ordering(LOG, ConnectionRefused("grant ClusterAction")), Ordering(ADMIN, [])
    collector = Collector([log, admin], Kept)  # type: ignore[arg-type]
    get = page(collector)
    assert get("/-/healthy") == (503, "no source has read partition state yet\n")

    collector.metrics.refused(log, ConnectionRefused("grant ClusterAction"))
    assert get("/-/healthy") == (503, "metadata_log:a: grant ClusterAction\n")

    admin.is_primary = True
    collector.metrics.published(admin, beats(ADMIN, 1), 0)
    assert get("/-/healthy") == (200, "it reads\n")
    assert values(get("/metrics")[1])["primary_source", ADMIN] == 1
    assert values(get("/metrics")[1])["primary_source", LOG] == 0

    collector.metrics.refused(admin, ConnectionRefused("no broker answers"))
    assert get("/-/healthy")[0] == 503


def test_a_source_that_orders_nothing_makes_nobody_unhealthy(page: Any) -> None:
    assert page(collected(Scripted("simulated:a", beats("simulated:a", 1))))("/-/healthy")[0] == 200
