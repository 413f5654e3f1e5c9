"""Checks of ``isrwatch doctor --prometheus``: our alerting rules are loaded and evaluated, our programs scraped.

Asks Prometheus' HTTP API, which Thanos, Mimir and VictoriaMetrics answer as well, but for the list of Alertmanagers.
The rules that ought to be there are those of the configuration, compared by name: their expressions depend on the
version and the configuration with which they were rendered.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final

from streaming.alert_settings import is_on
from streaming.commands.alerts import address_and_login, why_silent
from streaming.commands.doctor_machine import SECONDS, Status, numbered
from streaming.contracts.alerts import ALERTS
from streaming.errors import ConfigurationError, ConnectionRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streaming.alert_settings import AlertsSettings

Said = tuple[Status, str]
_AGAIN: Final = "render the rules of this configuration (isrwatch dashboards render), and load them"
_LATE_EVALUATIONS: Final = 5
_MOST_NAMES: Final = 5
_MOST_BYTES: Final = 64 << 20
_EXPORTER: Final = "kafka_replication_build_info"
_UP: Final = f'up and on (job, instance) last_over_time({_EXPORTER}[1h]) or up{{job=~"isrwatch-.*"}}'
# With less than four samples in five minutes a rate over them may see no change.
_SELDOM: Final = f"count_over_time({_EXPORTER}[5m]) < 4 and on (job, instance) {_EXPORTER} offset 5m"
_HIDDEN: Final = 'count by (job, instance) (kafka_replication_cluster_info{exported_cluster!=""})'
"""Prometheus calls a label so whose name the target has, too."""


@dataclass(frozen=True, slots=True)
class Api:
    """The HTTP API of Prometheus at a URL, which may hold a login."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:  # noqa: ANN401 - JSON of another program
        """Return the data of an answer; None where the server has no such path.

        Raises:
            ConnectionRefused: nothing answers.
            ConfigurationError: what answers is no Prometheus, or refuses.
        """
        address, headers = address_and_login(self.url, "--prometheus", "http://prometheus:9090")
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        request = urllib.request.Request(f"{address}/api/v1/{path}{query}", headers=headers)  # noqa: S310 - checked by the caller
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:  # noqa: S310 - checked by the caller
                answer = json.loads(response.read(_MOST_BYTES))
        except urllib.error.HTTPError as refusal:
            if refusal.code == 404:  # noqa: PLR2004 - HTTP's "not found"
                return None
            why = (
                "name a login in it, as in http://user:password@host:9090"
                if refusal.code in {401, 403}
                else "see its log"
            )
            raise ConfigurationError(f"--prometheus {address} answers {refusal.code} {refusal.reason}: {why}") from None
        except (OSError, ValueError, HTTPException) as error:
            raise ConnectionRefused(
                f"--prometheus {address} gives no answer of Prometheus: {why_silent(error)}"
            ) from None
        if not isinstance(answer, dict) or answer.get("status") != "success":
            raise ConfigurationError(f"--prometheus {address} answers, but is no Prometheus: give its URL")
        return answer["data"]


def expected_rules(alerts: AlertsSettings) -> tuple[str, ...]:
    """Name the alerting rules of this version that a configuration asks for, in their order."""
    return tuple(name for name in ALERTS if is_on(alerts, name))


def checks_of(url: str, alerts: AlertsSettings) -> Iterator[Said]:
    """Check the rules, the scraping and the Alertmanager of a Prometheus.

    Raises:
        ConnectionRefused: nothing answers.
        ConfigurationError: what answers is no Prometheus, or refuses.
    """
    api = Api(url)
    yield from _rules(api.get("rules", type="alert"), expected_rules(alerts), time.time())
    yield from _scraping(api)
    yield from _alertmanagers(api.get("alertmanagers"))


def _rules(answer: Any, expected: tuple[str, ...], now: float) -> Iterator[Said]:  # noqa: ANN401 - JSON of another program
    """Compare the rules that are loaded with those of this version."""
    groups = [] if answer is None else answer["groups"]
    loaded = [(group, rule) for group in groups for rule in group["rules"]]
    ours = [(group, rule) for group, rule in loaded if rule["name"] in set(expected)]
    missing = [name for name in expected if name not in {rule["name"] for _, rule in ours}]
    if not ours:
        how = "render them (isrwatch dashboards render --output DIR), add alerts.yml to rule_files, and reload"
        yield Status.PROBLEM, f"none of the {len(expected)} alerting rules of isrwatch is loaded: {how}"
        return
    if missing:
        lacking = f"{len(missing)} of the {len(expected)} alerting rules of isrwatch are not loaded: {_names(missing)}"
        yield Status.WARNING, f"{lacking}; {_AGAIN}"
    left_out = dict.fromkeys(rule["name"] for _, rule in loaded if rule["name"] in ALERTS.keys() - {*expected})
    if left_out:
        yield Status.WARNING, f"{_names(left_out)} are loaded, and the configuration leaves them out; {_AGAIN}"
    yield from _twice(ours)
    yield from _failing(ours, now)
    failing = {rule["name"] for _, rule in ours if rule.get("health") != "ok"}
    if healthy := len({rule["name"] for _, rule in ours} - failing):
        yield (
            Status.OK,
            f"{healthy} of {len(expected)} alerting rules of isrwatch are loaded, and evaluated without error",
        )


