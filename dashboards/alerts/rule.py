"""The parts of a rule: its selector of conditions, its labels, its sentence, its links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashboards.alerts import texts
from dashboards.links import page_of_alert
from dashboards.promql import Scope, quoted
from dashboards.signals import clusters
from exporters.web.runbook import runbook_link
from streaming.alert_settings import AlertChange, shown_severity
from streaming.contracts.alerts import ALERTS, PREFIX
from streaming.durations import duration_text
from streaming.name_patterns import patterns_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.alerts import Alert
    from streaming.settings import Settings

Rule = dict[str, Any]

OF_CLUSTER: Final = {"cluster": "cluster"}
OF_BROKER: Final = {"cluster": "cluster", "broker": "broker"}
"""Labels of the links of an alert, and where in its own labels their values are."""
_PAGES: Final = {"QuorumVoterBehind": OF_CLUSTER}
_INCIDENT_OPEN: Final = "IncidentOpen"
KEPT: Final = 300.0
"""Seconds for which an alert fires without its series: an exporter is restarted in less."""
_LONGEST: Final = 200
_OF_INCIDENT: Final = (
    "kafka_replication_incident_info and on (cluster, incident) label_replace("
    'kafka_replication_incident_current_info{cluster=%q, incident=%q}, "incident", "$1", "current", "(.+)")'
)
"""The sentence of the incident that an id stands for, also of one that was merged into another one."""
_SURENESS: Final = (
    '{{ with printf `kafka_replication_cluster_info{cluster=%q, primary_source="poll"}` $labels.cluster | query }}'
    "the brokers are polled: causes are inferred, not proven"
    "{{ else }}isrwatch incidents says of each cause whether it is proven{{ end }}"
)


def conditions(name: str, settings: Settings) -> str:
    """Select the conditions of an alert: one series for each, however many exporters expose it."""
    those = ALERTS[name].conditions
    matcher = f'condition="{those[0]}"' if len(those) == 1 else f'condition=~"{"|".join(those)}"'
    return clusters.CONDITION.now(scope(settings), matcher)


def scope(settings: Settings) -> Scope:
    """Select the clusters, topics and groups that have alerts, and what concerns none of them alone."""
    alerts = settings.alerts
    chosen = {"cluster": alerts.clusters, "topic": alerts.topics, "group": alerts.groups}
    return Scope({label: matchers for label, patterns in chosen.items() if (matchers := _matchers(label, patterns))})


def _matchers(label: str, patterns: tuple[str, ...]) -> str:
    names = patterns_of(*patterns)
    both = (f"{label}=~{quoted(f'|{names.included}')}" if names.included else "",
            f"{label}!~{quoted(names.excluded)}" if names.excluded else "")  # fmt: skip
    return ", ".join(filter(None, both))


def rule(  # noqa: PLR0913 - the parts of a rule
    name: str,
    expression: str,
    sentence: str,
    settings: Settings,
    *,
    command: str,
    about: Mapping[str, str] | None = None,
    kept: float = KEPT,
) -> Rule:
    """Return a rule of the catalogue of alerts: what fires, what is wrong, and with which command to begin.

    The sentence and the command are templates of labels alone; those of the command are quoted, for a name with a
    space. ``about`` is what its section of the runbook is filled in with, and the labels that have it. It fires
    ``kept`` seconds without a series.
    """
    alert, change, waits = ALERTS[name], settings.alerts.rules.get(name, AlertChange()), waiting(name, settings)
    quotes = alert.of_job or name == f"{PREFIX}{_INCIDENT_OPEN}"
    link = runbook_link(settings.export.url, alert.section, about or {})
    page = page_of_alert(settings.export.url, _with_page(name, about or {}))
    return {
        "alert": name,
        "expr": expression,
        **({"for": duration_text(waits)} if waits else {}),
        **({"keep_firing_for": duration_text(kept)} if kept else {}),
        **({} if _severity_of_series(name) else {"labels": {"severity": _severity(alert, change, settings)}}),
        "annotations": {
            "summary": _of_incident(texts.sentence(sentence)) if quotes else texts.sentence(sentence),
            "command": texts.command(command),
            **({"sureness": _SURENESS} if "cluster" in (about or {}) else {}),
            **({"page_url": page} if page else {}),
            **({"runbook_url": link} if link else {}),
        },
    }


def _with_page(name: str, about: Mapping[str, str]) -> Mapping[str, str]:
    """Return what an alert is about and has a page: a controller that is no broker has none."""
    return _PAGES.get(name.removeprefix(PREFIX), about)


def waiting(name: str, settings: Settings) -> float:
    """Return the seconds that a rule waits in Prometheus."""
    alert, change = ALERTS[name], settings.alerts.rules.get(name, AlertChange())
    return (alert.waits if change.lasting is None or alert.of_job else change.lasting) or 0.0


def _severity_of_series(name: str) -> bool:
    """Return whether every series of a rule has its severity itself."""
    return name == f"{PREFIX}CertificateExpires" or bool(
        ALERTS[name].conditions and name not in {f"{PREFIX}Blind", f"{PREFIX}Degraded"}
    )


def _severity(alert: Alert, change: AlertChange, settings: Settings) -> str:
    return shown_severity(settings.alerts, change.severity or alert.severity)


def _of_incident(sentence: str) -> str:
    """Return a template: the sentence of the incident, or without one another."""
    query = f"printf `{_OF_INCIDENT}` $labels.cluster $labels.short_id | query"
    words = f'{{{{ . | first | label "summary" | {texts.PLAIN} | {texts.shortened(_LONGEST)} }}}}'
    return f"{{{{ with {query} }}}}{words}{{{{ else }}}}{sentence}{{{{ end }}}}"


def threshold(name: str, settings: Settings) -> float:
    """Return the threshold of an alert."""
    change = settings.alerts.rules.get(name, AlertChange())
    chosen = ALERTS[name].threshold if change.threshold is None else change.threshold
    if chosen is None:
        raise AssertionError(f"{name} has no threshold")
    return chosen


def labelled(expression: str, **labels: str) -> str:
    """Add labels to the series of an expression."""
    for label, value in labels.items():
        expression = f'label_replace({expression}, "{label}", "{value}", "", "")'
    return expression
