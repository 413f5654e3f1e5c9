"""Liveness of a broker that is not up: recovering or dead. Only its own agent and the active controller's know.

A broker that was not stopped cleanly reads its logs before it is unfenced, for minutes or hours, and accepts no
connection meanwhile: from outside it looks dead. If it is restarted then, it begins again. It can be recognised by what
it still has to recover (KIP-831), and by the heartbeats that it sends all the while: the active controller measures the
time since the last one (KAFKA-18666), up to the session timeout. With KRaft the state of a broker is STARTING while it
recovers its logs, and RECOVERY only after that, until it is unfenced (seen of Kafka 4.3.1).
Pure: values in, values out.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streaming.contracts.identifiers import Micros
    from streaming.contracts.state import BrokerState

FRESH: Final = 60_000_000
"""Four scrapes by default (``collect.broker_metrics_interval``). What an agent said before is no longer true."""
SESSION_TIMEOUT_MS: Final = 9_000
"""``broker.session.timeout.ms`` by default: where the settings of the brokers are not sampled."""
HEARTBEAT_INTERVAL: Final = 2_000_000
"""``broker.heartbeat.interval.ms`` by default, in microseconds: a broker may live on for as long after its last one."""

BROKER_STATE: Final = "kafka_server_kafkaserver_brokerstate"
LOGS_LEFT: Final = "kafka_log_logmanager_remaininglogstorecover"
HEARTBEAT_AGE_MS: Final = "kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms"
REGISTRATION_STATE: Final = "kafka_controller_kafkacontroller_brokerregistrationstate"


class Liveness(StrEnum):
    """State of a broker's process and of its registration."""

    UP = "up"
    UNSEEN = "unseen"
    SHUTTING_DOWN = "shutting down"
    STARTING = "starting"
    RECOVERING = "recovering"
    FENCED = "fenced, running"
    DEAD = "dead"
    UNREGISTERED = "unregistered"
    UNKNOWN = "recovering or dead: unknown"


# By org.apache.kafka.metadata.BrokerState, of a broker that may not lead; 4 was the controller's, before KRaft.
_BY_STATE: Final[Mapping[int | None, Liveness]] = {
    1: Liveness.STARTING,
    2: Liveness.RECOVERING,
    3: Liveness.FENCED,
    4: Liveness.FENCED,
    6: Liveness.SHUTTING_DOWN,
    7: Liveness.SHUTTING_DOWN,
}
_ACTIVE: Final = 30  # of BrokerRegistrationState


class AgentSamples(NamedTuple):
    """Samples of one broker by agents; None where none reports, or has not lately.

    ``is_before_heartbeat``: its own agent has said nothing since the last heartbeat that the controller knows of.
    """

    broker_state: int | None = None
    logs_left: int | None = None
    heartbeat_age_ms: int | None = None
    registration_state: int | None = None
    is_before_heartbeat: bool = False


def agent_samples(samples: Collection[tuple[str, float, Micros]], now: Micros) -> AgentSamples:
    """Gather the samples (metric, value, time) about one broker; what is older than ``FRESH`` does not count."""
    taken = {metric: taken_at for metric, _, taken_at in samples if now - taken_at <= FRESH}
    fresh = {metric: int(value) for metric, value, taken_at in samples if now - taken_at <= FRESH}
    own_at = max((taken[metric] for metric in (BROKER_STATE, LOGS_LEFT) if metric in taken), default=now)
    heartbeat_at = taken.get(HEARTBEAT_AGE_MS, 0) - fresh.get(HEARTBEAT_AGE_MS, 0) * 1_000
    return AgentSamples(
        fresh.get(BROKER_STATE),
        fresh.get(LOGS_LEFT),
        fresh.get(HEARTBEAT_AGE_MS),
        fresh.get(REGISTRATION_STATE),
        is_before_heartbeat=own_at + HEARTBEAT_INTERVAL < heartbeat_at,
    )


def liveness_of(broker: BrokerState | None, agents: AgentSamples, session_ms: int = SESSION_TIMEOUT_MS) -> Liveness:
    """Return what is known of a broker. The cluster's word is first: who may lead is up, whatever its agent says.

    ``broker`` is None where it was never reported.
    """
    if broker is not None and broker.is_registered and _may_lead(broker, agents):
        return (
            Liveness.SHUTTING_DOWN if broker.is_shutting_down else Liveness.UNSEEN if broker.is_unseen else Liveness.UP
        )
    is_silent = agents.heartbeat_age_ms is not None and agents.heartbeat_age_ms >= session_ms
    by_itself = Liveness.RECOVERING if agents.logs_left else _BY_STATE.get(agents.broker_state)
    # The last scrape of a broker before it died says that it ran, for a minute.
    if by_itself is not None and not (is_silent and agents.is_before_heartbeat):
        return by_itself
    if broker is not None and not broker.is_registered:
        return Liveness.UNREGISTERED
    if agents.heartbeat_age_ms is None:
        return Liveness.UNKNOWN
    # A fenced broker sends its heartbeats from when it starts until it is unfenced.
    return Liveness.DEAD if is_silent else Liveness.RECOVERING


def _may_lead(broker: BrokerState, agents: AgentSamples) -> bool:
    """Return whether a registered broker is unfenced; where the source cannot see it, the controller's agent can."""
    if broker.is_fenced is None:
        return agents.registration_state is None or agents.registration_state >= _ACTIVE
    return not broker.is_fenced


def advice(liveness: Liveness, agents: AgentSamples) -> str | None:
    """Return what to do about a broker that is not up, in words; None of one that is, or is going."""
    if liveness is Liveness.RECOVERING:
        left = "it starts or recovers its logs"
        if agents.logs_left is not None:
            left = f"it recovers its logs, {agents.logs_left:,} are left"
        return f"{left}: do not restart it, it would begin again"
    return {
        Liveness.UNSEEN: "it is in ISRs, so it runs; it lacks the listener by which brokers are polled: add that, or "
        "name one that every broker has in cluster.bootstrap_servers",
        Liveness.STARTING: "its process starts: do not restart it",
        Liveness.FENCED: "its process runs, but the controller does not let it lead: read its log",
        Liveness.DEAD: "the controller has had no heartbeat for its session timeout: it is down, hung or cut off",
        Liveness.UNKNOWN: "look at its process before a restart, as no agent in collect.broker_metrics (a JMX exporter "
        "next to the broker) says which",
    }.get(liveness)
