"""The alerts: a pack that is on as it comes, and opt-in packs; each has its section in the runbook.

What is wrong, since when and how bad is decided by the product, which keeps it through gaps (``streaming.contracts``:
``conditions``, ``alerts``). A rule therefore selects series of conditions, and does little else:

- The labels of a condition are those of its alert: they never change while it fires. The severity is one of them.
- No expression reads ``ALERTS`` or the result of another rule: Mimir does not promise the first, Grafana has neither.
- Two exporters of the same tables, or one that is started on another machine, are one alert (``max by``).
- Prometheus bridges what the product cannot: an exporter that is gone for minutes (``keep_firing_for``).
- What may change is no label. The summary asks for the sentence of the incident.
"""

from dashboards.alerts.rules import rule_file

__all__ = ["rule_file"]
