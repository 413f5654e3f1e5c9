"""The parts of rules: links, numbers and lists in descriptions, and what stays true while data is stale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashboards.promql import EVERYWHERE, Scope, Signal
from dashboards.signals import brokers, clusters, incidents, labels

if TYPE_CHECKING:
    from dashboards.alerts.settings import AlertSettings

Rule = dict[str, Any]

# Template queries run inside printf: %[1]q inserts the alert's cluster, quoted, wherever it occurs.
THIS_CLUSTER: Final = Scope({"cluster": "cluster=%[1]q"})
FRESH: Final = clusters.OFFLINE.now()
"""Present for each cluster whose state is exposed, whatever its value: data is fresh."""


def rule(  # noqa: PLR0913, PLR0917 - the parts of a rule
    alert: str,
    severity: str,
    expression: str,
    summary: str,
    description: str,
    settings: AlertSettings,
    *,
    lasting: str = "",
    keep_firing: str = "",
) -> Rule:
    """Return a rule with its links; ``lasting`` is its ``for``."""
    return {
        "alert": alert,
        "expr": expression,
        **({"for": lasting} if lasting else {}),
        **({"keep_firing_for": keep_firing} if keep_firing else {}),
        "labels": {"severity": severity},
        "annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"{settings.runbook_url}#{alert.lower()}",
            "dashboard_url": f"{settings.dashboard_url}?var-cluster={{{{ $labels.cluster | urlquery }}}}",
        },
    }


def or_as_before(alert: str, condition: str, settings: AlertSettings, labels: str = "cluster") -> str:
    """Continue an alert that fires while the data of its cluster is stale; for a cluster that is still remembered."""
    firing = f'max by ({labels}) (ALERTS{{alertname="{alert}", alertstate="firing"}})'
    return "\n".join((
        condition,
        f"or ({firing}",
        f"  unless on (cluster) {FRESH})",
        f"  and on (cluster) {clusters.DATA_AGE.last_known(settings.remembered)}",
    ))  # fmt: skip


def partitions_in(cluster: Signal, topic: Signal, settings: AlertSettings, scope: Scope = EVERYWHERE) -> str:
    """Count the partitions of a cluster in a state, without those of excluded topics."""
    if not settings.excluded_topics:
        return cluster.now(scope)
    return f"({topic.now(scope, _counted(settings), by=labels.CLUSTER)} or 0 * {cluster.now(scope)})"


def _counted(settings: AlertSettings) -> str:
    return f"topic!~{quoted(settings.excluded_topics)}"


def least_partitions_in(cluster: Signal, topic: Signal, settings: AlertSettings, window: str) -> str:
    """Return the smallest such count within a window."""
    if not settings.excluded_topics:
        return f"max by (cluster) (min_over_time({cluster.series()}[{window}]))"
    return f"min_over_time({partitions_in(cluster, topic, settings)}[{window}:1m])"


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
        + top(f"{incidents.OPEN.now(THIS_CLUSTER)} > 0", "{{ .Labels.class }} ({{ .Value }})")
        + "."
    )
