"""Why queries were started again, with starts apart for which a Python worker of Spark came too late.

Each start of a query starts a process that must connect within 10 s, a constant of Spark, and beside busy programs may
take longer. The job starts the query again, as after any failure; no test of something else is about that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

LATE = "Python worker failed to connect back"


class Failures(NamedTuple):
    """What a job reports of the failures of a query: the reasons but one, and how often it was that one."""

    reasons: list[str]
    late_workers: int


def failures_of(query: str, reports: Iterable[str]) -> Failures:
    """Read the reports of a job."""
    found = (re.fullmatch(rf"the query {query} failed: (.*); it starts again in \S+ s", line) for line in reports)
    reasons = [match[1] for match in found if match]
    others = [reason for reason in reasons if reason != LATE]
    return Failures(others, len(reasons) - len(others))
