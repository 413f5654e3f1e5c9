"""Brokers that run but do not serve: fenced though they answer, restarting again and again, slow, not back in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.templates import (
    ANSWERING,
    FRESH,
    OF_BROKER,
    OF_CLUSTER,
    STOPPED_ON_PURPOSE,
    THIS_CLUSTER,
    Continuation,
    Rule,
    number,
    rule,
    suspects,
    top,
    unannounced,
    value,
)
from dashboards.promql import EVERYWHERE, Signal
from dashboards.signals import brokers, clusters, monitor
from dashboards.signals.derived import BROKER

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

_SPEED: Final = Continuation(labels=BROKER, fresh=brokers.RESPONSE, by=BROKER)
_SPEEDS: Final = Continuation(fresh=brokers.RESPONSE)


def fenced_though_up(settings: AlertSettings) -> Rule:
    """Ticket for a broker whose listener answers while the controller has it fenced."""
    fenced = f"{brokers.FENCED.now()} == 1\nand on (cluster, broker) {ANSWERING}"
    return rule(
        "KafkaBrokerFencedThoughUp",
        "ticket",
        unannounced(f"{fenced}\nunless on (cluster, broker) {STOPPED_ON_PURPOSE}"),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} answers, but is fenced",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has answered the collector for "
        f"{settings.fenced_for}, while the controller has it fenced: it leads nothing and is in no ISR. It does not "
        "reach the controllers, or has not caught up with the metadata log. A restart does not help while it recovers "
        f"its logs. {suspects()}",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.fenced_for,
        goes_on=OF_BROKER,
    )


def restart_loop(settings: AlertSettings) -> Rule:
    """Ticket for a broker that is fenced again and again, as one that a supervisor restarts.

    A restart between two scrapes is seen by its registration, the loss of a session by the fence only.
    """
    changes = "max by (cluster, broker) (changes({}[{}]))"
    turns = changes.format(brokers.FENCED.series(), settings.loop_window)
    starts = changes.format(brokers.EPOCH.series(), settings.loop_window)
    often = f"({turns} > {2 * settings.loop_restarts}\nor {starts} > {settings.loop_restarts})"
    return rule(
        "KafkaBrokerRestartLoop",
        "ticket",
        unannounced(often, within=settings.loop_window),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is fenced again and again",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} was away and came back more than "
        f"{settings.loop_restarts} times within {settings.loop_window}: it crashes after each start, or loses its "
        f"session. Its partitions lose a replica each time. {suspects()}",
        settings,
        run="isrwatch events --broker {{ $labels.broker }} --since 2h",
        goes_on=OF_BROKER,
    )


def slow(settings: AlertSettings) -> Rule:
    """Ticket for a broker that is slower than it was, and than its peers."""
    times = "{{ .Labels.broker }} ({{ .Value | humanizeDuration }})"
    return rule(
        "KafkaBrokerSlow",
        "ticket",
        unannounced(f"{brokers.SLOW.now()} == 1"),
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is slow",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has been slower than it was, and than its peers, "
        f"for {settings.slow_for}: it is up, and holds up who waits for it. Slowest responses in the cluster: "
        f"{top(brokers.RESPONSE.now(THIS_CLUSTER), times)}. {suspects()}",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.slow_for,
        goes_on=_SPEED,
    )


def overloaded(settings: AlertSettings) -> Rule:
    """Ticket for a cluster in which so many brokers are slow that none of them is to blame."""
    return rule(
        "KafkaBrokersOverloaded",
        "ticket",
        f"sum by (cluster) ({brokers.OVERLOADED.now()} == 1)",
        "Brokers of {{ $labels.cluster }} are overloaded",
        f"{value(brokers.RESPONSE)} brokers of cluster {{{{ $labels.cluster }}}} have been slower than before "
        f"for {settings.overloaded_for}, too many for one of them to be to blame: load, network or storage that they "
        "share. Producers and consumers wait.",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.overloaded_for,
        goes_on=_SPEEDS,
    )


def maintenance_overrun(settings: AlertSettings) -> Rule:
    """Ticket for planned work whose time is over while the broker is not back."""
    return rule(
        "KafkaMaintenanceOverrun",
        "ticket",
        f"{brokers.MAINTENANCE_OVERRUN.now()} == 1",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} is not back when its planned work is over",
        "The time that was announced for work on broker {{ $labels.broker }} of cluster {{ $labels.cluster }} is over, "
        "and the broker is not back: from now on it is an outage like any other. Extend the announcement, or start it. "
        f"At min ISR in the cluster: {number(clusters.AT_MIN_ISR.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch maintenance",
        lasting=settings.overrun_for,
        goes_on=OF_BROKER,
    )


def gone(settings: AlertSettings) -> Rule:
    """Info about brokers that were removed: nothing is assigned to them any more."""
    most = f"max by (cluster) (max_over_time({clusters.BROKERS.series()}[{settings.gone_window}]))"
    return rule(
        "KafkaBrokerGone",
        "info",
        f"{most} - {clusters.BROKERS.now()} > 0",
        "{{ $labels.cluster }} has fewer brokers than it had",
        f"Cluster {{{{ $labels.cluster }}}} has {value()} registered brokers less than at most within "
        f"{settings.gone_window}. If that was not ordered, the cluster has lost their capacity for good. Now: "
        f"{number(clusters.BROKERS.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch events --event unregistered --since 7d",
        lasting=settings.gone_for,
        goes_on=OF_CLUSTER,
    )


# Alerts on what only a broker's agent knows: log recovery, partitions given up, metadata that could not be applied.


_ROW: Final = "{{ .Labels.broker }} ({{ .Value }})"


def recovering(settings: AlertSettings) -> Rule:
    """Info about a broker that looks dead and recovers its logs."""
    return rule(
        "KafkaBrokerRecovering",
        "info",
        f"{brokers.LOGS_TO_RECOVER.now()} > 0",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} recovers its logs: do not restart it",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} was not stopped cleanly and reads its logs "
        f"before it serves. Logs left: {top(f'{brokers.LOGS_TO_RECOVER.now(THIS_CLUSTER)} > 0', _ROW)}. A restart "
        "would start over.",
        settings,
        run="isrwatch state --brokers",
        lasting=settings.recovering_for,
    )


def partitions_given_up(settings: AlertSettings) -> Rule:
    """Ticket for replicas that will not catch up by themselves."""
    failed = brokers.FAILED_PARTITIONS
    return rule(
        "KafkaReplicaFetcherFailed",
        "ticket",
        f"{failed.now()} > 0",
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} has given up to replicate partitions",
        "The fetchers of broker {{ $labels.broker }} of cluster {{ $labels.cluster }} have stopped to replicate "
        f"partitions after an error, for {settings.fetcher_failed_for}: these replicas do not catch up until their "
        f"leader changes or the broker is restarted. Partitions: {top(f'{failed.now(THIS_CLUSTER)} > 0', _ROW)}.",
        settings,
        run="isrwatch state --replicas",
        lasting=settings.fetcher_failed_for,
        goes_on=_goes_on(failed),
    )


def metadata_errors(settings: AlertSettings) -> Rule:
    """Ticket for a broker or controller whose view of the cluster may be wrong."""
    load, apply, controller = brokers.METADATA_LOAD_ERRORS, brokers.METADATA_APPLY_ERRORS, brokers.METADATA_ERRORS
    errors = " or ".join(f"{each.now()} > 0" for each in (load, apply, controller))
    return rule(
        "KafkaMetadataErrors",
        "ticket",
        errors,
        "Broker {{ $labels.broker }} of {{ $labels.cluster }} could not apply the metadata of the cluster",
        "Broker {{ $labels.broker }} of cluster {{ $labels.cluster }} has had errors with records of the metadata log "
        "since it was started. Its view of topics, leaders and settings may be wrong until it is restarted.",
        settings,
        run="isrwatch state --brokers",
        goes_on=_goes_on(load),
    )


def _goes_on(fresh: Signal) -> Continuation:
    """Continue while the agent of the broker is silent."""
    return Continuation(labels=BROKER, fresh=fresh, by=BROKER)


# The quorum of controllers: no leader, too many elections, voters that cannot take over.


def no_controller(settings: AlertSettings) -> Rule:
    """Page for a metadata quorum without a leader: the metadata log stands still while the brokers answer.

    Where polls have taken over from the log, the controller is not known any more.
    """
    age, up, behind, controller = monitor.SOURCE_AGE, monitor.QUERY_UP, monitor.BEHIND, clusters.CONTROLLER
    log, other = (_of_collector(age, matcher) for matcher in (_LOG, 'channel!="replication"'))
    silent = (
        f"max by (cluster) ({log} > {settings.stale_seconds} "
        f"and on (cluster, collector) {other} <= {settings.stale_seconds})\n"
        f"and on (cluster) {clusters.DATA_AGE.now()} > {settings.stale_seconds}"
    )
    applied = (
        f"min by (cluster) ({up.series(EVERYWHERE, _REPLICATION)}) == 1 "
        f"and on (cluster) max by (cluster) ({behind.series(EVERYWHERE, _REPLICATION)}) == 0"
    )
    forgotten = f"{controller.last_known(settings.remembered)} unless on (cluster) {controller.now()}"
    return rule(
        "KafkaNoController",
        "page",
        f"({silent} and on (cluster) ({applied}))\nor (({forgotten}) and on (cluster) {FRESH})",
        "{{ $labels.cluster }} has no active controller",
        "Cluster {{ $labels.cluster }}: no controller answers the collector as the leader of the metadata quorum, "
        "while it still reads the brokers. Leaders are not elected, ISRs do not change, topics cannot be created. "
        f"Last active controller: {number(controller.last_known(settings.remembered, THIS_CLUSTER))}.",
        settings,
        run="kafka-metadata-quorum.sh --bootstrap-controller HOST:PORT describe --status",
        lasting=settings.no_controller_for,
    )


# Samples have a channel of their own and contain no ISR changes.
_REPLICATION = 'channel="replication"'
# In that channel, too: who votes, leases, and the poller, all of which continue without a controller.
_LOG = 'channel="replication", source=~"metadata_log:.*"'


def _of_collector(signal: Signal, matcher: str) -> str:
    """Return the youngest age by cluster and collector; the name of a source ends with its collector's."""
    renamed = f'label_replace({signal.series(EVERYWHERE, matcher)}, "collector", "$1", "source", "[^:]*:(.*)")'
    return f"min by (cluster, collector) ({renamed})"


