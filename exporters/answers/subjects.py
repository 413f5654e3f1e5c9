"""Every subject that can be asked about, by name."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from exporters.answers import events, incidents
from exporters.answers.brokers import BROKERS
from exporters.answers.conditions import CONDITIONS
from exporters.answers.groups import GROUP_SUBJECT
from exporters.answers.partitions import CLUSTERS, PARTITION, TOPICS
from exporters.answers.replicas import DIRECTORIES, REASSIGNMENTS, REPLICAS
from exporters.answers.samples import METRICS, QUORUM, TRANSACTION_SUBJECT
from exporters.answers.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from exporters.answers.answer import Answer, Question
    from exporters.answers.subject import ClusterSubject, Tables

SUBJECTS: Final[Mapping[str, ClusterSubject]] = {
    each.name: each
    for each in (
        *(CLUSTERS, CONDITIONS, BROKERS, TOPICS, PARTITION, REPLICAS, REASSIGNMENTS, DIRECTORIES),
        *(GROUP_SUBJECT, TRANSACTION_SUBJECT, QUORUM, SETTINGS, METRICS),
    )
}


class Answering(NamedTuple):
    """Source of answers under a name.

    Attributes:
        help: one sentence.
        filters: the help of each filter, by its name.
        answer: answers from tables.
        has_history: whether it can be asked about the past.
        has_healthy: whether it leaves out what is well, or over, unless everything is asked for.
        values: every value that a filter can have, where these are few.
        numbers: filters whose values are whole numbers.
    """

    help: str
    filters: Mapping[str, str]
    answer: Callable[[Tables, Question], Answer]
    has_history: bool = True
    has_healthy: bool = True
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    numbers: frozenset[str] = frozenset()


def _of_subject(subject: ClusterSubject) -> Answering:
    filters = {each.name: each.help for each in subject.filters}
    return Answering(subject.help, filters, subject.answer, has_history=subject.has_history)


ANSWERS: Final[Mapping[str, Answering]] = {
    **{name: _of_subject(subject) for name, subject in SUBJECTS.items()},
    events.NAME: Answering(
        events.HELP, events.FILTERS, events.answer, has_healthy=False, values=events.VALUES, numbers=events.NUMBERS
    ),
    incidents.NAME: Answering(incidents.HELP, incidents.FILTERS, incidents.answer, values=incidents.VALUES),
}
"""Everything that can be asked, by name."""
