"""The parts of rules: links, numbers and lists in descriptions, and what stays true while data is stale."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dashboards.promql import EVERYWHERE, Scope, Signal
from dashboards.signals import brokers, changes, clusters, monitor
from dashboards.signals.derived import BROKER, CLUSTER
from exporters.web.runbook import runbook_link

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

Rule = dict[str, Any]

_LABEL: Final = re.compile(r"\$labels\.(\w+)")
_OF_ITS_CLUSTER: Final = "?var-cluster={{ $labels.cluster | urlquery }}"

# Template queries run inside printf: %[1]q inserts the alert's cluster, quoted, wherever it occurs.
THIS_CLUSTER: Final = Scope({"cluster": "cluster=%[1]q"})
FRESH: Final = clusters.OFFLINE.now()
"""Present for each cluster whose state is exposed, whatever its value: data is fresh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Continuation of an alert while the data that it reads is withdrawn: blind is never resolved.

    Attributes:
        labels: those of the alert.
        fresh: a gauge that has series for as long as the data is fresh, whatever their value.
        by: its labels that say of whom the data is; each is a label of the alert.
    """

    labels: tuple[str, ...] = CLUSTER
    fresh: Signal = clusters.OFFLINE
    by: tuple[str, ...] = CLUSTER

    def added_to(self, condition: str, alert: str, settings: AlertSettings) -> str:
        """Return the condition, or that the alert fires while nothing is fresh of whom is still remembered."""
        whom = ", ".join(self.by)
        if self.by == CLUSTER:
            remembered = clusters.DATA_AGE.last_known(settings.remembered)
        else:
            remembered = f"max by ({whom}) (last_over_time({self.fresh.series()}[{settings.remembered}]))"
        return "\n".join((
            condition,
            f"or ({firing(alert, self.labels)}",
            f"  unless on ({whom}) max by ({whom}) ({self.fresh.series()}))",
            f"  and on ({whom}) {remembered}",
        ))  # fmt: skip


def firing(alert: str, labels: tuple[str, ...] = CLUSTER) -> str:
    """Return 1 for what an alert fires of."""
    return f'max by ({", ".join(labels)}) (ALERTS{{alertname="{alert}", alertstate="firing"}})'


OF_CLUSTER: Final = Continuation()
OF_BROKER: Final = Continuation(labels=BROKER)


def rule(  # noqa: PLR0913, PLR0917 - the parts of a rule
    alert: str,
    severity: str,
    condition: str,
    summary: str,
    description: str,
    settings: AlertSettings,
    *,
    run: str,
    lasting: str = "",
    keep_firing: str = "",
    goes_on: Continuation | None = None,
) -> Rule:
    """Return a rule with its links.

    Args:
        alert: its name.
        severity: page, ticket or info.
        condition: PromQL under which it is pending.
        summary: one line, a template.
        description: whom it concerns, why, and what follows, a template.
        settings: the links.
        run: the command to begin with.
        lasting: for how long the condition holds before it fires.
        keep_firing: for how long it fires after the condition has ended.
        goes_on: how it continues while data is stale; None ends it.
    """
    return {
        "alert": alert,
        "expr": goes_on.added_to(condition, alert, settings) if goes_on else condition,
        **({"for": lasting} if lasting else {}),
        **({"keep_firing_for": keep_firing} if keep_firing else {}),
        "labels": {"severity": settings.severity_names.get(severity, severity)},
        "annotations": {
            "summary": summary,
            "description": f"{description} Run: {run}",
            **_links(alert, summary, f"{description} {run}", settings),
        },
    }


def _links(alert: str, summary: str, description: str, settings: AlertSettings) -> Rule:
    """Return the links of an alert: those whose address is known."""
    labels = _LABEL.findall(f"{summary} {description}")  # what its texts name is a label of it
    of_its_cluster = _OF_ITS_CLUSTER if "$labels.cluster" in summary else ""
    links = {
        "runbook_url": runbook_link(settings.url, alert, labels),
        "dashboard_url": settings.dashboard_url and settings.dashboard_url + of_its_cluster,
    }
    return {name: link for name, link in links.items() if link}


def value(fresh: Signal = clusters.OFFLINE, text: str = "{{ $value }}") -> str:
    """Return a template for the value of an alert of a cluster, which says so where the alert only continues."""
    present = query(f"max by (cluster) ({fresh.series(THIS_CLUSTER)})")
    return f"{{{{ if {present} }}}}{text}{{{{ else }}}}an unknown number{{{{ end }}}}"


def partitions_in(cluster: Signal, topic: Signal, settings: AlertSettings) -> str:
    """Count the partitions of a cluster in a state, without those of excluded topics."""
    if not settings.excluded_topics:
        return cluster.now()
    return f"({topic.now(EVERYWHERE, *not_excluded(settings), by=CLUSTER)} or 0 * {cluster.now()})"


def not_excluded(settings: AlertSettings) -> tuple[str, ...]:
    """Return the matcher that leaves out excluded topics, if there are any."""
    return (f"topic!~{quoted(settings.excluded_topics)}",) if settings.excluded_topics else ()


def quoted(text: str) -> str:
    """Quote a string of PromQL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def query(expression: str) -> str:
    """Return a template query; %[1]q in the expression is the cluster of the alert."""
    return f"printf `{expression}` $labels.cluster | query"


