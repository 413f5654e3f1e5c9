"""The collector's own page: what each source reported, whether it answers, and health that asks for partition state."""

from __future__ import annotations

import urllib.request
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streaming.errors import ConnectionRefused
from streaming.runtime.listening import address_of, listen
from streaming.sources.collector.collector import Collector
from streaming.web.status import StatusServer
from tests.sources.test_collector import PATIENCE, Scripted, WithUndecodable, heartbeat, running

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
    with running(collector):
        assert all(source.is_over.wait(PATIENCE) for source in sources)
    return collector


def values(text: str) -> dict[tuple[str, str], float]:
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (sample.name.removeprefix("isrwatch_collector_"), sample.labels.get("source", "")): sample.value
        for sample in samples
    }


@pytest.fixture
def page() -> Iterator[Any]:
    with ExitStack() as stack:

        def of(collector: Collector) -> Any:
            opened, metrics = listen("127.0.0.1:0", "--listen"), collector.metrics
            said = {"program": "collect", "prefix": "", "healthy": "it reads"}
            stack.enter_context(closing(StatusServer([opened], metrics.registry, metrics.problems, **said)))
            return partial(get, address_of(opened))

        yield of


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with closing(urllib.request.urlopen(f"http://{address}{path}", timeout=10)) as response:
            return response.status, response.read().decode()
    except HTTPError as refusal:
        return refusal.code, refusal.read().decode()


def beats(source: str, count: int) -> list[Observation]:
    return [heartbeat(source, at) for at in range(count)]


def test_what_a_source_reported_is_counted_and_whether_it_answers(page: Any) -> None:
    log = WithUndecodable(LOG, beats(LOG, 2), [], beats(LOG, 3))
    admin = Scripted(ADMIN, ConnectionRefused("no broker answers"), ConnectionRefused("no broker answers"))
    _, text = page(collected(log, admin))("/metrics")

    found = values(text)
    assert 'isrwatch_collector_source_up{cluster="prod",source="metadata_log:a"} 1.0' in text
    names = ("observations_total", "undecodable_total", "refused_polls_total", "source_up")
    assert [found[name, LOG] for name in names] == [5, 1, 0, 1]
    assert (found["observations_total", ADMIN], found["refused_polls_total", ADMIN]) == (0, 2)
    assert f'last_publication_timestamp_seconds{{cluster="prod",kind="heartbeat",source="{LOG}"}}' in text


def test_it_is_healthy_while_one_of_both_reads_partition_state_and_else_says_why_none_does(page: Any) -> None:
    log, admin = Ordering(LOG, ConnectionRefused("grant ClusterAction")), Ordering(ADMIN, [])
    collector = Collector([log, admin], Kept)  # type: ignore[arg-type]
    read = page(collector)
    assert read("/-/healthy") == (503, "no source has read partition state yet\n")

    collector.metrics.refused(log, ConnectionRefused("grant ClusterAction"))
    assert read("/-/healthy") == (503, "metadata_log:a: grant ClusterAction\n")

    admin.is_primary = True
    collector.metrics.published(admin, beats(ADMIN, 1), 0)
    assert read("/-/healthy") == (200, "it reads\n")
    assert values(read("/metrics")[1])["primary_source", ADMIN] == 1
    assert values(read("/metrics")[1])["primary_source", LOG] == 0

    collector.metrics.refused(admin, ConnectionRefused("no broker answers"))
    assert read("/-/healthy")[0] == 503


def test_a_source_that_orders_nothing_makes_nobody_unhealthy(page: Any) -> None:
    assert page(collected(Scripted("simulated:a", beats("simulated:a", 1))))("/-/healthy")[0] == 200
