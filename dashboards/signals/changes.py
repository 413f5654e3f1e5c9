"""Counted changes of ISRs and leaders, by cluster."""

from __future__ import annotations

from functools import partial
from typing import Final

from dashboards.promql import Signal, SignalType
from dashboards.signals.labels import CLUSTER

_cluster = partial(Signal, labels=CLUSTER)

ISR_SHRINKS: Final = _cluster(
    "ISR shrinks",
    "cluster_isr_shrinks_total",
    (
        "Changes in which a broker left an ISR. A burst during a restart is normal; a steady rate means replicas that "
        "cannot keep up. The panels above show which broker and why."
    ),
    kind=SignalType.COUNTER,
)
ISR_EXPANDS: Final = _cluster(
    "ISR expands",
    "cluster_isr_expands_total",
    "Changes in which a broker joined an ISR. Each shrink should be followed by one; if not, a broker is missing.",
    kind=SignalType.COUNTER,
)
LEADER_CHANGES: Final = _cluster(
    "Leader changes",
    "cluster_leader_changes_total",
    (
        "Partitions that got another leader. Clients retry briefly at each. Outside restarts and preferred leader "
        "elections there should be none."
    ),
    kind=SignalType.COUNTER,
)
UNCLEAN_ELECTIONS: Final = _cluster(
    "Unclean elections",
    "cluster_unclean_elections_total",
    (
        "Leaders elected from outside the in-sync replicas: acknowledged records may be lost. Should always be 0. "
        "Find the topics, inform their owners of the time, and check unclean.leader.election.enable."
    ),
    kind=SignalType.COUNTER,
)
MISSED_CHANGES: Final = _cluster(
    "Missed changes",
    "cluster_missed_changes_total",
    (
        "Changes inferred from epoch gaps but never observed. With the metadata log there should be none; polling "
        "misses changes that are shorter than its interval."
    ),
    kind=SignalType.COUNTER,
)