def number(expression: str) -> str:
    """Return a template for one number of the alert's cluster, or "unknown"."""
    value = '{{ . | first | value | printf "%.0f" }}'
    return f"{{{{ with {query(expression)} }}}}{value}{{{{ else }}}}unknown{{{{ end }}}}"


def top(expression: str, row: str, otherwise: str = "none known") -> str:
    """Return a template for the three largest rows of a query, comma separated."""
    return (
        f"{{{{ range $index, $row := {query(f'sort_desc(topk(3, {expression}))')} }}}}"
        f"{{{{ if $index }}}}, {{{{ end }}}}{row}{{{{ else }}}}{otherwise}{{{{ end }}}}"
    )


def suspects() -> str:
    """List the brokers that explain the current ISR shrinks, by score, and the open incidents by class."""
    return (
        "Suspects now: "
        + top(
            f"{brokers.SUSPECT_SCORE.now(THIS_CLUSTER)} > 0",
            '{{ .Labels.broker }} (score {{ .Value | printf "%.2f" }})',
        )
        + ". Open incidents: "
        + top(f"{changes.OPEN_INCIDENTS.now(THIS_CLUSTER)} > 0", "{{ .Labels.class }} ({{ .Value }})")
        + "."
    )


# Inhibition of a page while a graver one is about the same trouble: a person is awake already.
#
# Alertmanager cannot do it: a page that it inhibits after it was notified sends no "resolved".


OFFLINE: Final = "KafkaOfflinePartitions"
UNDER_MIN_ISR: Final = "KafkaUnderMinIsr"
UNCLEAN_ELECTION: Final = "KafkaUncleanElection"
MORE: Final = "KafkaMorePartitionsUnavailable"
BROKER_LOST: Final = "KafkaBrokerLost"
BURNS_FAST: Final = "KafkaAvailabilityBurnsFast"


def not_beside(condition: str, alert: str, *others: str, seconds: int) -> str:
    """Return the condition where no other alert of the cluster began just now, unless the alert itself fires already.

    Args:
        condition: PromQL with the label cluster.
        alert: whose condition it is.
        others: alerts that have to be evaluated first.
        seconds: alerts that began longer ago do not count: what is added to them is new trouble.
    """
    pattern = "|".join(others)
    fires = f'ALERTS{{alertname=~"{pattern}", alertstate="firing"}}'
    age = "timestamp(ALERTS_FOR_STATE) - ALERTS_FOR_STATE"  # not time(): a back-test has another clock
    return (
        f"({condition})\n"
        f"unless on (cluster) ({fires} and on (cluster, alertname) {age} < {seconds}\n"
        f"  unless on (cluster) {firing(alert)})"
    )


# Planned work, which is no reason for an alert.
#
# That is: causes of ISR removals, brokers that were stopped on purpose, and those for which planned work was announced
# (``isrwatch maintenance``).
#
# Partitions that are offline or under min ISR, lost records and unclean elections are never planned.


# Causes of planned operations. Any other cause raises the alert, also one that a later version introduces.
PLANNED_CAUSES: Final = ("controlled_shutdown", "reassignment", "restart")
UNPLANNED_CAUSES: Final = f'cause!~"{"|".join(PLANNED_CAUSES)}"'

_OF_BROKERS: Final = 'role="broker"'
DOWN: Final = (
    f"({brokers.FENCED.now()} == 1 or ({brokers.REGISTERED.now()} == 0 "
    f"and on (cluster, broker) {brokers.HOSTED.now()} > 0))"
)
"""Brokers that are fenced, or are not registered although replicas are assigned to them, by cluster and broker."""
STOPPED_ON_PURPOSE: Final = f"({brokers.SHUTTING_DOWN.now()} == 1)"
"""Brokers that shut down in a controlled way and have not registered since, by cluster and broker."""

ANSWERING: Final = (
    f"label_replace(max by (cluster, node) ({monitor.LISTENER_UP.series(EVERYWHERE, _OF_BROKERS)}) == 1, "
    '"broker", "$1", "node", "(.+)")'
)
"""Brokers of which a listener answers the collector, by cluster and broker."""


def unannounced(condition: str, within: str = "") -> str:
    """Leave out brokers for which planned work is announced; the condition has the labels cluster and broker.

    A condition that looks back says how far (``within``): what it counts may have happened during work that is over.
    """
    announced = brokers.MAINTENANCE
    past = f"max by (cluster, broker) (max_over_time({announced.series()}[{within}]))"
    return f"{condition}\nunless on (cluster, broker) ({past if within else announced.now()} == 1)"


def unplanned(condition: str) -> str:
    """Leave out brokers that were stopped on purpose, too."""
    return unannounced(f"{condition}\nunless on (cluster, broker) {STOPPED_ON_PURPOSE}")
