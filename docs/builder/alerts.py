"""The table of all alerts in the runbook, from the rules."""

from __future__ import annotations

import re
from typing import Final

from dashboards.alerts import AlertSettings, rule_file
from dashboards.alerts.rules import ALERTING
from docs.builder.markdown import plain, table

# One cluster that must be there: without any, nothing pages of a cluster that is not monitored.
_SETTINGS: Final = AlertSettings(expected_clusters=("kafka",))
_BEGIN: Final = "<!-- The table of alerts, rendered by `make generated`. -->\n"
_END: Final = "<!-- The end of the table of alerts. -->\n"
_BLOCK: Final = re.compile(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", re.DOTALL)
# What a template says of any alert: each is of one cluster, and another label stands for its value.
_IN_WORDS: Final = (
    (re.compile(r" of \{\{ \$labels\.cluster \}\}"), ""),
    (re.compile(r"^\{\{ \$labels\.cluster \}\}"), "The cluster"),
    (re.compile(r" in \{\{ \$value \| humanizeDuration \}\}"), " soon"),
    (re.compile(r"\{\{ if [^}]*\}\}(.*?)\{\{ else \}\}(.*?)\{\{ end \}\}"), r"\1 or \2"),
)
_LABEL: Final = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def with_table_of_alerts(runbook: str) -> str:
    """Return the runbook with its table as the rules are now.

    Raises:
        ValueError: the two comments between which the table stands are missing.
    """
    if not _BLOCK.search(runbook):
        raise ValueError(f"dashboards/runbook.md lacks {_BEGIN.strip()} or {_END.strip()}")
    lines = "\n".join(_table_of_alerts())
    return _BLOCK.sub(lambda _: f"{_BEGIN}\n{lines}\n\n{_END}", runbook)


def _table_of_alerts() -> list[str]:
    (rules,) = (group["rules"] for group in rule_file(_SETTINGS)["groups"] if group["name"] == ALERTING)
    rows = (
        (
            f"[{rule['alert']}](#{rule['alert'].lower()})",
            rule["labels"]["severity"],
            rule.get("for", "at once"),
            _in_words(rule["annotations"]["summary"]),
        )
        for rule in rules
    )
    return table(("alert", "severity", "after", "what it says"), rows)


def _in_words(summary: str) -> str:
    for template, words in _IN_WORDS:
        summary = template.sub(words, summary)
    return plain(_LABEL.sub(lambda label: label[1].upper(), summary))
