"""Conditions: what is wrong with a cluster, since when, whom it concerns, and when it is worth an alert.

The rows of the table ``conditions`` are *spells*: from when until when something was wrong without a break. The job
writes them from the change log alone. How bad a spell is depends on how long it lasts, so that is derived when the rows
are read (``contracts.standing``): no commit is made because time passes, and a restart of any program changes nothing.
"""

# Theory of operation
#
# - A spell begins and ends with a row of the change log, at the time of that row. Its key is cluster, condition and
#   subject: "" for the cluster as a whole, otherwise a broker id; never a partition. Partitions that are offline or
#   refuse writes have a spell for each incident that explains them, so that new trouble is raised next to old trouble.
#   What ends at the moment at which it began is taken back: rows of one moment come one by one.
# - What a report after time without observation shows to be over ended when that time began: nothing was seen of it
#   since, so it does not become severe by it. What the report shows to be still so has lasted: an alert of it is true,
#   and to wait for its time once more would keep trouble silent that is older than any rule asks for.
# - Spells of one key that follow each other within KEPT are one *chain*. A later spell inherits ``since``,
#   ``incident_id`` and ``short_id`` of the first one: the labels of an alert do not change while a partition comes
#   and goes. Spells that were too short to be raised lead none that another incident explains: their name says
#   nothing about it. Spells of partitions that begin within BOUND of each other are of one chain, whatever explains
#   them: they are one trouble, named by the newest incident. A broker that is missing from ISRs and one that is down
#   are of one chain, since redundancy is lost in both; one that went down after it was missing counts as down since
#   then. Moments (an unclean election) are of one chain within WINDOW, and only if one incident explains them.
# - Harm that begins within KEPT of the begin of other harm of the cluster, which was raised, has its name, whatever
#   explains it: brokers that crash one after the other, and what follows from that, are one trouble.
# - The incident of a chain may become known, or be merged into another one, for BOUND after its begin. Then its name is
#   fixed. Nothing but a moment, which is named by its own row, is raised before SETTLED, which is longer: the job may
#   be that far behind what the exporter knows of time.
# - ``standing`` says, at a time of the data, which chains are raised and how severe they are: by how long a spell
#   lasts, or by how long spells last together within WINDOW. What is raised stays raised until KEPT after its end.
#
# Invariant: for any rows, and any later time or later rows, a chain that is raised keeps its labels until it is over.
# tests/contracts/test_standing.py.

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from streaming.contracts.columns import Long, columns_of
from streaming.contracts.events import Severity
from streaming.contracts.identifiers import SECOND, ClusterId, Micros

BOUND: Final = 20 * SECOND
SETTLED: Final = 30 * SECOND
KEPT: Final = 300 * SECOND
WINDOW: Final = 1_800 * SECOND
HOUR: Final = 3_600 * SECOND
TOPICS_NAMED: Final = 20
RECENT: Final = 2 * HOUR
"""Age up to which a spell that is over may still count."""


class Condition(StrEnum):
    """Trouble of a cluster.

    The job writes spells of the first group, and in a table of its own of the last one (``sampled_conditions``); the
    exporter derives the others when it reads.
    """

    OFFLINE = "offline_partitions"
    """Partitions have no leader."""
    OFFLINE_PLANNED = "offline_partitions_planned"
    """The same, all of partitions with one replica, whose broker was stopped by plan."""
    UNDER_MIN_ISR = "under_min_isr"
    """Partitions refuse writes with acks=all."""
    UNDER_MIN_ISR_PLANNED = "under_min_isr_planned"
    """The same, all of partitions that need every replica, whose brokers were stopped by plan."""
    UNCLEAN_ELECTION = "unclean_election"
    """A leader was elected that may lack acknowledged records. A moment: it begins and ends at once."""
    MIN_ISR_UNKNOWN = "min_isr_unknown"
    """Partitions lack replicas, and their minimum is unknown: they may refuse writes."""
    AT_MIN_ISR = "at_min_isr"
    """Partitions lack replicas, and would refuse writes without another one."""
    BROKER_DOWN = "broker_down"
    """A broker is fenced or not registered although it has replicas, or is back and has not caught up since."""
    UNDER_REPLICATED = "under_replicated"
    """A broker runs, was not down, and is missing from the ISR of partitions."""
    PLANNED_WORK = "planned_work"
    """A broker is down, or missing from ISRs, while work on it is announced."""
    REASSIGNING = "reassigning"
    """Partitions are being reassigned; ``progressed_at`` is when one of them last began, ended or was cancelled."""

    RESTART_LOOP = "restart_loop"
    """A broker goes down again and again."""
    ISR_FLAPPING = "isr_flapping"
    """A broker leaves ISRs again and again."""
    REASSIGNMENT_STUCK = "reassignment_stuck"
    """Partitions are being reassigned, and none of them gets on."""

    NO_DATA = "no_data"
    """The primary source has reported nothing yet."""
    DATA_STALE = "data_stale"
    """The data is too old to say anything about now."""
    JOB_DOWN = "job_down"
    """The job does not report any more: every cluster behind it is blind."""
    TABLE_UNREADABLE = "table_unreadable"
    """A table cannot be read."""
    SERIES_LEFT_OUT = "series_left_out"
    """The exporter left out series of partitions, to stay below its limit."""
    NO_CONTROLLER = "no_controller"
    """No controller leads the metadata quorum."""
    PRIMARY_SOURCE_LOST = "primary_source_lost"
    """The metadata log is not read any more, polling took over."""
    SAMPLES_STALE = "samples_stale"
    """Samples are old although the partitions are observed."""

    LOG_DIRECTORY_OFFLINE = "log_directory_offline"
    """A log directory of a broker is offline."""
    DISK_FILLS_UP = "disk_fills_up"
    """A volume of a broker is almost full, or will be within two hours."""
    DISK_NEARLY_FULL = "disk_nearly_full"
    """A volume of a broker has little space left, or will be full within a day."""
    QUORUM_VOTER_BEHIND = "quorum_voter_behind"
    """A voter of the metadata quorum has not caught up with its leader."""
    HANGING_TRANSACTION = "hanging_transaction"
    """A partition keeps a transaction open that its coordinator has ended, or does not know."""
    GROUP_STUCK = "group_stuck"
    """A group commits nothing of a partition that it reads, and that has more to read."""
    GROUP_LOSING = "group_losing"
    """Records of a partition that a group reads were deleted lately before it had committed them."""
    GROUP_BEYOND_END = "group_beyond_end"
    """A group stands beyond the end of a partition."""


