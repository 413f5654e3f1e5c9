"""The names that severities have, in one place: rules, routes and receivers may call them either way."""

from __future__ import annotations

from typing import Final

CRITICAL, WARNING, INFO = "critical", "warning", "info"
SEVERITIES: Final = (CRITICAL, WARNING, INFO)
_SAME: Final = {"page": CRITICAL, "ticket": WARNING}


def severity(name: str) -> str:
    """Give the one name of a severity: of a label of an alert, or of the receiver that it is routed to.

    >>> severity("page"), severity("warning"), severity("heartbeat")
    ('critical', 'warning', 'heartbeat')
    """
    return _SAME.get(name, name)
