"""Groups: every broker is asked for those that it coordinates, what each has committed, and who may read what.

At most eight requests per broker and piece of a round (:mod:`rounds`), and before the first piece one that lists all
groups, and one for those that it lists no more: these are soon answered, however many there are. The positions next to
a committed offset are those that :class:`offsets.OffsetsKind` has read before the coordinator is asked, as a rule a
moment before. So lag is never too large: it is what the group had not read of that which was there then. It is too
small by what was written between the two readings, of a leader that does not answer by what was written within one
interval of offsets and the timeout of a request; after that its positions, and with them lag, are unknown. What a
coordinator does not list or say (:mod:`listed`, :mod:`rounds`) stays as it was, and grows old.

Lag in seconds is for how long the first offset that the group has not passed could have been read. It follows from when
the high watermark passed it, and is as wrong as that: see :mod:`streaming.sources.samples.high_watermarks`; and by the
time that the two requests take, too small. What follows from all this: :mod:`streaming.contracts.group_positions`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.identifiers import Micros
from streaming.errors import ConnectionRefused
from streaming.sources.permissions import DESCRIBE_GROUPS, PermissionDenied, Probe
from streaming.sources.protocol.connection import NodeTooOld, ServiceRefused
from streaming.sources.samples.groups.blocks import (
    NEWEST,
    OFFSET_FETCH,
    OLDEST,
    CoordinatorAnswer,
    committed_offsets,
    group_blocks,
    group_offset_blocks,
    share_offsets,
    timed,
)
from streaming.sources.samples.groups.described import (
    GROUP_AUTHORIZATION_FAILED,
    NO_GROUP,
    SHARE,
    STREAMS,
    DescribedGroup,
    describe_groups,
    list_groups,
)
from streaming.sources.samples.groups.listed import ListedGroups, OffsetCounts, ShareStarts, gone_groups
from streaming.sources.samples.groups.readable import StandingGroups
from streaming.sources.samples.groups.rounds import Coordinator, GroupsPiece, Round, about
from streaming.sources.samples.kind import AnswerContent
from streaming.sources.source import AT_ONCE, Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId, TopicId
    from streaming.contracts.sample_blocks import BrokerGroupOffsetsObserved, BrokerGroupsObserved
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.groups.blocks import ByTopic, GroupValues, ShareValues
    from streaming.sources.samples.kind import Ask, BrokerAnswer
    from streaming.sources.samples.offsets import OffsetsKind

KIND: Final = "groups"


class GroupsKind:
    """Asks coordinators for their groups; see :class:`kind.Kind`. Stands behind ``offsets`` in the list of kinds.

    Attributes:
        standing: where groups stand still, and what is proven of these partitions.

    Args:
        period: microseconds.
        offsets: has read the positions of the partitions.
        is_included: which groups are asked for.
        probe: the group that does not exist.
    """

    names: Sequence[str] = (KIND,)

    def __init__(
        self, period: Micros, offsets: OffsetsKind, is_included: Callable[[str], bool], probe: Probe | None = None
    ) -> None:
        self.probe = probe or Probe(NO_GROUP)
        self._due, self._offsets, self._is_included = Timer(period), offsets, is_included
        self._listed, self._counts, self._starts = ListedGroups(), OffsetCounts(), ShareStarts()
        self.standing = StandingGroups()
        self._coordinators: dict[BrokerId, Coordinator] = {}

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock: not while leaders are asked for the positions."""
        rounds = (each.round for each in self._coordinators.values())
        waits = any(each is not None and not each.is_asked for each in rounds)
        return Micros(max(AT_ONCE if waits else self._due.next_at, self._offsets.leaders_until))

    def is_group(self, name: str) -> bool:
        """Return whether a coordinator has named a group so in its last answer."""
        return name in self._listed

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask every broker when the time has come, and those whose round is not over for the next piece."""
        if moment < self._offsets.leaders_until:
            return
        there = self._coordinators
        self._coordinators = {broker: there.get(broker) or Coordinator() for broker in view.brokers}
        is_due = self._due.take_due(moment)
        asked = [
            (broker, each)
            for broker, each in self._coordinators.items()
            if (is_due if each.round is None else not each.round.is_asked)
        ]
        if not asked:
            return
        positions = _Positions(self._offsets.positions(view.topic_ids), self._offsets.positions_asked_at)
        for broker, each in asked:
            piece = each.piece(partial(self._listed.expected, broker))
            work = partial(_answer, self._is_included, view.topic_ids, positions, piece=piece, probe=self.probe)
            if ask(KIND, broker, work) and each.round is not None:
                each.round.is_asked = True

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Return the groups of a broker."""
        coordinator = self._coordinators.setdefault(answer.broker, Coordinator())
        if answer.refusal is not None:
            return self._refused(coordinator, answer, answer.refusal, envelope)
        coordinated: CoordinatorAnswer = answer.value
        coordinator.fit(coordinated)
        coordinated = self._starts.completed(coordinated)
        coordinated = replace(coordinated, ended=self._counts.take(coordinated, view.topic_ids.keys()))
        blocks = self._blocks(view, answer.broker, coordinated, envelope)
        own = coordinator.round
        if own is None:
            now, names = monotonic(), {*coordinated.groups, *coordinated.left}
            missing = self._listed.take(answer.broker, names, coordinated.gone, now)
            own = coordinator.round = Round(now, {}, missing)
        own.add(blocks, coordinated)
        return self._over(coordinator, answer.broker, envelope) if own.is_over(monotonic()) else AnswerContent([])

    def _refused(
        self, coordinator: Coordinator, answer: BrokerAnswer, refusal: ConnectionRefused, envelope: dict[str, Any]
    ) -> AnswerContent:
        """Ask for less next time; a round that has begun continues for a while."""
        if not isinstance(refusal, ServiceRefused):
            coordinator.fail()
        if coordinator.round is None:
            coordinator.late = []  # else what is never answered would keep all others from being asked for
            return AnswerContent([], refusal)
        coordinator.round.fail()
        is_over = isinstance(refusal, ServiceRefused) or coordinator.round.is_over(monotonic())
        return self._over(coordinator, answer.broker, envelope) if is_over else AnswerContent([])

    def _over(self, coordinator: Coordinator, broker: BrokerId, envelope: dict[str, Any]) -> AnswerContent:
        """Show a round, and say what it did not reach."""
        own = coordinator.round
        if own is None:
            raise AssertionError(f"no round of broker {broker} is over")
        coordinator.round, coordinator.late = None, [*own.left]
        if not own.left:
            return AnswerContent(own.shown(broker, envelope), _denied(own.denied, self.probe))
        some = about(len(own.left))
        late = ServiceRefused(
            f"broker {broker} did not answer for all of its groups in time: the offsets of about {some} are "
            "unknown, and asked for first in the next round"
        )
        return AnswerContent(own.shown(broker, envelope), late)

    def _blocks(
        self, view: ClusterView, broker: BrokerId, coordinated: CoordinatorAnswer, envelope: dict[str, Any]
    ) -> list[BrokerGroupsObserved | BrokerGroupOffsetsObserved]:
        """Return the groups of an answer."""
        topic_ids = {topic: each for topic, each in coordinated.topic_ids.items() if view.topic_ids.get(topic) == each}
        groups = {name: _with_partitions_that_exist(group, view) for name, group in coordinated.groups.items()}
        coordinated = replace(coordinated, groups=groups)
        coordinated = timed(coordinated, topic_ids, self._offsets.high_watermarks, envelope["collected_at"])
        coordinated = self.standing.with_proofs(coordinated, topic_ids, envelope["collected_at"])
        return [
            *group_blocks(broker, coordinated.groups, coordinated.unread, envelope),
            *group_offset_blocks(broker, coordinated, topic_ids, envelope),
        ]


