"""The summary of an incident, in its parts: what happened, in which numbers, and what follows from that. Pure.

The job writes one sentence (``streaming.changes.incidents.words``): who reads the sentence alone needs all of it. A
page, a list or a notification says parts of it elsewhere, or leaves them out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.harm import fewer_brokers

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNTS: Final = re.compile(r": (?=(?:up to )?\d+ partition)")
_RECOVERED: Final = "recovered"
_LONGEST_HEADLINE: Final = 100


class IncidentSentence(NamedTuple):
    """Parts of the summary of an incident.

    Attributes:
        what: what happened, and to whom.
        numbers: of partitions, at most and for how long, and how sure this is; empty for none.
        consequence: what it means for clients, if the summary says it; empty if not.
        more: what else is said, other than what to do next and that it has recovered; empty for nothing.
    """

    what: str
    numbers: str = ""
    consequence: str = ""
    more: str = ""

    @property
    def headline(self) -> str:
        """The first part; of very many brokers it names the first, and how many they are."""
        return self.what if len(self.what) <= _LONGEST_HEADLINE else fewer_brokers(self.what)

    @property
    def brief(self) -> str:
        """The sentence without its numbers: what happened, and what it means."""
        return "; ".join(filter(None, (self.headline, self.consequence, self.more)))


def sentence_of(row: Mapping[str, Any]) -> IncidentSentence:
    """Return the parts of the summary of an incident."""
    summary, consequence = row["summary"] or "", row["consequence"] or ""
    facts, is_there, rest = summary.partition(f"; {consequence}") if consequence else (summary, "", "")
    more = rest.removeprefix("; ")
    for said in (row["next_step"], _RECOVERED):
        more = more.removeprefix(said or "").removeprefix("; ")
    counts = _COUNTS.search(facts)
    what, numbers = (facts, "") if counts is None else (facts[: counts.start()], facts[counts.end() :])
    return IncidentSentence(what, numbers, consequence if is_there else "", more)
