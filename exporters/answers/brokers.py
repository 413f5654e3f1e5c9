"""Brokers: what each leads and holds, whether it may stop and why not, whether it recovers, and whether it is slow.

A broker that is not up: is it recovering, and how long will that take? The time left is that of all its replicas
together: what a fetcher spends on one it does not spend on another, so the slowest alone would say too much.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exporters.answers.answer import Row, Sentence, Tone
from exporters.answers.subject import FRESHNESS, ClusterSubject, Inquiry, NameFilter
from exporters.read_model.snapshot import BrokerAdvice
from exporters.read_model.times import SECOND, Clock, span
from streaming.contracts.health import OFFLINE, UNDER_MIN_ISR, states_of
from streaming.contracts.identifiers import Micros
from streaming.contracts.liveness import FRESH, SESSION_TIMEOUT_MS, Liveness, advice, agent_samples, liveness_of
from streaming.contracts.observations import SourceKind
from streaming.contracts.sample_tables import BROKER_SPEED, ISR_RECONCILIATION, REPLICA_OFFSETS
from streaming.contracts.slopes import seconds_left
from streaming.contracts.state import BrokerState
from streaming.contracts.words import brokers_in_words
from streaming.delta.log.queries import open_ours, plain, query

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from exporters.read_model.snapshot import ClusterSnapshot

HOLDS: Final = (
    "led_partitions",
    "hosted_partitions",
    "in_sync_partitions",
    "under_min_isr_partitions",
    "offline_partitions",
)
ADVICE: Final = tuple(name for name in BrokerAdvice._fields if name not in {"broker", *HOLDS})
SPEED: Final = ("is_slow", "is_overloaded", "slow_since", "slow_reasons", "response_micros")
RECOVERY: Final = (
    "broker_liveness", "liveness_advice", "logs_to_recover", "replicas_to_rejoin", "rejoin_lag", "rejoin_seconds",
)  # fmt: skip
METERS: Final = ("missed_changes", "isr_meters")
"""ISR changes that the broker made as leader by its own meters and that were not recorded, and the meters."""
_METER: Final = ("meter", "counted", "recorded", "missed", "since", "until")
_SPEED_LASTS: Final = 120 * SECOND
"""Conclusions from samples older than this are unknown now."""
INFERRED: Final = "so causes are inferred from what brokers answer, not proven"


def state_name(cluster: ClusterSnapshot, number: int) -> str:
    """Return the state of a broker in words."""
    broker = cluster.brokers.get(number)
    if broker is None:
        return "unknown"
    registered = cluster.is_registered(broker)
    if not registered:
        return "not listed" if registered is None else "unregistered"
    if broker.is_fenced:
        return "fenced"
    if broker.is_shutting_down:
        return "shutting down"
    if broker.is_unseen:
        return "unseen"
    return "unknown" if broker.is_fenced is None else "active"


def broker_rows(asked: Inquiry) -> Iterator[Row]:
    """Return the brokers of each cluster. What is derived is unknown in the past, and where the state is stale."""
    lags, meters = _lags(asked), _meters(asked)
    speeds = {_key(row): row for row in _fresh_speeds(asked)}
    current = {each.cluster.cluster_id for each in asked.current}
    for cluster, freshness in asked.clusters:
        cluster_id = cluster.cluster.cluster_id
        recovery = recovery_columns(cluster, lags[cluster_id], asked.now) if cluster_id in current else {}
        advised = cluster.advice.brokers if cluster.advice and cluster_id in current and cluster.is_derived else {}
        in_state = _in_state(cluster)
        for number in cluster.known_brokers():
            key = cluster_id, number
            counted = meters.get(key)
            advice = advised.get(number, BrokerAdvice(number))
            yield {
                **dict.fromkeys(BROKERS.columns),
                **_observed(cluster, number, in_state),
                **freshness,
                **{name: getattr(advice, name) for name in ADVICE},
                **{name: value for name, value in speeds.get(key, {}).items() if name in SPEED},
                **recovery.get(number, {}),
                "missed_changes": None if counted is None else sum(each["missed"] for each in counted),
                "isr_meters": counted,
            }


def _observed(cluster: ClusterSnapshot, number: int, in_state: Counter[tuple[int, str]]) -> Row:
    broker, counts = cluster.brokers.get(number), cluster.counts
    return {
        **({} if broker is None else broker._asdict()),
        "broker": number,
        "broker_state": state_name(cluster, number),
        "led_partitions": counts.led.get(number, 0),
        "hosted_partitions": counts.hosted.get(number, 0),
        "in_sync_partitions": counts.in_sync.get(number, 0),
        "under_min_isr_partitions": in_state[number, UNDER_MIN_ISR],
        "offline_partitions": in_state[number, OFFLINE],
        "isr_departures": cluster.isr_removals_of(number),
    }


def _in_state(cluster: ClusterSnapshot) -> Counter[tuple[int, str]]:
    """Count the partitions that each broker has a replica of, by the states that they are in."""
    return Counter(
        (broker, state)
        for partition in cluster.unsettled.values()
        for state in states_of(partition)
        for broker in partition.replicas
    )


def _key(row: Row) -> tuple[str, int]:
    return row["cluster_id"], row["broker"]


def _fresh_speeds(asked: Inquiry) -> list[Row]:
    samples = asked.samples(BROKER_SPEED) if asked.is_now else []
    return [row for row in samples if asked.now - row["collected_at"] <= _SPEED_LASTS]


def _meters(asked: Inquiry) -> Mapping[tuple[str, int], list[Row]]:
    """Return the ISR changes that each broker counted as leader, next to those that were recorded."""
    meters: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in asked.samples(ISR_RECONCILIATION, sampled_at="until") if asked.is_now else ():
        meters[_key(row)].append({name: row[name] for name in _METER})
    return meters


# Recovery: replicas that are out of the ISR, how much they lack, and how long they will take.


class ReplicaKey(NamedTuple):
    """One replica."""

    topic_id: str
    partition: int
    broker: int


class ReplicaLag(NamedTuple):
    """Lag of a replica, in records, its pace, and the time of its sample. None is unknown."""

    lag: int | None = None
    lag_per_second: float | None = None
    collected_at: int = 0


Lags = dict[ReplicaKey, ReplicaLag]


def _lags(asked: Inquiry) -> Mapping[str, Lags]:
    """Read the lags of the brokers that have a replica outside the ISR, by cluster id; nothing while there is none."""
    lags: dict[str, Lags] = defaultdict(dict)
    brokers = {each.broker for cluster in asked.current for each in _out_of_isr(cluster)}
    if not brokers:
        return lags
    listed = ", ".join(map(str, sorted(brokers)))
    names = "cluster_id, topic_id, partition, broker, lag, lag_per_second, collected_at"
    with asked.reading(REPLICA_OFFSETS):
        table = open_ours(asked.tables.folder, REPLICA_OFFSETS)
        sql = f"SELECT {names} FROM rows WHERE broker IN ({listed})"  # noqa: S608 - our own columns, numbers
        for row in () if table is None else plain(query(table, sql)).to_pylist():
            if asked.now - row["collected_at"] <= FRESH:
                key = ReplicaKey(row["topic_id"], row["partition"], row["broker"])
                lags[row["cluster_id"]][key] = ReplicaLag(row["lag"], row["lag_per_second"], row["collected_at"])
    return lags


def recovery_columns(cluster: ClusterSnapshot, lags: Mapping[ReplicaKey, ReplicaLag], now: int) -> dict[int, Any]:
    """Return the columns of each broker."""
    missing: dict[int, list[ReplicaLag]] = defaultdict(list)
    for key in _out_of_isr(cluster):
        missing[key.broker].append(lags.get(key, ReplicaLag()))
    samples: dict[int, list[tuple[str, float, Micros]]] = defaultdict(list)
    for sample in cluster.samples.broker_metrics or ():
        samples[sample.broker].append((sample.metric, sample.metric_value, Micros(sample.collected_at)))
    session = cluster.cluster.broker_session_timeout_ms or SESSION_TIMEOUT_MS
    columns: dict[int, Any] = {}
    for number in cluster.known_brokers():
        agents = agent_samples(samples[number], Micros(now))
        broker = cluster.brokers.get(number)
        liveness = liveness_of(broker, agents, session)
        columns[number] = {
            "broker_liveness": liveness.value,
            "liveness_advice": None if _is_down_on_purpose(broker, liveness) else advice(liveness, agents),
            "logs_to_recover": agents.logs_left,
            "replicas_to_rejoin": len(missing[number]),
            **_progress(missing[number], now),
        }
    return columns


def _is_down_on_purpose(broker: BrokerState | None, liveness: Liveness) -> bool:
    """Return whether a broker of which no agent says anything stopped cleanly, or may be down for announced work."""
    if broker is None or liveness is not Liveness.UNKNOWN:
        return False
    return bool(broker.is_shutting_down) or broker.maintenance_until is not None


def _out_of_isr(cluster: ClusterSnapshot) -> list[ReplicaKey]:
    """List the replicas that are not in sync; those of a diskless partition never need to be (KIP-1150)."""
    return [
        ReplicaKey(each.topic_id, each.partition, broker)
        for each in cluster.unsettled.values()
        if not each.is_diskless
        for broker in each.replicas
        if broker not in each.isr
    ]


def _progress(replicas: list[ReplicaLag], now: int) -> dict[str, int | float | None]:
    lags = [each.lag for each in replicas if each.lag is not None]
    slopes = [each.lag_per_second for each in replicas if each.lag_per_second is not None]
    lag = sum(lags) if replicas and len(lags) == len(replicas) else None
    left = seconds_left(lag, sum(slopes)) if len(slopes) == len(replicas) else None
    since = (now - min((each.collected_at for each in replicas), default=now)) / SECOND
    return {"rejoin_lag": lag, "rejoin_seconds": None if left is None else max(0.0, left - since)}


# Sentences.


def said_of_brokers(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say what brokers need, why they may not stop, which are slow, and how surely all this is known."""
    if not rows:
        yield Sentence("no broker has been observed" if asked.clusters else asked.no_cluster)
    for cluster, _ in asked.clusters:
        if cluster.cluster.primary_source is SourceKind.POLL:
            interval = asked.tables.limits.poll_intervals.get(cluster.name)
            every = "" if interval is None else f" every {span(interval)}"
            yield Sentence(f"{cluster.name} is polled{every}, {INFERRED}")
    for row in rows:
        if row["liveness_advice"] is not None:
            state_in_words, *_ = row["broker_liveness"].split(":")  # that it is unknown which is in the advice
            who = f"broker {row['broker']}{asked.of_cluster(row['cluster'])}"
            yield Sentence(f"{who} is {state_in_words}: {row['liveness_advice']}", Tone.PLAIN)
    yield from _said_of_restarts(asked, rows)
    for row in rows:
        yield from _said_of_trouble(row, f"broker {row['broker']}{asked.of_cluster(row['cluster'])}", asked.now)
    for cluster in dict.fromkeys(row["cluster"] for row in rows if row["is_overloaded"]):
        yield Sentence(
            f"cluster {cluster} is overloaded: more brokers are slower than usual than one of them could cause",
            Tone.WARNING,
        )


