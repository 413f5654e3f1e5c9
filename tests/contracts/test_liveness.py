"""Whether a broker that is not up recovers or is dead: as its own agent and the active controller's say."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.contracts import liveness
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.liveness import FRESH, AgentSamples, Liveness, advice, agent_samples, liveness_of
from streaming.contracts.state import BrokerState
from streaming.sources.broker_metrics import METRICS, OF_BROKERS, SUMMED, parse_exposition

PAGES = Path(__file__).parents[1] / "fixtures" / "jmx_exporter"
UP = BrokerState(cluster_id=ClusterId("c"), cluster="main", broker=BrokerId(2), is_fenced=False)
FENCED, GONE = UP._replace(is_fenced=True), UP._replace(is_registered=False)
SESSION_MS = 4_000  # of the cluster whose pages were captured


def said_on(page: str, broker: int | None = None) -> AgentSamples:
    """What a captured page says of a broker; of its own without a number."""
    exposition = parse_exposition((PAGES / f"{page}.txt").read_text(encoding="utf-8"))
    samples = exposition.own if broker is None else exposition.of_brokers[BrokerId(broker)]
    return agent_samples([(metric, value, Micros(0)) for metric, value in samples.items()], Micros(FRESH))


def test_without_an_agent_a_fenced_broker_is_recovering_or_dead_and_nobody_knows() -> None:
    assert liveness_of(FENCED, AgentSamples()) is Liveness.UNKNOWN
    assert liveness_of(None, AgentSamples()) is Liveness.UNKNOWN
    unseen = liveness_of(FENCED._replace(is_fenced=False, is_unseen=True), AgentSamples())
    assert unseen is Liveness.UNSEEN
    assert (advice(unseen, AgentSamples()) or "").startswith(
        "it is in ISRs, so it runs; it lacks the listener by which"
    )
    assert liveness_of(GONE, AgentSamples()) is Liveness.UNREGISTERED


def test_a_broker_that_recovers_its_logs_is_known_by_its_own_agent_which_says_how_many_are_left() -> None:
    """Its state is STARTING, as Kafka 4.3.1 has it, not RECOVERY."""
    agents = said_on("recovering_broker")
    assert agents == AgentSamples(broker_state=1, logs_left=138)
    for broker in (FENCED, GONE, None):
        assert liveness_of(broker, agents, SESSION_MS) is Liveness.RECOVERING
    assert advice(Liveness.RECOVERING, agents) == (
        "it recovers its logs, 138 are left: do not restart it, it would begin again"
    )


def test_the_active_controller_hears_a_recovering_broker_and_not_a_dead_one() -> None:
    dead, recovering = said_on("controller_of_a_dead_broker", 2), said_on("controller_of_a_recovering_broker", 2)
    assert liveness_of(FENCED, dead, SESSION_MS) is Liveness.DEAD
    assert liveness_of(FENCED, recovering, SESSION_MS) is Liveness.RECOVERING
    assert "do not restart it" in str(advice(Liveness.RECOVERING, recovering))
    assert "no heartbeat" in str(advice(Liveness.DEAD, dead))


def test_the_cluster_knows_best_who_is_up() -> None:
    assert liveness_of(UP, said_on("controller_of_a_dead_broker", 2), SESSION_MS) is Liveness.UP
    assert liveness_of(UP._replace(is_shutting_down=True), AgentSamples()) is Liveness.SHUTTING_DOWN
    assert advice(Liveness.UP, AgentSamples()) is None
    unseen = UP._replace(is_fenced=None)
    assert liveness_of(unseen, said_on("controller_of_a_dead_broker", 2), SESSION_MS) is Liveness.DEAD
    assert liveness_of(unseen, said_on("controller_of_a_dead_broker", 1), SESSION_MS) is Liveness.UP


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (0, Liveness.UNKNOWN),
        (1, Liveness.STARTING),
        (2, Liveness.RECOVERING),
        (3, Liveness.FENCED),
        (6, Liveness.SHUTTING_DOWN),
    ],
)
def test_the_state_that_a_fenced_broker_reports_of_itself_counts(state: int, expected: Liveness) -> None:
    assert liveness_of(FENCED, AgentSamples(broker_state=state)) is expected


def test_what_an_agent_said_a_minute_ago_is_no_longer_true() -> None:
    said = [(liveness.BROKER_STATE, 2.0, Micros(0)), (liveness.LOGS_LEFT, 7.0, Micros(1))]
    assert agent_samples(said, Micros(FRESH)) == AgentSamples(broker_state=2, logs_left=7)
    assert agent_samples(said, Micros(FRESH + 1)) == AgentSamples(logs_left=7)
    assert agent_samples(said, Micros(FRESH + 2)) == AgentSamples()


@pytest.mark.parametrize(
    ("own_at", "age_ms", "expected"),
    [
        (10, 9_000, Liveness.DEAD),  # it ran in its last scrape, and died before the next
        (24, 9_000, Liveness.FENCED),  # its agent answers, while the controller does not hear it
        (10, 400, Liveness.FENCED),  # the controller hears it
        (10, None, Liveness.FENCED),  # nobody says anything else
    ],
)
def test_what_an_agent_said_before_the_last_heartbeat_does_not_make_a_dead_broker_run(
    own_at: int, age_ms: int | None, expected: Liveness
) -> None:
    said = [(liveness.BROKER_STATE, 3.0, Micros(own_at * 1_000_000)), (liveness.LOGS_LEFT, 0.0, Micros(own_at))]
    if age_ms is not None:
        said.append((liveness.HEARTBEAT_AGE_MS, float(age_ms), Micros(25_000_000)))
    assert liveness_of(FENCED, agent_samples(said, Micros(30_000_000))) is expected


def test_the_metrics_that_it_asks_for_are_kept() -> None:
    names = {liveness.BROKER_STATE, liveness.LOGS_LEFT, liveness.HEARTBEAT_AGE_MS}
    assert names | {liveness.REGISTRATION_STATE} <= METRICS | OF_BROKERS | SUMMED.keys()