class _Positions(NamedTuple):
    """Positions of partitions, as ``CoordinatorAnswer.positions``, and when the first leader was asked for them."""

    read: Mapping[str, ByTopic]
    asked_at: Micros | None


def _answer(  # noqa: PLR0913 - what a question takes along
    is_included: Callable[[str], bool],
    topic_ids: Mapping[str, TopicId],
    positions: _Positions,
    connection: Connection,
    *,
    piece: GroupsPiece,
    probe: Probe,
) -> CoordinatorAnswer:
    if connection.newest(OFFSET_FETCH, NEWEST, "OffsetFetch") < OLDEST:
        raise NodeTooOld("the groups of brokers that are older than Kafka 3.0 are not read (KIP-709)")
    groups = piece.groups
    if groups is None:
        groups = {name: group for name, group in list_groups(connection).items() if is_included(name)}
    gone = gone_groups(connection, sorted(piece.expected.difference(groups)))
    now, left = piece.cut(groups)
    groups, denied = describe_groups(connection, now, probe)
    sharing = [name for name, group in groups.items() if group.protocol == SHARE]
    committing = [name for name, group in groups.items() if group.protocol != SHARE]
    read_at = monotonic()
    committed = _settled(connection, committed_offsets(connection, committing), positions) if committing else ()
    shared = _share_offsets(connection, sharing) if sharing else ()
    return CoordinatorAnswer(
        groups,
        committed={one.group: one.values for one in committed if not one.error},
        lags={one.group: one.lags for one in shared if not one.error},
        starts={one.group: one.starts for one in shared if not one.error},
        unread_starts={one.group: one.unread for one in shared if one.unread and not one.error},
        denied=(
            *denied,
            *(one.group for one in committed if one.error == GROUP_AUTHORIZATION_FAILED),
            *(one.group for one in shared if one.error == GROUP_AUTHORIZATION_FAILED),
        ),
        unread=frozenset(groups)
        - {one.group for one in committed if not one.error}
        - {one.group for one in shared if not one.error},
        left=left,
        gone=gone,
        topic_ids=topic_ids,
        positions=positions.read,
        positions_asked_at=positions.asked_at,
        read_at=read_at,
    )


