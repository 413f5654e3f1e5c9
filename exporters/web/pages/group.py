"""The groups of a cluster, worst first, and the page of one: how far behind it is, what is wrong, where it stands.

Groups are sampled: a sample has its age, and of the past there is none.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from exporters.answers import links
from exporters.answers.groups import trouble_in_words, unread_in_words
from exporters.read_model.conditions import SAMPLES_SILENT_SECONDS
from exporters.read_model.group_sums import GroupTrouble, is_unread, summed, troubles
from exporters.read_model.snapshot import SECOND
from exporters.web.pages.cluster import cluster_named, notice_of_age, trail_of
from exporters.web.pages.page import (
    Inputs,
    Level,
    Notice,
    PageLink,
    PageModel,
    PageRefused,
    frame_of,
    notices_of,
    visible_name,
)
from streaming.contracts.group_readers import is_losing, is_stuck, reader_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from exporters.read_model.cluster_samples import GroupRow
    from exporters.read_model.group_sums import TroubledPartitions
    from exporters.read_model.snapshot import ClusterSnapshot
    from streaming.contracts.group_readers import GroupOffsetsRow

GROUPS_SHOWN: Final = 500
PARTITIONS_SHOWN: Final = 500
_EMPTY: Final = "It has committed nothing, and owns no partition, of any topic that can be seen."
NOT_KEPT: Final = "Groups are sampled, and samples are not kept: nothing is known of them at this moment."
_LEVELS: Final = {GroupTrouble.BEYOND: Level.CRITICAL, GroupTrouble.LOSING: Level.CRITICAL}
_IN_TROUBLE: Final = frozenset({Level.CRITICAL, Level.WARNING})
_QUIET: Final = frozenset({GroupTrouble.UNCOMMITTED, GroupTrouble.HELD, GroupTrouble.UNREAD})


class GroupSummary(NamedTuple):
    """One group; None is unknown."""

    name: str
    path: str
    level: Level
    protocol: str | None
    state: str | None
    members: int | None
    lag: int | None
    lag_seconds: float | None
    trouble: str
    sampled_at: int


class PositionRow(NamedTuple):
    """Position of a group in one partition."""

    partition: str
    topic_path: str
    reader: str
    owner: str | None
    committed_offset: int | None
    lag: int | None
    lag_seconds: float | None
    is_wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPage(PageModel):
    """The groups of a cluster."""

    template: ClassVar[str] = "groups.html"
    rows: tuple[GroupSummary, ...]
    left_out: int
    empty: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage(PageModel):
    """One group."""

    template: ClassVar[str] = "group.html"
    group: GroupSummary
    troubles: tuple[tuple[Level, str], ...]
    positions: tuple[PositionRow, ...]
    left_out: int
    empty: str


def groups_page(inputs: Inputs, cluster_name: str) -> PageModel:
    """Return the page of the group that a parameter names, or of all groups."""
    chosen = inputs.query.get("name", ())
    if len(chosen) > 1:
        raise PageRefused(400, f"name is given {len(chosen)} times; give it once")
    cluster = cluster_named(inputs, cluster_name, links.group if chosen else links.groups, *chosen)
    trail = trail_of(inputs, cluster_name)
    notices = (*notices_of(inputs), *notice_of_age(inputs, cluster), *_unknown(inputs, cluster))
    if chosen:
        return _one(
            inputs, cluster, chosen[0], (*trail, PageLink("Groups", links.groups(cluster_name, inputs.at))), notices
        )
    samples = _samples(inputs, cluster)
    rows = sorted((_summary(inputs, cluster, group, each) for group, each in samples.items()), key=_worst_first)
    worst = rows[0].level if rows else Level.UNKNOWN
    in_trouble = sum(row.level in _IN_TROUBLE for row in rows)
    unknown = sum(row.level is Level.UNKNOWN for row in rows)
    blind = f", {unknown:,} unknown" if unknown else ""
    return GroupsPage(
        **frame_of(inputs),
        title=f"{worst.sign} {in_trouble:,} of {len(rows):,} groups in trouble{blind}, {cluster_name} - isrwatch",
        heading=f"Groups of {cluster_name}",
        trail=trail,
        notices=notices,
        rows=tuple(rows[:GROUPS_SHOWN]),
        left_out=max(0, len(rows) - GROUPS_SHOWN),
        empty=NOT_KEPT if inputs.past else "No group has been sampled.",
    )


def _one(
    inputs: Inputs, cluster: ClusterSnapshot, group: str, trail: tuple[PageLink, ...], notices: tuple[Notice, ...]
) -> GroupPage:
    if inputs.past is not None:
        raise PageRefused(404, NOT_KEPT, [PageLink("now", links.group(cluster.name, group))])
    samples = _samples(inputs, cluster).get(group)
    if samples is None:
        sentence = f"cluster {cluster.name} has no group {group!r}, as far as is known"
        raise PageRefused(404, sentence, [PageLink("all groups", links.groups(cluster.name))])
    summary = _summary(inputs, cluster, group, samples)
    rows = sorted(
        samples.offsets.values(), key=lambda row: (not _is_wrong(row), -(row.lag or 0), row.topic, row.partition)
    )
    wrong = [(_LEVELS.get(each.trouble, _level(each)), trouble_in_words(each, inputs.now)) for each in troubles(rows)]
    unread = _unread_in_words(samples.described)
    return GroupPage(
        **frame_of(inputs),
        title=f"{summary.level.sign} group {group} of {cluster.name}: {summary.trouble} - isrwatch",
        heading=f"Group {visible_name(group)}",
        trail=trail,
        notices=notices,
        group=summary,
        troubles=(*wrong, *((Level.UNKNOWN, each) for each in unread)),
        positions=tuple(_position(cluster, row) for row in rows[:PARTITIONS_SHOWN]),
        left_out=max(0, len(rows) - PARTITIONS_SHOWN),
        empty="No position of it is known." if unread else _EMPTY,
    )


@dataclass(slots=True)
class _SampledGroup:
    """Newest samples of a group: as its coordinator describes it, and its position in each partition."""

    described: GroupRow | None = None
    offsets: dict[tuple[str, int], GroupOffsetsRow] = field(default_factory=dict)


def _samples(inputs: Inputs, cluster: ClusterSnapshot) -> dict[str, _SampledGroup]:
    """Return the samples of each group; none of the past."""
    samples: defaultdict[str, _SampledGroup] = defaultdict(_SampledGroup)
    if inputs.past is not None:
        return samples
    for described in sorted(cluster.samples.groups or (), key=attrgetter("collected_at")):
        samples[described.group].described = described
    for row in sorted(cluster.samples.group_offsets or (), key=attrgetter("collected_at")):
        samples[row.group].offsets[row.topic, row.partition] = row
    return samples


def _summary(inputs: Inputs, cluster: ClusterSnapshot, group: str, samples: _SampledGroup) -> GroupSummary:
    described, rows = samples.described, [*samples.offsets.values()]
    sums, wrong = summed(rows), [*troubles(rows)]
    levels = [_LEVELS.get(each.trouble, _level(each)) for each in wrong]
    sampled_at = min(_sampled_at(described, rows))
    words = [*(trouble_in_words(each, inputs.now) for each in wrong), *_unread_in_words(described)]
    is_old = inputs.is_stale(cluster) or (inputs.now - sampled_at) / SECOND > SAMPLES_SILENT_SECONDS
    without = Level.UNKNOWN if is_old else _untroubled(described, sums)
    return GroupSummary(
        name=group,
        path=links.group(cluster.name, group),
        level=min(levels, key=lambda level: level.rank, default=without),
        protocol=None if described is None else described.group_protocol,
        state=None if described is None else described.group_state,
        members=None if described is None else described.members,
        lag=sums["lag"],
        lag_seconds=sums["lag_seconds"],
        trouble="; ".join(words) or "nothing wrong is known",
        sampled_at=sampled_at,
    )


def _sampled_at(described: GroupRow | None, rows: Sequence[GroupOffsetsRow]) -> list[int]:
    return [*(row.collected_at for row in rows), *([] if described is None else [described.collected_at])]


def _untroubled(described: GroupRow | None, sums: Mapping[str, Any]) -> Level:
    """Return how a group is of which no trouble is known: well only if it is described, and what it has committed."""
    if described is None or _unread_in_words(described):
        return Level.UNKNOWN
    return Level.HEALTHY if sums["lag"] is not None or not sums["partitions"] else Level.UNKNOWN


def _unread_in_words(described: GroupRow | None) -> list[str]:
    """Return one sentence if nothing new is known of what the group has committed."""
    if described is None or not is_unread(described.is_unread, described.kept_at):
        return []
    return [unread_in_words(described.coordinator)]


def _level(troubled: TroubledPartitions) -> Level:
    return Level.INFO if troubled.trouble in _QUIET else Level.WARNING


def _worst_first(row: GroupSummary) -> tuple[object, ...]:
    return row.level.rank, -(row.lag or 0), row.name


def _position(cluster: ClusterSnapshot, row: GroupOffsetsRow) -> PositionRow:
    return PositionRow(
        partition=f"{row.topic}-{row.partition}",
        topic_path=links.topic(cluster.name, row.topic),
        reader=reader_of(row).value,
        owner=row.member,
        committed_offset=row.committed_offset,
        lag=row.lag,
        lag_seconds=row.lag_seconds,
        is_wrong=_is_wrong(row),
    )


def _is_wrong(row: GroupOffsetsRow) -> bool:
    return bool(is_stuck(row) or is_losing(row) or row.beyond)


def _unknown(inputs: Inputs, cluster: ClusterSnapshot) -> Sequence[Notice]:
    if inputs.past is None and (cluster.samples.groups is None or cluster.samples.group_offsets is None):
        return [Notice(Level.UNKNOWN, "The samples of groups cannot be read.")]
    return []
