"""The pack that is on as it comes: 16 rules, each over one to three metrics but for the parts of isrwatch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dashboards.alerts.rule import KEPT, OF_CLUSTER, Rule, conditions, labelled, rule, scope, threshold, waiting
from dashboards.signals import changes, clusters, monitor
from streaming.alert_settings import AlertChange, shown_severity
from streaming.contracts.alerts import ALERTS
from streaming.contracts.events import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.settings import Settings

_CLUSTER: Final = "{{ $labels.cluster }}"
_BROKER: Final = "{{ $labels.subject }}"
_PLANNED: Final = '{{ if match "_planned$" $labels.condition }} (planned work){{ end }}'
_OF_BROKER: Final = {"cluster": "cluster", "broker": "subject"}
_OF_TOPIC: Final = {"topic": "subject"}
_INCIDENTS: Final = f"isrwatch incidents --cluster {_CLUSTER}"
_BROKERS: Final = f"isrwatch brokers --cluster {_CLUSTER}"
_DIRECTORIES: Final = f"isrwatch directories --cluster {_CLUSTER}"
_DOCTOR: Final = "isrwatch doctor"


def _of_partitions(settings: Settings) -> Iterator[Rule]:
    for name, what, first in (
        ("OfflinePartitions", f"Partitions of {_CLUSTER} have no leader{_PLANNED}: neither reads nor writes",
         "start a broker that could lead them, and stop no other one"),
        ("UnderMinIsr", f"Partitions of {_CLUSTER} refuse writes with acks=all{_PLANNED}: under min ISR",
         "stop any rolling restart, and start the broker that is missing from most ISRs"),
        ("UncleanElection", f"Records of {_CLUSTER} may be lost: a leader was elected from outside the ISR",
         "keep the former leader stopped until its segments are copied"),
    ):  # fmt: skip
        yield _of_conditions(name, f"{what}. First: {first}", settings, _INCIDENTS, OF_CLUSTER)


def _of_brokers(settings: Settings) -> Iterator[Rule]:
    broker = f"Broker {_BROKER} of {_CLUSTER}"
    loop = '{{ if eq $labels.condition "restart_loop" }}goes down again and again{{ else }}is down{{ end }}'
    yield _of_conditions(
        "BrokerDown", f"{broker} {loop}. First: find out why, and stop no other one", settings, _BROKERS, _OF_BROKER
    )
    for name, what, first in (
        ("UnderReplicated", "runs, and is missing from ISRs", "see whether its lag shrinks, then its disk and network"),
        ("IsrFlapping", "leaves ISRs again and again", "see its disk, its network and the pauses of leaders"),
    ):
        yield _of_conditions(name, f"{broker} {what}. First: {first}", settings, _BROKERS, _OF_BROKER)


def _of_disks(settings: Settings) -> Iterator[Rule]:
    broker, directory = (
        "{{ $labels.subject | reReplaceAll `:.*` `` }}",
        "{{ $labels.subject | reReplaceAll `^[^:]*:` `` }}",
    )
    whose = f"{directory} of broker {broker} of {_CLUSTER}"
    soon = '{{ if eq $labels.condition "disk_fills_up" }}is almost full{{ else }}is nearly full{{ end }}'
    yield _of_conditions(
        "LogDirOffline",
        f"The log directory {whose} is offline. First: replace the disk, then restart the broker if that is safe",
        settings,
        _DIRECTORIES,
        _OF_BROKER,
    )
    yield _of_conditions(
        "DiskFillsUp",
        f"The volume {whose} {soon}. First: see what grows, shorten its retention, or cancel what fills it",
        settings,
        _DIRECTORIES,
        _OF_BROKER,
    )


def _of_controllers(settings: Settings) -> Iterator[Rule]:
    quorum = f"isrwatch quorum --cluster {_CLUSTER}"
    for name, what, first, command in (
        ("NoController", f"{_CLUSTER} has no active controller: no leader is elected",
         "start a majority of the voters, and restart no broker", quorum),
        ("QuorumVoterBehind", f"Voter {_BROKER} of the metadata quorum of {_CLUSTER} is behind",
         "start or repair it, and stop no other controller", quorum),
        ("ReassignmentStuck", f"Reassignments of {_CLUSTER} are stuck",
         "start the brokers of the new replicas, raise the throttle, or cancel",
         f"isrwatch reassignments --cluster {_CLUSTER}"),
        ("HangingTransaction",
         f"A transaction hangs in topic {_BROKER} of {_CLUSTER}: read_committed consumers stop there",
         "find and abort it", f"isrwatch transactions --cluster {_CLUSTER}"),
    ):  # fmt: skip
        about = OF_CLUSTER | {"HangingTransaction": _OF_TOPIC, "QuorumVoterBehind": _OF_BROKER}.get(name, {})
        yield _of_conditions(name, f"{what}. First: {first}", settings, command, about)


def _of_conditions(name: str, sentence: str, settings: Settings, command: str, about: dict[str, str]) -> Rule:
    alert = f"Isrwatch{name}"
    return rule(alert, conditions(alert, settings), sentence, settings, command=command, about=about)


# isrwatch itself.


_REMEMBERED: Final = "1d"
_NAME: Final = r"(.*?)( [(][\\w-]{22}[)])?"
"""The name of a cluster without its id behind it, as a regular expression in a string of PromQL."""


def _blind(settings: Settings) -> Rule:
    """Return the rule of blindness: one alert if nothing is fresh, otherwise one for each cluster that is not.

    Nothing is fresh without a job, an exporter or a bus: that is one alert without a cluster. Where an exporter is gone
    and others are there, its clusters are missing. A cluster with another name is the same one; one that was rebuilt
    has the name of the old one, and both have their ids behind it while both are observed.
    """
    name = "IsrwatchBlind"
    info, fresh = (signal.series(scope(settings)) for signal in (clusters.INFO, clusters.PARTITIONS))
    stale = f"max by (cluster) ({conditions(name, settings)})"
    before = f'label_replace(last_over_time({info}[{_REMEMBERED}]), "name", "$1", "cluster", "{_NAME}")'
    every = clusters.INFO.series()  # also what was renamed out of the clusters that have alerts
    now = f'label_replace({every}, "name", "$1", "cluster", "(.*)")'
    missing = f"max by (cluster) ({before} unless on (cluster_id) {every} unless on (name) {now})"
    return rule(
        name,
        f"({stale} or {missing}) and on () group({fresh})\nor absent({fresh})",
        "{{ if $labels.cluster }}{{ $labels.cluster }} is not monitored: there is no fresh data of it"
        "{{ else }}isrwatch is blind: there is no fresh data of any cluster behind one job or exporter{{ end }}. "
        "First: isrwatch health says what is down; start it",
        settings,
        command="isrwatch health",
        about=OF_CLUSTER,
        kept=max(KEPT, waiting(name, settings)),  # a blindness that turns into another one has no gap
    )


_PROGRAMS: Final = 'job=~"isrwatch-(collector|job)"'
_LOGGED: Final = 'primary_source="metadata_log"'
_COUNTED: Final = "1h"
_PARTS: Final = (
    ("source_refused", "the source {{ $labels.source }} is refused or does not answer"),
    ("brokers_unseen", "brokers lack the listener by which they are asked, and their samples are missing"),
    (
        "wrong_node",
        "the address of {{ $labels.role }} {{ $labels.node }} leads to another node, and nothing of it is read",
    ),
    ("query_down", "the query {{ $labels.query }} of the job is down"),
    ("program_down", "Prometheus cannot scrape {{ $labels.instance }} of {{ $labels.job }}"),
    ("records_quarantined", "records cannot be parsed"),
    ("changes_missed", "changes were missed"),
    ("primary_source_lost", "the metadata log cannot be read, polling took over"),
    ("samples_stale", "samples are old"),
    ("table_unreadable", "the exporter cannot read the table {{ $labels.subject }}"),
    ("series_left_out", "series of partitions were left out"),
    ("min_isr_unknown", "min.insync.replicas of partitions is unknown"),
)


def _degraded(settings: Settings) -> Rule:
    """Return the rule of what fails in isrwatch while the rest works: a line for each part."""
    name, own = "IsrwatchDegraded", scope(settings)
    logged = f"max by (cluster) ({clusters.INFO.series(own, _LOGGED)})"
    down = (
        (f"{monitor.COLLECTOR_SOURCE_UP.now(own)} == 0", "source_refused"),
        (f"{monitor.COLLECTOR_UNSEEN_BROKERS.now(own)} > 0", "brokers_unseen"),
        (f"{monitor.LISTENER_WRONG_NODE.now(own)} == 1", "wrong_node"),
        (f"{monitor.JOB_QUERY_UP.now()} == 0", "query_down"),
        (f"{monitor.SCRAPED.now(own, _PROGRAMS)} == 0", "program_down"),
        (f"{monitor.QUARANTINED.increase(_COUNTED, own, by=('cluster',))} > 0", "records_quarantined"),
        (f"({changes.MISSED_CHANGES.increase(_COUNTED, own)} > 0 and on (cluster) {logged})", "changes_missed"),
    )
    every = [conditions(name, settings), *(labelled(what, condition=part) for what, part in down)]
    part = "".join(f'{{{{ if eq $labels.condition "{part}" }}}}{words}{{{{ end }}}}' for part, words in _PARTS)
    return rule(
        name,
        "\nor ".join(every),
        f"Part of isrwatch fails{{{{ with $labels.cluster }}}} for {{{{ . }}}}{{{{ end }}}}: {part}. First: {_DOCTOR}",
        settings,
        command=_DOCTOR,
        about=OF_CLUSTER,
    )


_LAST_DAYS: Final = 3 * 86_400
_SEEN: Final = "1h"


def _certificate_expires(settings: Settings) -> Rule:
    """Return the rule of certificates: a warning, and when only days are left a critical alert next to it."""
    name = "IsrwatchCertificateExpires"
    certificates = (monitor.LISTENER_CERTIFICATE, monitor.CLIENT_CERTIFICATE)
    ends = " or ".join(f"last_over_time({each.series(scope(settings))}[{_SEEN}])" for each in certificates)
    left = f"min by (cluster) ({ends}) - time()"
    change = settings.alerts.rules.get(name, AlertChange())
    gravest = Severity(change.severity) if change.severity else ALERTS[name].severity
    first = threshold(name, settings)
    steps = {first: Severity.INFO if gravest is Severity.INFO else Severity.WARNING, min(_LAST_DAYS, first): gravest}
    return rule(
        name,
        "\nor ".join(
            labelled(f"{left} < {round(seconds)}", severity=shown_severity(settings.alerts, severity))
            for seconds, severity in steps.items()
        ),
        f"A certificate of {_CLUSTER} {{{{ if gt $value 0.0 }}}}expires in {{{{ $value | humanizeDuration }}}}"
        "{{ else }}has expired: restart no broker or controller before it is renewed{{ end }}. First: isrwatch doctor "
        "lists them; renew it",
        settings,
        command=_DOCTOR,
        about=OF_CLUSTER,
    )


def _watchdog(settings: Settings) -> Rule:
    return rule(
        "IsrwatchWatchdog",
        "vector(1)",
        "Alerting works: this alert always fires. If it stays away, Prometheus or Alertmanager has failed",
        settings,
        command="amtool alert query alertname=IsrwatchWatchdog",
        kept=0.0,
    )


PARTS: Final[tuple[Callable[[Settings], Iterator[Rule]], ...]] = (
    _of_partitions,
    _of_brokers,
    _of_disks,
    _of_controllers,
    lambda settings: iter((_certificate_expires(settings), _blind(settings), _degraded(settings), _watchdog(settings))),
)


def pack(settings: Settings) -> Iterator[Rule]:
    """Yield the rules, switched off or not."""
    for part in PARTS:
        yield from part(settings)
