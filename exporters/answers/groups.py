"""Groups from the newest samples: state, members, total lag, and a sentence: what is wrong, since when and where.

What is unknown stays unknown: a group without offsets has no lag, and one that is not described no members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.answers.answer import Row, Sentence, Tone
from exporters.answers.partitions import TOPIC_HELP
from exporters.answers.subject import OF_SAMPLES, ClusterSubject, Inquiry, NameFilter
from exporters.read_model.event_filter import matches_topic
from exporters.read_model.group_sums import GroupTrouble, is_unread, summed, troubles
from exporters.read_model.times import SECOND, Clock
from streaming.contracts.group_readers import GroupOffsetsRow
from streaming.contracts.sample_tables import GROUP_OFFSETS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.group_sums import TroubledPartitions

_MINUTES: Final = -len(":00.000")
_OWNERS: Final = 3
"""So many owners are named."""
_OF_GROUP: Final = (
    "cluster_id", "cluster", "group", "group_protocol", "group_state", "members", "assignor", "coordinator",
    "last_progress_at",
)  # fmt: skip
NAMELESS: Final = '""'
"""The group of those that commit without a name."""


def group_rows(asked: Inquiry) -> Iterator[Row]:
    """Return every group, with the sums of its partitions: of the chosen topics, if any are chosen."""
    topics = asked.patterns("topic")
    described = {_key(row): row for row in asked.samples(GROUPS)}
    groups: dict[tuple[str, str, str], list[Row]] = {} if topics else {key: [] for key in described}
    for row in asked.samples(GROUP_OFFSETS):
        if matches_topic(row["topic"], topics):
            groups.setdefault(_key(row), []).append(row)
    for key, rows in sorted(groups.items()):
        offsets = [*map(GroupOffsetsRow.of, rows)]
        by_coordinator = described.get(key)
        newest = _newest([*filter(None, [by_coordinator]), *rows], asked.now)
        reasons = [trouble_in_words(each, asked.now) for each in troubles(offsets)]
        if by_coordinator is not None and is_unread(by_coordinator["is_unread"], by_coordinator["kept_at"]):
            reasons.append(unread_in_words(by_coordinator["coordinator"]))
        read = sorted({row["topic"] for row in rows})
        yield {**newest, **summed(offsets), "reason": "; ".join(reasons), "topics": read}


def unread_in_words(coordinator: int) -> str:
    """Return why nothing new is known of the commits of a group."""
    return f"broker {coordinator} did not say what it has committed"


def trouble_in_words(troubled: TroubledPartitions, now: int) -> str:
    """Return one trouble of a group in words, such as "stuck since 02:10 UTC on orders-3, owner app-7"."""
    first, *others = troubled.partitions
    where = f"{first} and {len(others):,} more" if others else first
    number, owners = f"{troubled.offsets:,}", [each or NAMELESS for each in troubled.owners]
    owner = f", owner {', '.join(owners[:_OWNERS])}{' and others' if owners[_OWNERS:] else ''}" if owners else ""
    moment = "" if troubled.at is None else f"{Clock(now).short(troubled.at)[:_MINUTES]} UTC"
    match troubled.trouble:
        case GroupTrouble.BEYOND:
            return f"{number} beyond the end of {where}{owner}"
        case GroupTrouble.LOSING:
            return f"has lost {number}, the last at {moment}, on {where}{owner}"
        case GroupTrouble.STUCK:
            return f"stuck{moment and f' since {moment}'} on {where}{owner}"
        case GroupTrouble.UNCOMMITTED:
            return f"has never committed on {where}{owner}"
        case GroupTrouble.HELD:
            return f"waits for an open transaction on {where}{owner}"
        case _:
            return f"{where} not read any more{moment and f' after {moment}'}, {number} behind"


def _key(row: Row) -> tuple[str, str, str]:
    return row["cluster"], row["group"], row["cluster_id"]


def _newest(rows: list[Row], now: int) -> Row:
    """Return what the newest sample says of the group; of equally old ones the first. Its age is that of the oldest."""
    newest = max(rows, key=lambda row: row["collected_at"])
    progress_at = newest.get("last_progress_at")
    return {
        **{name: newest.get(name) for name in _OF_GROUP},
        "idle_seconds": None if progress_at is None else max(0, now - progress_at) / SECOND,
        OF_SAMPLES: max(row[OF_SAMPLES] for row in rows),
    }


def said_of_groups(asked: Inquiry, rows: list[Row]) -> Iterator[Sentence]:
    """Say what is wrong with each group; or why there is none."""
    if not rows and asked.patterns("topic"):
        yield Sentence("no group has offsets of these topics")
    elif not rows:
        needs = "there are none, or the collector may not list them: it needs the permission to describe groups"
        yield asked.without_samples(GROUPS, "groups", needs)
    yield from asked.said_of_age(GROUPS, "groups", rows)
    for row in rows:
        if row["reason"]:
            who = f"group {row['group'] or NAMELESS}{asked.of_cluster(row['cluster'])}"
            yield Sentence(f"{who}: {row['reason']}", Tone.WARNING if is_in_trouble(row) else Tone.PLAIN)


def is_in_trouble(row: Row) -> bool:
    """Return whether a group loses records, or stands still."""
    return bool(row["losing_partitions"] or row["stuck_partitions"] or row["beyond"])


def _topics(asked: Inquiry) -> set[str]:
    read = {row["topic"] for row in asked.samples(GROUP_OFFSETS)}
    return read | {topic.topic for each, _ in asked.clusters for topic in each.topics.values()}


GROUP_SUBJECT: Final = ClusterSubject(
    name="groups",
    help="Show consumer groups: state, lag, and what is wrong.",
    filters=(
        NameFilter(
            name="group", help="Group, 'payments-*', or '!tmp-*' for all others.", names=lambda row: (row["group"],)
        ),
        NameFilter(name="topic", help=TOPIC_HELP, names=lambda row: row["topics"], every_name=_topics),
    ),
    columns=tuple(dict.fromkeys((*_OF_GROUP, "idle_seconds", OF_SAMPLES, *summed(()), "reason", "topics"))),
    rows=group_rows,
    said=said_of_groups,
)