def _settled(
    connection: Connection, committed: tuple[GroupValues, ...], positions: _Positions
) -> tuple[GroupValues, ...]:
    """Leave out groups that only seem to have lost records: an open transaction is to replace their offsets (KIP-447).

    Kafka Streams purges a repartition topic once a transaction has ended. Its marker may reach the coordinator later,
    and until then the offsets of the transaction before are those that are committed. It may reach it between the two
    questions, too: what the second one shows is taken.
    """
    log_starts = positions.read.get("log_start_offset", {})
    passed = {
        one.group: {
            (topic, number)
            for topic, offsets in one.values.items()
            for number, offset in offsets.items()
            if offset < log_starts.get(topic, {}).get(number, 0)
        }
        for one in committed
    }
    by_group = {one.group: one for one in committed}
    doubtful = [group for group, partitions in passed.items() if partitions]
    for one in committed_offsets(connection, doubtful, are_settled=True) if doubtful else ():
        passed[one.group] -= {(topic, number) for topic, offsets in one.values.items() for number in offsets}
        first = by_group[one.group].values
        merged = {topic: {**offsets, **one.values.get(topic, {})} for topic, offsets in first.items()}
        by_group[one.group] = by_group[one.group]._replace(values=merged)
    return tuple(one for group, one in by_group.items() if not passed[group])


def _with_partitions_that_exist(group: DescribedGroup, view: ClusterView) -> DescribedGroup:
    """Leave out what no topic has: a task of a streams group reads the partitions of its number that there are."""
    if group.protocol != STREAMS:
        return group
    owners = {
        topic: {number: owner for number, owner in of_topic.items() if number < view.partition_count(topic)}
        for topic, of_topic in group.owners.items()
        if topic in view.topics
    }
    return replace(group, owners=owners)


def _share_offsets(connection: Connection, groups: Sequence[str]) -> tuple[ShareValues, ...]:
    """Ask for those of share groups, last of all: a coordinator asks other brokers for their lag, which may hang."""
    try:
        return share_offsets(connection, groups)
    except ConnectionRefused:
        connection.close()  # its next answer would be unknown
        return ()


def _denied(groups: Sequence[str], probe: Probe) -> PermissionDenied | None:
    """Return the permission that was missing; where a group that does not exist is denied, any may be."""
    if not groups:
        return None
    return PermissionDenied(DESCRIBE_GROUPS, on="" if probe.name in groups else f"group {groups[0]}")
