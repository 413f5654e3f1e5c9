"""The quorum of controllers: no leader, too many elections, voters that cannot take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboards.alerts.templates import FRESH, THIS_CLUSTER, Continuation, Rule, number, rule, top
from dashboards.promql import EVERYWHERE, Signal
from dashboards.signals import brokers, clusters, monitor, quorum

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings


def no_controller(settings: AlertSettings) -> Rule:
    """Page for a metadata quorum without a leader: the metadata log stands still while the brokers answer.

    Where polls have taken over from the log, the controller is not known any more.
    """
    age, up, behind, controller = monitor.SOURCE_AGE, monitor.QUERY_UP, monitor.BEHIND, quorum.CONTROLLER
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


# Offsets and broker metrics have channels of their own and contain no ISR changes.
_REPLICATION = 'channel="replication"'
# Beside it in that channel: who votes, leases, and the poller, all of which go on without a controller.
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
        f"{quorum.CONTROLLER_CHANGES.increase(settings.controllers_window)} > {settings.controller_changes + 0.5}",
        "{{ $labels.cluster }} elects a new controller again and again",
        'Cluster {{ $labels.cluster }} has had about {{ $value | printf "%.0f" }} new active controllers within '
        f"{settings.controllers_window}. During each election no leader of a partition is elected and no ISR changes. "
        f"Now: {number(quorum.CONTROLLER.now(THIS_CLUSTER))}.",
        settings,
        run="isrwatch state --quorum",
    )


def voter_behind(settings: AlertSettings) -> Rule:
    """Ticket for voters that are behind: with each of them the quorum survives the loss of one less."""
    behind = f"{quorum.BEHIND.now()} > {settings.voter_seconds}"
    # A node may be broker and controller; work on it is announced by its id.
    announced = f'label_replace({brokers.MAINTENANCE.now()} == 1, "node", "$1", "broker", "(.*)")'
    these = f"{quorum.BEHIND.now(THIS_CLUSTER)} > {settings.voter_seconds}"
    return rule(
        "KafkaQuorumVoterBehind",
        "ticket",
        f"count by (cluster) ({behind}\n  and on (cluster, node) {quorum.VOTER.now()} == 1\n"
        f"  unless on (cluster, node) {announced})",
        "Voters of the metadata quorum of {{ $labels.cluster }} are behind",
        "Voters of the metadata quorum of cluster {{ $labels.cluster }} have lacked records of its leader for "
        f"more than {settings.voter_seconds} s: "
        + top(these, "node {{ .Labels.node }} ({{ .Value | humanizeDuration }})")
        + ". Without a majority that has caught up nothing can be elected.",
        settings,
        run="isrwatch state --quorum",
        lasting=settings.voter_for,
        goes_on=Continuation(fresh=quorum.VOTER),
    )