def _said_of_restarts(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say once what keeps brokers of a cluster from being stopped for the same reason, and why that is unknown."""
    for each, freshness in asked.clusters:
        why = why_no_advice(each, is_stale=freshness["is_stale"], is_past=not asked.is_now)
        if why is not None and any(row["cluster"] == each.name for row in rows):
            yield Sentence(f"safe to stop{asked.of_cluster(each.name)}: {why}")
    for cluster in dict.fromkeys(row["cluster"] for row in rows):
        own = [row for row in rows if row["cluster"] == cluster and row["liveness_advice"] is None]
        for who, reason in by_reason((row["broker"], row["restart_reason"]) for row in own):
            yield Sentence(f"restart of {who}{asked.of_cluster(cluster)}: {reason}", Tone.PLAIN)


def why_no_advice(cluster: ClusterSnapshot, *, is_stale: bool, is_past: bool) -> str | None:
    """Return why there is no advice about brokers of a cluster; None where there is."""
    if is_past:
        return "not kept"
    if is_stale:
        return "unknown: the data is stale"
    return "unknown: the job has not said" if cluster.advice is None or not cluster.is_derived else None


def by_reason(reasons: Iterable[tuple[int, str | None]]) -> Iterator[tuple[str, str]]:
    """Yield each reason once, with the brokers that have it; None is none."""
    brokers: defaultdict[str, list[int]] = defaultdict(list)
    for number, reason in reasons:
        if reason is not None:
            brokers[reason].append(number)
    yield from ((brokers_in_words(numbers), reason) for reason, numbers in brokers.items())


def _said_of_trouble(row: Row, who: str, now: int) -> Iterator[Sentence]:
    if row["is_slow"]:
        since = "" if row["slow_since"] is None else f" for {span(max(0, now - row['slow_since']) / SECOND)}"
        yield Sentence(f"{who} is slow{since}: {'; '.join(row['slow_reasons'] or ())}", Tone.WARNING)
    for meter in row["isr_meters"] or ():
        if meter["missed"]:
            changes = meter["meter"].replace("_", " ").replace("isr", "ISR")
            yield Sentence(
                f"{who} counted {meter['counted']:,} {changes} since {_to_the_second(meter['since'], now)} UTC, "
                f"{meter['recorded']:,} of which were recorded: {meter['missed']:,} were missed",
                Tone.WARNING,
            )


def announced_work(row: Row, now: int) -> str:
    """Return until when planned work on a broker is announced, and why; or when it overran; nothing without any."""
    if row["maintenance_until"] is not None:
        return f"until {_to_the_second(row['maintenance_until'], now)} UTC: {row['maintenance_why']}"
    overran = row["maintenance_overran_at"]
    return "" if overran is None else f"overran at {_to_the_second(overran, now)} UTC"


def _to_the_second(micros: int, now: int) -> str:
    return Clock(now).short(micros).partition(".")[0]


BROKER_FILTER: Final = NameFilter(name="broker", help="Broker id.", names=lambda row: (str(row["broker"]),))
BROKERS: Final = ClusterSubject(
    name="brokers",
    help="Show brokers: what each leads and holds, and whether it is safe to stop.",
    filters=(BROKER_FILTER,),
    columns=tuple(
        dict.fromkeys(
            (
                *FRESHNESS,
                *BrokerState._fields,
                "broker_state",
                *HOLDS,
                "isr_departures",
                *ADVICE,
                *SPEED,
                *RECOVERY,
                *METERS,
            )
        )
    ),
    rows=broker_rows,
    said=said_of_brokers,
    has_history=True,
)