def controllers_flap(settings: AlertSettings) -> Rule:
    """Ticket for a quorum that elects again and again; an increase is extrapolated, so half an election is added."""
    return rule(
        "KafkaControllersFlap",
        "ticket",
        f"{clusters.CONTROLLER_CHANGES.increase(settings.controllers_window)} > {settings.controller_changes + 0.5}",
        "{{ $labels.cluster }} elects a new controller again and again",
        'Cluster {{ $labels.cluster }} has had about {{ $value | printf "%.0f" }} new active controllers within '
        f"{settings.controllers_window}. During each election no leader of a partition is elected and no ISR changes. "
        f"Now: {number(clusters.CONTROLLER.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch state --quorum",
    )


def voter_behind(settings: AlertSettings) -> Rule:
    """Ticket for voters that are behind: with each of them the quorum survives the loss of one less."""
    behind = f"{clusters.MEMBER_BEHIND.now()} > {settings.voter_seconds}"
    # A node may be broker and controller; work on it is announced by its id.
    announced = f'label_replace({brokers.MAINTENANCE.now()} == 1, "node", "$1", "broker", "(.*)")'
    these = f"{clusters.MEMBER_BEHIND.now(THIS_CLUSTER)} > {settings.voter_seconds}"
    return rule(
        "KafkaQuorumVoterBehind",
        "ticket",
        f"count by (cluster) ({behind}\n  and on (cluster, node) {clusters.VOTER.now()} == 1\n"
        f"  unless on (cluster, node) {announced})",
        "Voters of the metadata quorum of {{ $labels.cluster }} are behind",
        "Voters of the metadata quorum of cluster {{ $labels.cluster }} have lacked records of its leader for "
        f"more than {settings.voter_seconds} s: "
        + top(these, "node {{ .Labels.node }} ({{ .Value | humanizeDuration }})")
        + ". Without a majority that has caught up nothing can be elected.",
        settings,
        run="isrwatch state --quorum",
        lasting=settings.voter_for,
        goes_on=Continuation(fresh=clusters.VOTER),
    )
