"""Agents that are other brokers', are given twice, or are missing: named once each, and nothing of them is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from streaming.commands import doctor_agents
from streaming.commands.doctor_agents import broker_metrics
from streaming.commands.doctor_machine import Status
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Observation
from streaming.errors import ConnectionRefused
from streaming.settings import CollectSettings, Settings
from streaming.sources import agents
from streaming.sources.agents import agents_from, node_ids_in
from streaming.sources.broker_metrics import BrokerMetricsSource, client_from, parse_exposition
from streaming.sources.polling.view import ClusterView, PartitionView
from tests.blocks import singly
from tests.sources.conftest import answer

Serve = Callable[..., str]
Open = Callable[..., tuple[BrokerMetricsSource, list[str]]]
WITH_RULES = 'kafka_server_app_info_starttimems{{id="{0}",}} 1.79E12\n'
WITHOUT_RULES = 'kafka_server_app_info_StartTimeMs{{id="{0}"}} 1.79E12\n'
OF_METRICS = 'kafka_server_app_info_start_time_ms{{client_id="{0}"}} 1.79E12\nkafka_server_app_info_start_time_ms 1.0\n'


def page(led: int, replicas: int = 3, app_info: str = "") -> str:
    counts = (("LeaderCount", led), ("PartitionCount", replicas))
    lines = [f'kafka_server_ReplicaManager_Value{{name="{name}",}} {value}' for name, value in counts]
    return "\n".join([*lines, app_info])


def viewed(*leaders: int, brokers: int = 3) -> ClusterView:
    """Give a cluster of partitions on all brokers with these leaders."""
    every = tuple(map(BrokerId, range(1, brokers + 1)))
    parts = {number: PartitionView(every, every, BrokerId(leader)) for number, leader in enumerate(leaders)}
    return ClusterView(ClusterId("C"), 1, {broker: (f"b-{broker}", 9092) for broker in every}, {"orders": parts})


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setattr(agents, "COMPARED_MICROS", 50_000)
    with ExitStack() as stack:

        def make(urls: dict[str, str], view: ClusterView) -> tuple[BrokerMetricsSource, list[str]]:
            source = BrokerMetricsSource(
                agents=agents_from(urls), view=lambda: view, cluster_id=lambda: ClusterId("C"), cluster="test",
                name="broker_metrics:test", period_micros=Micros(20_000), block_seconds=0.05, client=client_from({}),
            )  # fmt: skip
            return stack.enter_context(closing(source)), []

        yield make


def polled(source: BrokerMetricsSource, lines: list[str], until: Callable[[list[Any]], object]) -> set[int]:
    """Poll until enough was said or seen, and return the brokers of what was recorded since the last line."""
    found: list[Observation] = []
    end = time.monotonic() + 20.0
    while not until(found):
        assert time.monotonic() < end, lines
        try:
            found += singly(source.poll(Micros(time.time_ns() // 1000)))
        except ConnectionRefused as refusal:
            lines.append(str(refusal))
            found.clear()
    return {each.broker for each in found}  # type: ignore[attr-defined]


@pytest.mark.parametrize("app_info", [WITH_RULES, WITHOUT_RULES, OF_METRICS])
def test_an_agent_that_says_that_it_is_of_another_broker_is_named_once_and_not_recorded(
    serve: Serve, opened: Open, app_info: str
) -> None:
    two, three = (serve(answer(page(1, app_info=app_info.format(broker)))) for broker in (2, 3))
    source, lines = opened({"1": two, "2": f"{two}/", "3": three}, viewed(1, 2, 3))
    assert polled(source, lines, lambda seen: lines and len(seen) > 20) == {2, 3}
    (line,) = lines
    assert line == (
        f"the agent of broker 1 in collect.broker_metrics, {two}, is that of broker 2, so nothing of it is recorded: "
        "correct the address"
    )


def test_of_an_address_that_is_given_twice_only_the_broker_that_it_names_is_recorded(
    serve: Serve, opened: Open
) -> None:
    both, third = serve(answer(page(1, app_info=WITH_RULES.format(2)))), serve(answer(page(1)))
    source, lines = opened({"1": both, "2": both, "3": third}, viewed(1, 2, 3))
    assert polled(source, lines, lambda seen: lines and len(seen) > 20) == {2, 3}
    assert [line.split(", ")[2] for line in lines] == ["is that of broker 2"]


def test_of_an_address_that_is_given_twice_and_says_no_id_nothing_is_recorded(serve: Serve, opened: Open) -> None:
    both, third = serve(answer(page(0))), serve(answer(page(1)))
    source, lines = opened({"1": both, "2": f"{both.replace('//', '//user:secret@')}", "3": third}, viewed(1, 1, 3))
    assert polled(source, lines, lambda seen: len(lines) > 1 and len(seen) > 20) == {3}
    assert sorted(line.split(", ")[2] for line in lines) == ["is also that of broker 1", "is also that of broker 2"]
    assert "secret" not in "".join(lines)


def test_figures_of_another_broker_are_named_with_both_and_no_more_recorded(serve: Serve, opened: Open) -> None:
    one, two, three = (serve(answer(page(led))) for led in (2, 1, 0))
    source, lines = opened({"1": two, "2": one, "3": three}, viewed(1, 1, 2))
    assert polled(source, lines, lambda seen: len(lines) > 1 and len(seen) > 20) == {3}
    assert min(lines) == (
        f"the agent of broker 1 in collect.broker_metrics, {two}, says 3 partitions, of which it leads 1, and the "
        "cluster 3 partitions, of which it leads 2: it seems to be that of broker 2, so nothing of it is recorded"
    )


def test_figures_of_nobody_are_named_and_recorded(serve: Serve, opened: Open) -> None:
    one, two = serve(answer(page(7, 9))), serve(answer(page(1)))
    source, lines = opened({"1": one, "2": two, "3": f"{two}?3"}, viewed(1, 2, 3))
    assert polled(source, lines, lambda seen: lines and len(seen) > 20) == {1, 2, 3}
    assert [line.rpartition(": ")[2] for line in lines] == ["check whose agent that is"]


@pytest.mark.parametrize("is_partial", [True, False])
def test_where_the_cluster_may_not_show_all_topics_figures_prove_nothing(
    serve: Serve, opened: Open, *, is_partial: bool
) -> None:
    """Nor does it where no agent agrees: all of them count a topic that is not shown."""
    of_all = [serve(answer(page(led, 9))) for led in (3, 3, 3)]
    view = viewed(1, 2, 3)
    if is_partial:
        view = ClusterView(view.cluster_id, 1, view.brokers, view.topics, is_partial=True)
    source, lines = opened({str(number): url for number, url in enumerate(of_all, 1)}, view)
    assert polled(source, lines, lambda seen: len(seen) > 100) == {1, 2, 3}
    assert lines == []


def test_brokers_without_an_agent_are_named_once(serve: Serve, opened: Open) -> None:
    source, lines = opened({"1": serve(answer(page(1)))}, viewed(1, 2, 3))
    polled(source, lines, lambda seen: len(seen) > 20)
    assert lines == ['collect.broker_metrics has no agent of brokers 2, 3: add "2" = "http://...", or "*" for all']


def test_a_pattern_with_one_address_for_all_is_no_agent_of_any(serve: Serve, opened: Open) -> None:
    source, lines = opened({"*": f"{serve(answer(page(1)))}?{{host}}"}, viewed(1, 2, 3))
    assert polled(source, lines, lambda seen: len(seen) > 20) == {1, 2, 3}, "the figures are those of each"
    same = serve(answer(page(1, app_info=WITH_RULES.format(3))))
    source, lines = opened({"*": f"{same}?{{host}}"}, viewed(1, 2, 3))
    assert polled(source, lines, lambda seen: len(lines) > 1 and len(seen) > 20) == {3}


def test_doctor_names_missing_shared_and_wrong_agents(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_agents, "view_of", lambda _: viewed(1, 1, 2, brokers=5))
    two, four = serve(answer(page(1))), serve(answer(page(0, app_info=WITH_RULES.format(4))))
    urls = {"1": two, "2": f"{two}/2", "3": four, "4": four}
    found = list(broker_metrics(Settings(collect=CollectSettings(broker_metrics=urls))))
    warnings = [sentence for status, sentence in found if status is Status.WARNING]
    assert len(warnings) == 3
    assert warnings[0].startswith("collect.broker_metrics has no agent of broker 5")
    assert warnings[1].endswith("it seems to be that of broker 2, so nothing of it is recorded")
    assert f"the agent of broker 3 in collect.broker_metrics, {four}, is that of broker 4" in warnings[2]


def test_other_samples_say_no_id() -> None:
    assert node_ids_in("kafka_server_replicamanager_leadercount", {"id": "2"}) == frozenset()
    assert node_ids_in("kafka_server_app_info_version", {"version": "4.3.1", "id": "consumer-1"}) == frozenset()
    assert parse_exposition(page(1, app_info=OF_METRICS.format(7))).node_ids == {7}
