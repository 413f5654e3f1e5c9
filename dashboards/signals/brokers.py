"""Brokers: registration, replicas, the cost of a stop, suspicion."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType, Unit
from dashboards.signals.labels import BROKER

_broker = partial(Signal, labels=BROKER)

INFO: Final = Signal(
    name="Broker",
    meaning="Rack and host of the broker.",
    metric="broker_info",
    labels=(*BROKER, "rack", "host"),
)
REGISTERED: Final = _broker("Registered", "broker_registered", "1 while the broker is registered with the controller.")
FENCED: Final = _broker("Fenced", "broker_fenced", "1 while the broker is fenced by the controller.")
EPOCH: Final = _broker("Registration", "broker_epoch", "Epoch of the registration: each start has a larger one.")
SHUTTING_DOWN: Final = _broker(
    "Stopped on purpose", "broker_shutting_down", "1 from a controlled shutdown of the broker until it registers again."
)
MAINTENANCE: Final = _broker("In maintenance", "broker_maintenance", "1 while planned work on it is announced.")
ONLINE_LOG_DIRS: Final = _broker(
    "Online log directories", "broker_online_log_dirs", "Log directories that the broker can use."
)
LED: Final = _broker(
    "Led partitions",
    "broker_led_partitions",
    "Partitions that each broker leads. A step to 0: it was lost, or is stopping.",
)
HOSTED: Final = _broker(
    "Hosted partitions", "broker_hosted_partitions", "Partitions of which a replica is assigned to the broker."
)
IN_SYNC: Final = _broker("In-sync partitions", "broker_in_sync_partitions", "Partitions whose ISR contains the broker.")
MISSING_FROM_ISR: Final = _broker(
    "Missing from ISRs",
    "broker_missing_from_isr_partitions",
    "Under-replicated partitions that the broker is assigned to, while it is not in their ISR.",
)
MISSING_AT_MIN_ISR: Final = _broker(
    "Missing at min ISR",
    "broker_missing_at_min_isr_partitions",
    "Of those, the partitions that are at or under min ISR, or offline.",
)
ISR_REMOVALS: Final = Signal(
    name="ISR removals by broker and cause",
    meaning=(
        "How often each broker left an ISR, and why. controlled_shutdown, restart and reassignment are planned. "
        "lag: disk or network of that broker. leader_stall: the leader stalled, the followers are fine. "
        "fenced: process, host or connection to the controllers. dir_failure: a disk failed."
    ),
    metric="broker_isr_departures_total",
    labels=(*BROKER, "cause"),
    kind=SignalType.COUNTER,
)
SUSPECT_SCORE: Final = _broker(
    "Suspect score", "broker_suspect_score", "Share of the current ISR shrinks that the broker explains, 0 to 1."
)
SAFE_TO_STOP: Final = _broker(
    "Safe to stop",
    "broker_safe_to_stop",
    "1 if no partition would go offline or under min ISR if this one broker stopped now.",
)
RESTART_ORDER: Final = _broker(
    "Restart order", "broker_restart_order", "Position in the recommended restart order, from 1.", unit=Unit.BARE
)
WOULD_GO_UNDER_MIN_ISR: Final = _broker(
    "Would go under min ISR",
    "broker_would_go_under_min_isr_partitions",
    "Partitions that would refuse writes if the broker stopped now.",
)
WOULD_GO_OFFLINE: Final = _broker(
    "Would go offline",
    "broker_would_go_offline_partitions",
    "Partitions that would have no leader if the broker stopped now.",
)
MAINTENANCE_OVERRUN: Final = _broker(
    "Work overran",
    "broker_maintenance_overrun",
    "1 while the broker is not back although the time of planned work is over.",
)
UNAVOIDABLE_OFFLINE: Final = _broker(
    "Offline in any order",
    "broker_unavoidable_offline_partitions",
    "Partitions that a restart takes offline in any order: they have one replica.",
)
UNAVOIDABLE_UNDER_MIN_ISR: Final = _broker(
    "Under min ISR in any order",
    "broker_unavoidable_under_min_isr_partitions",
    "Partitions that a restart takes under min ISR in any order: they have no more replicas than it.",
)
LAGGING_REPLICAS: Final = _broker(
    "Replicas behind",
    "broker_lagging_replicas",
    "Replicas of the broker that have not caught up with their leaders between two samples.",
)
MAX_REPLICA_LAG: Final = _broker(
    "Largest lag, records",
    "broker_max_replica_lag_records",
    (
        "Records that the most lagging replica of each broker lacks. A rise on one broker: its disk or network; on "
        "all: load, or a leader that answers slowly. It rises before the replica leaves the ISR."
    ),
)
SLOW: Final = _broker("Slow", "broker_slow", "1 while the broker is slower than it was and than its peers.")
OVERLOADED: Final = _broker(
    "Overloaded", "broker_overloaded", "1 while so many brokers are slower than before that none of them is to blame."
)
RESPONSE: Final = _broker(
    "Response time",
    "broker_response_seconds",
    (
        "Median time of a request to each broker that touches no log. One that rises alone: that broker or the way to "
        "it; all together: load, or the collector's own network."
    ),
    unit=Unit.SECONDS,
)
APPEND: Final = _broker(
    "Append time",
    "broker_append_seconds",
    (
        "Mean time of each broker's own part of a produce request, by its metrics agent; absent without one. It is the "
        "time of the disk, or of the page cache that waits for it."
    ),
    unit=Unit.SECONDS,
)
