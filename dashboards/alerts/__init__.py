"""The alerts: a pack that is on as it comes, and opt-in packs; each has its section in the runbook.

What is wrong, since when and how bad is decided by the product, which keeps it through gaps (``streaming.contracts``:
``conditions``, ``alerts``). A rule therefore selects series of conditions, and does little else:

- The labels of a condition are those of its alert: they never change while it fires. The severity is one of them.
- No expression reads ``ALERTS`` or the result of another rule: Mimir does not promise the first, Grafana has neither.
- Two exporters of the same tables, or one that is started on another machine, are one alert (``max by``).
- Prometheus bridges what the product cannot: an exporter that is gone for minutes (``keep_firing_for``).
- What may change is no label. The summary asks for the sentence of the incident.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dashboards.alerts.events import events
from dashboards.alerts.groups import groups
from dashboards.alerts.hygiene import hygiene
from dashboards.alerts.pack import pack
from dashboards.alerts.service import slo, speed
from streaming.alert_settings import is_on
from streaming.contracts.alerts import ALERTS, Pack
from streaming.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dashboards.alerts.rule import Rule


_PACKS: Final[dict[Pack, Callable[[Settings], Iterator[Rule]]]] = {
    Pack.ALERTS: pack,
    Pack.GROUPS: groups,
    Pack.HYGIENE: hygiene,
    Pack.SLO: slo,
    Pack.SPEED: speed,
    Pack.EVENTS: events,
}
_ORDER: Final = {name: place for place, name in enumerate(ALERTS)}
_INTERVALS: Final = {Pack.ALERTS: "15s"}
_SELDOM: Final = "1m"
_PREFIX: Final = "isrwatch-"
_DEFAULTS: Final = Settings()


def rule_file(settings: Settings = _DEFAULTS) -> dict[str, Any]:
    """Return the content of a Prometheus rule file."""
    groups_of_rules = []
    for name, rules in _PACKS.items():
        loaded = sorted(
            (rule for rule in rules(settings) if is_on(settings.alerts, rule["alert"])),
            key=lambda rule: _ORDER[rule["alert"]],
        )
        if loaded:
            groups_of_rules.append(
                {"name": f"{_PREFIX}{name}", "interval": _INTERVALS.get(name, _SELDOM), "rules": loaded}
            )
    return {"groups": groups_of_rules}
