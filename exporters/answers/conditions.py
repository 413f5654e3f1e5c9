"""Conditions that are raised: what is wrong, with what, since when, and which incident explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.answers.answer import Row, Sentence, Tone
from exporters.answers.subject import ClusterSubject, Inquiry, NameFilter
from exporters.read_model.conditions import ALL_RULES, OWN_RULES, ConditionInputs, Raised, raised
from streaming.contracts.tables import CONDITIONS as CONDITIONS_TABLE
from streaming.contracts.tables import SAMPLED_CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_OF_CONDITION: Final = ("condition", "subject", "severity", "incident", "since", "again_since", "ended_at")


def condition_rows(asked: Inquiry) -> Iterator[Row]:
    """Return a row for each; what concerns no single cluster only where every cluster is asked about."""
    ids: dict[str, str | None] = {each.name: each.cluster.cluster_id for each, _ in asked.clusters}
    if not asked.question.clusters:
        ids[""] = None
    for each in _raised(asked):
        if each.cluster in ids:
            row = {**each._asdict(), "condition": each.condition.value, "incident": each.short_id or None}
            yield {
                "cluster_id": ids[each.cluster],
                "cluster": each.cluster,
                **{name: row[name] for name in _OF_CONDITION},
            }


def _raised(asked: Inquiry) -> Iterable[Raised]:
    """Return what is raised; of the past what has a history."""
    tables = asked.tables
    if asked.is_now and tables.snapshot is not None and tables.raised is not None:
        return tables.raised(tables.snapshot, asked.now)
    limits = tables.limits
    inputs = ConditionInputs(
        now=asked.moment, stale_after=limits.stale_after, oldest=limits.oldest_ages, settings=limits.conditions
    )
    every = raised({each.name: each for each, _ in asked.clusters}, inputs)
    return every if asked.is_now else [each for each in every if each.condition not in OWN_RULES]


def said_of_conditions(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say what may be wrong unseen; or that nothing is raised."""
    if not asked.clusters:
        yield Sentence(asked.no_cluster)
        return
    for table in (CONDITIONS_TABLE, SAMPLED_CONDITIONS):
        if table.name in asked.errors:
            asked.unreadable.setdefault(table.name, asked.errors[table.name])
            yield Sentence(f"more may be wrong: {table.name} cannot be read", Tone.WARNING)
    for cluster, freshness in asked.clusters:
        if asked.is_now and freshness["is_stale"]:
            yield Sentence(f"the data of cluster {cluster.name} are old: what is wrong now is unknown", Tone.WARNING)
    if not rows and not asked.unreadable:
        yield Sentence("no condition is raised")


CONDITIONS: Final = ClusterSubject(
    name="conditions",
    help="Show what is wrong, since when, and which incident explains it: what alerts select.",
    filters=(
        NameFilter(
            name="condition",
            help="What is wrong, such as under_min_isr, or 'group_*'.",
            names=lambda row: (row["condition"],),
            every_name=lambda _: (each.value for each in ALL_RULES),
        ),
        NameFilter(
            name="subject",
            help="What it is wrong with: a broker, a topic, a group.",
            names=lambda row: (row["subject"],),
        ),
        NameFilter(name="severity", help="How bad it is, such as critical.", names=lambda row: (row["severity"],)),
    ),
    columns=("cluster_id", "cluster", *_OF_CONDITION),
    rows=condition_rows,
    said=said_of_conditions,
    has_history=True,
)