OF_BROKERS: Final = frozenset({
    Condition.BROKER_DOWN, Condition.UNDER_REPLICATED, Condition.PLANNED_WORK,
    Condition.RESTART_LOOP, Condition.ISR_FLAPPING,
})  # fmt: skip
"""Conditions whose subject is a broker id; that of the others is empty."""


HARMFUL: Final = frozenset({Condition.OFFLINE, Condition.UNDER_MIN_ISR, Condition.UNCLEAN_ELECTION})
"""Conditions that harm clients, other than by plan."""


class Spell(NamedTuple):
    """One row of ``conditions``. Times are UTC microseconds of the change log."""

    condition_id: Annotated[str, "deterministic: the same changes give the same id"]
    cluster_id: Annotated[ClusterId, "Kafka's cluster id"]
    cluster: Annotated[str, "display name of the cluster"]
    condition: Annotated[Condition, "what is wrong"]
    subject: Annotated[str, "id of the broker that it concerns; empty: the cluster"]
    since: Annotated[Micros, "when the first of the spells began that it follows within five minutes"]
    began_at: Annotated[Micros, "when it began"]
    ended_at: Annotated[Micros | None, "when it ended; null while it lasts"]
    progressed_at: Annotated[Micros | None, "of a reassignment: when it last got on"]
    incident_id: Annotated[str | None, "the incident that explained the first of these spells from its begin"]
    short_id: Annotated[str | None, "short id of that incident"]
    partitions: Annotated[Long, "how many partitions it concerns, at most"]
    topics: Annotated[tuple[str, ...], "topics of those that are offline or refuse writes, at most twenty of them"]
    topic_count: Annotated[
        Long, "how many topics these are, as far as their rows were read; without an incident at most twenty"
    ]
    began_version: Annotated[Long, "version of partition_changes with its begin"]
    ended_version: Annotated[Long | None, "version of partition_changes with its end"]
    explained_by: Annotated[str | None, "the incident that explains it now, or did when it ended"] = None


CONDITION: Final = columns_of(Spell)


def chained_with(condition: Condition) -> Condition:
    """Return the condition with whose spells those of another one are chained."""
    return Condition.BROKER_DOWN if condition is Condition.UNDER_REPLICATED else condition


class Rule(NamedTuple):
    """Rule by which spells are raised, and how severe they are.

    Attributes:
        severity: of an alert.
        lasting: microseconds that one spell must last.
        adding_up: microseconds that spells must last together within ``WINDOW``; None: only one spell counts.
        kept: microseconds that it is raised after its end.
    """

    severity: Severity
    lasting: int
    adding_up: int | None = None
    kept: int = KEPT


RULES: Final[dict[Condition, Rule]] = {
    Condition.OFFLINE: Rule(Severity.CRITICAL, 60 * SECOND, adding_up=90 * SECOND),
    Condition.OFFLINE_PLANNED: Rule(Severity.WARNING, 60 * SECOND, adding_up=90 * SECOND),
    Condition.UNDER_MIN_ISR: Rule(Severity.CRITICAL, 60 * SECOND, adding_up=90 * SECOND),
    Condition.UNDER_MIN_ISR_PLANNED: Rule(Severity.WARNING, 60 * SECOND, adding_up=90 * SECOND),
    Condition.UNCLEAN_ELECTION: Rule(Severity.CRITICAL, 0, kept=WINDOW),
    Condition.MIN_ISR_UNKNOWN: Rule(Severity.WARNING, SETTLED),
    Condition.BROKER_DOWN: Rule(Severity.WARNING, 900 * SECOND),
    Condition.UNDER_REPLICATED: Rule(Severity.WARNING, 900 * SECOND),
    Condition.RESTART_LOOP: Rule(Severity.WARNING, 0, kept=WINDOW),
    Condition.ISR_FLAPPING: Rule(Severity.WARNING, 0, kept=WINDOW),
    Condition.REASSIGNMENT_STUCK: Rule(Severity.WARNING, 2 * HOUR),
}
"""The rule of each condition that may be raised. Times are the defaults of ``[alerts]``.

An unknown minimum is raised at once, as the other parts of isrwatch that fail: the rule of their alert waits.
"""
