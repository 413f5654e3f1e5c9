"""Whether a broker that is not up recovers or is dead: as its own agent and the active controller's say."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.contracts import broker_life
from streaming.contracts.broker_life import FRESH, AgentSamples, Life, advice, agent_samples, life_of
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.state import BrokerState
from streaming.sources.broker_metrics_names import METRICS, OF_BROKERS, SUMMED, page_of

PAGES = Path(__file__).parents[1] / "fixtures" / "jmx_exporter"
UP = BrokerState(cluster_id=ClusterId("c"), cluster="main", broker=BrokerId(2), is_fenced=False)
FENCED, GONE = UP._replace(is_fenced=True), UP._replace(is_registered=False)
SESSION_MS = 4_000  # of the cluster whose pages were captured


def said_on(page: str, broker: int | None = None) -> AgentSamples:
    """What a captured page says of a broker; of its own without a number."""
    own, of_brokers = page_of((PAGES / f"{page}.txt").read_text(encoding="utf-8"))
    samples = own if broker is None else of_brokers[BrokerId(broker)]
    return agent_samples([(metric, value, Micros(0)) for metric, value in samples.items()], Micros(FRESH))


def test_without_an_agent_a_fenced_broker_is_recovering_or_dead_and_nobody_knows() -> None:
    assert life_of(FENCED, AgentSamples()) is Life.UNKNOWN
    assert life_of(None, AgentSamples()) is Life.UNKNOWN
    assert life_of(GONE, AgentSamples()) is Life.UNREGISTERED


def test_a_broker_that_recovers_its_logs_is_known_by_its_own_agent_which_says_how_many_are_left() -> None:
    """Its state is STARTING, as Kafka 4.3.1 has it, not RECOVERY."""
    agents = said_on("recovering_broker")
    assert agents == AgentSamples(broker_state=1, logs_left=138)
    for broker in (FENCED, GONE, None):
        assert life_of(broker, agents, SESSION_MS) is Life.RECOVERING
    assert advice(Life.RECOVERING, agents) == (
        "it recovers its logs, 138 are left: do not restart it, it would begin again"
    )


def test_the_active_controller_hears_a_recovering_broker_and_not_a_dead_one() -> None:
    dead, recovering = said_on("controller_of_a_dead_broker", 2), said_on("controller_of_a_recovering_broker", 2)
    assert life_of(FENCED, dead, SESSION_MS) is Life.DEAD
    assert life_of(FENCED, recovering, SESSION_MS) is Life.RECOVERING
    assert "do not restart it" in str(advice(Life.RECOVERING, recovering))
    assert "no heartbeat" in str(advice(Life.DEAD, dead))


def test_the_cluster_knows_best_who_is_up() -> None:
    assert life_of(UP, said_on("controller_of_a_dead_broker", 2), SESSION_MS) is Life.UP
    assert life_of(UP._replace(is_shutting_down=True), AgentSamples()) is Life.SHUTTING_DOWN
    assert advice(Life.UP, AgentSamples()) is None
    unseen = UP._replace(is_fenced=None)
    assert life_of(unseen, said_on("controller_of_a_dead_broker", 2), SESSION_MS) is Life.DEAD
    assert life_of(unseen, said_on("controller_of_a_dead_broker", 1), SESSION_MS) is Life.UP


@pytest.mark.parametrize(
    ("state", "life"),
    [(0, Life.UNKNOWN), (1, Life.STARTING), (2, Life.RECOVERING), (3, Life.FENCED), (6, Life.SHUTTING_DOWN)],
)
def test_the_state_that_a_fenced_broker_reports_of_itself_counts(state: int, life: Life) -> None:
    assert life_of(FENCED, AgentSamples(broker_state=state)) is life


def test_what_an_agent_said_a_minute_ago_is_no_longer_true() -> None:
    said = [(broker_life.BROKER_STATE, 2.0, Micros(0)), (broker_life.LOGS_LEFT, 7.0, Micros(1))]
    assert agent_samples(said, Micros(FRESH)) == AgentSamples(broker_state=2, logs_left=7)
    assert agent_samples(said, Micros(FRESH + 1)) == AgentSamples(logs_left=7)
    assert agent_samples(said, Micros(FRESH + 2)) == AgentSamples()


def test_the_metrics_that_it_asks_for_are_kept() -> None:
    names = {
        getattr(broker_life, name) for name in ("BROKER_STATE", "LOGS_LEFT", "HEARTBEAT_AGE_MS", "REGISTRATION_STATE")
    }
    assert names <= METRICS | OF_BROKERS | SUMMED.keys()
