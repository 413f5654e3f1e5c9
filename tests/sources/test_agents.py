"""The broker of an agent: by what the agent says of itself, by its address, and by the partitions that it counts."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streaming.contracts.identifiers import BrokerId, ClusterId
from streaming.sources import agents
from streaming.sources.agents import AgentWatch, Figures, Hosted, agents_from, doubt_of, node_ids_in, sharing
from streaming.sources.broker_metrics import parse_exposition
from streaming.sources.polling.view import ClusterView, PartitionView

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
URLS = {broker: f"http://b-{broker}:9404/metrics" for broker in (ONE, TWO, THREE)}
WITH_RULES = 'kafka_server_app_info_starttimems{id="2",} 1.79E12'
WITHOUT_RULES = 'kafka_server_app_info_StartTimeMs{id="2"} 1.79E12'
OF_METRICS = 'kafka_server_app_info_start_time_ms{client_id="2"} 1.79E12\nkafka_server_app_info_start_time_ms 1.0'


def viewed(*leaders: int, is_partial: bool = False) -> ClusterView:
    """Give a cluster of partitions on three brokers with these leaders."""
    every = (ONE, TWO, THREE)
    parts = {number: PartitionView(every, every, BrokerId(leader)) for number, leader in enumerate(leaders)}
    brokers = {broker: (f"b-{broker}", 9092) for broker in every}
    return ClusterView(ClusterId("C"), 1, brokers, {"orders": parts}, is_partial=is_partial)


def counts(led: int, replicas: int = 3) -> Figures:
    return Figures(frozenset(), Hosted(replicas, led))


@pytest.fixture(autouse=True)
def is_compared_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "COMPARED_MICROS", 0)


def judged(view: ClusterView | None, figures: Mapping[BrokerId, Figures], rounds: int = 4) -> dict[BrokerId, str]:
    """Show what each agent says, round by round; return the last doubts, with ``!`` where nothing is recorded."""
    watch, doubts = AgentWatch(lambda: view), dict[BrokerId, str]()
    for _ in range(rounds):
        for broker, says in figures.items():
            doubt = watch.doubt(broker, URLS[broker], (), says)
            doubts[broker] = "" if doubt is None else doubt.sentence.split(", ", 2)[2] + "!" * doubt.is_proven
    return {broker: sentence for broker, sentence in doubts.items() if sentence}


@pytest.mark.parametrize("page", [WITH_RULES, WITHOUT_RULES, OF_METRICS])
def test_an_agent_says_in_every_dialect_of_which_node_it_is(page: str) -> None:
    says = parse_exposition(page).figures
    assert says.node_ids == {2}
    assert doubt_of(TWO, URLS[TWO], (), says) is None
    assert doubt_of(TWO, URLS[TWO], (ONE,), says) is None, "it is given twice, and this one has it"
    doubt = doubt_of(ONE, URLS[ONE], (TWO,), says)
    assert doubt is not None
    assert doubt.is_proven
    assert doubt.sentence == (
        "the agent of broker 1 in collect.broker_metrics, http://b-1:9404/metrics, is that of broker 2, so nothing of "
        "it is recorded: correct the address"
    )


@pytest.mark.parametrize(
    ("sample", "labels"),
    [
        ("kafka_server_replicamanager_leadercount", {"id": "2"}),
        ("kafka_server_app_info_version", {"version": "4.3.1", "id": "consumer-1"}),
        ("kafka_server_app_info_start_time_ms", {}),
    ],
)
def test_other_samples_say_no_id(sample: str, labels: dict[str, str]) -> None:
    assert node_ids_in(sample, labels) == frozenset()


def test_of_an_address_that_is_given_twice_and_says_no_id_nothing_is_recorded() -> None:
    shared = sharing({ONE: "http://user:secret@b:1/", TWO: "http://b:1/", THREE: "http://b:3/"})
    assert shared == {ONE: [TWO], TWO: [ONE]}
    doubt = doubt_of(ONE, "http://user:secret@b:1/", shared[ONE], counts(1))
    assert doubt is not None
    assert doubt.is_proven
    assert "http://b:1/, is also that of broker 2, and does not say whose it is, so nothing" in doubt.sentence


def test_figures_of_another_broker_are_named_with_both_after_three_rounds() -> None:
    crossed = {ONE: counts(1), TWO: counts(2), THREE: counts(0)}
    view = viewed(1, 1, 2)
    assert judged(view, crossed, rounds=2) == {}
    says = (
        "says 3 partitions, of which it leads {}, and the cluster 3 partitions, of which it leads {}: it seems to be "
    )
    end = "that of broker {}, so nothing of it is recorded!"
    assert judged(view, crossed) == {ONE: (says + end).format(1, 2, 2), TWO: (says + end).format(2, 1, 1)}


def test_leaders_that_move_prove_nothing() -> None:
    watch = AgentWatch(lambda: viewed(1, 1, 2))
    for led in (1, 1, 2, 1, 1, 2):
        assert watch.doubt(ONE, URLS[ONE], (), counts(led)) is None


def test_figures_of_no_broker_are_named_and_recorded() -> None:
    found = judged(viewed(1, 2, 3), {ONE: counts(7, 9), TWO: counts(1), THREE: counts(1)})
    assert found.keys() == {ONE}
    assert found[ONE].endswith(": check whose agent that is")


@pytest.mark.parametrize("view", [None, viewed(1, 2, 3), viewed(1, 1, 1, is_partial=True)])
def test_where_no_agent_agrees_or_the_cluster_does_not_show_all_topics_figures_prove_nothing(
    view: ClusterView | None,
) -> None:
    assert judged(view, dict.fromkeys((ONE, TWO, THREE), counts(3, 9))) == {}


def test_an_agent_that_says_its_id_is_believed_whatever_it_counts() -> None:
    assert judged(viewed(1, 1, 2), {ONE: Figures(frozenset({1}), Hosted(3, 1))}) == {}


def test_brokers_without_an_agent_are_named_unless_there_is_a_pattern_or_none_has_one() -> None:
    sentence = 'collect.broker_metrics has no agent of brokers 2, 3: add "2" = "http://...", or "*" for all'
    assert agents_from({"1": URLS[ONE]}).without(URLS) == sentence
    assert agents_from({"1": URLS[ONE], "*": "http://{host}/"}).without(URLS) == ""
    assert agents_from({}).without(URLS) == ""