def _twice(ours: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[Said]:
    """Name rules of which several groups have one: each trouble is notified twice."""
    groups: dict[str, set[str]] = {}
    for group, rule in ours:
        groups.setdefault(rule["name"], set()).add(f"{group.get('file', '')} {group['name']}".strip())
    if several := [name for name, where in groups.items() if len(where) > 1]:
        where = ", ".join(sorted(set().union(*(groups[name] for name in several))))
        yield Status.WARNING, f"{_names(several)} are loaded more than once ({where}): remove one of the files"


def _failing(ours: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], now: float) -> Iterator[Said]:
    """Name rules that fail, or are not evaluated any more."""
    errors = Counter[str]()
    late = []
    for group, rule in ours:
        if rule.get("health") == "err":
            errors[rule.get("lastError", "no reason given")] += 1
        at = _seconds(rule.get("lastEvaluation", ""))
        if at is not None and now - at > _LATE_EVALUATIONS * max(float(group.get("interval", 0)), 15.0):
            late.append(rule["name"])
    for error, count in errors.most_common(_MOST_NAMES):
        yield Status.PROBLEM, f"{numbered(count, 'alerting rule')} of isrwatch cannot be evaluated: {error}"
    if late:
        yield Status.PROBLEM, f"{_names(late)} have not been evaluated for long: see the log of Prometheus"


def _seconds(moment: str) -> float | None:
    """Read a time of Prometheus; None for the one of a rule that was never evaluated.

    >>> _seconds("2026-11-29T03:00:00.123456789Z"), _seconds("0001-01-01T00:00:00Z")
    (1795921200.123456, None)
    """
    whole, _, fraction = moment.removesuffix("Z").partition(".")
    try:
        at = datetime.fromisoformat(f"{whole}.{fraction[:6] or '0'}+00:00".replace("+00:00+00:00", "+00:00"))
    except ValueError:
        return None
    return at.timestamp() if at.year > 1 else None


def _scraping(api: Api) -> Iterator[Said]:
    """Check that the exporter is scraped, often enough, and that nothing of ours is down."""
    exporters = _series(api, f"count by (job, instance) ({_EXPORTER})")
    if not exporters:
        how = "add its address to scrape_configs (deploy/prometheus/prometheus.yml is an example), and reload"
        yield Status.PROBLEM, f"no exporter of isrwatch is scraped, so no alert can fire: {how}"
    for down in _series(api, f"({_UP}) == 0"):
        yield (
            Status.PROBLEM,
            f"{down['instance']} of the job {down['job']} cannot be scraped: start it, or open the port",
        )
    for hidden in _series(api, _HIDDEN):
        what = f"{hidden['instance']} of the job {hidden['job']} has a label cluster that hides the Kafka clusters"
        yield Status.PROBLEM, f"{what} from rules and boards: set honor_labels: true (honorLabels) for it"
    seldom = _series(api, _SELDOM)
    for each in seldom:
        slow = f"the exporter {each['instance']} is scraped less than once a minute, so rules that count miss changes"
        yield Status.WARNING, f"{slow}: set scrape_interval of the job {each['job']} to 15s"
    if often := [each["instance"] for each in exporters if each not in seldom]:
        yield Status.OK, f"the exporter is scraped: {_names(often)}"


def _series(api: Api, expression: str) -> list[dict[str, str]]:
    """Evaluate an expression; return the instances and jobs that it gives."""
    answer = api.get("query", query=expression)
    rows = [] if answer is None else answer["result"]
    return [{name: row["metric"].get(name, "?") for name in ("job", "instance")} for row in rows]


def _alertmanagers(answer: Any) -> Iterator[Said]:  # noqa: ANN401 - JSON of another program
    if answer is None:
        yield (
            Status.SKIPPED,
            "it does not say which Alertmanager it notifies: isrwatch alerts test sends one notification",
        )
    elif active := [each["url"] for each in answer["activeAlertmanagers"]]:
        yield Status.OK, f"alerts are sent to {_names(active)}"
    else:
        yield Status.PROBLEM, "no Alertmanager is connected, so that nobody is notified: set alerting.alertmanagers"


def _names(names: Iterable[str]) -> str:
    """List a few names.

    >>> _names("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    every = list(names)
    more = f" and {len(every) - _MOST_NAMES} more" if len(every) > _MOST_NAMES else ""
    return ", ".join(every[:_MOST_NAMES]) + more
