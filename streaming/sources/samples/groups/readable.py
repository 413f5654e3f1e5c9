"""Questions whether there is something to read where a group stands still: markers have offsets, too.

While every group moves on, none is asked. Where one has stood still before the last stable offset for ``STANDS``,
the leader is asked who wrote transactions in the partition (DescribeProducers, KIP-664): it remembers each producer for
a day. Without such a producer everything can be read. Otherwise coordinators are asked which of these producers have
committed their last transaction, and when that began (ListTransactions, DescribeTransactions): it has written in the
partition if the leader has a marker of this producer that is not older. Where another one is open, that may lie behind
it: it is proven once the last stable offset has passed it. In a cluster without ``__transaction_state`` everything can
be read. Without a proof it is unknown whether anything can be. No record is read for all this.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.contracts.group_positions import CLOCKS_DIFFER
from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.permissions import READ_TOPICS, PermissionDenied
from streaming.sources.samples.kind import NEVER, AnswerContent
from streaming.sources.samples.transactions import (
    TRANSACTION_STATE,
    ActiveProducers,
    active_producers,
    committed_transactions,
    leader_of,
)
from streaming.sources.source import AT_ONCE, Timer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import TopicId
    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.groups.blocks import CoordinatorAnswer
    from streaming.sources.samples.kind import Ask, BrokerAnswer
    from streaming.sources.samples.transactions import TopicPartition

LEADERS: Final = "producers where groups stand still"
COORDINATORS: Final = "committed transactions"
STANDS: Final = Micros(60_000_000)
"""So long, microseconds, a group stands still until it is asked what there is to read."""
MOST_PARTITIONS: Final = 500
"""So many partitions of one leader in a request, those first that were not asked for longest."""
_FORGOTTEN: Final = Micros(3_600_000_000)
_DENIED_MICROS: Final = Micros(600_000_000)
_CONSUMER_OFFSETS: Final = "__consumer_offsets"


class StandingOffset(NamedTuple):
    """A group stands before the last stable offset of a partition.

    Attributes:
        offset: its own.
        since: the first answer with it, UTC microseconds.
        end: the last stable offset then.
        has_grown: it was larger since.
    """

    offset: int
    since: Micros
    end: int
    has_grown: bool = False


class HeldProof(NamedTuple):
    """A transaction was committed in a partition that another one held: what it wrote may lie behind that one.

    Attributes:
        readable_at: when it began, UTC microseconds.
        known_at: when that was asked.
        end: a high watermark after that; what is below the last stable offset once this has reached it can be read.
    """

    readable_at: Micros
    known_at: Micros
    end: int | None = None


class Proof(NamedTuple):
    """Conclusions about a partition.

    Attributes:
        topic_id: of its topic.
        asked_at: when it was asked for last, UTC microseconds.
        readable_at: what consumers can read came then, or was there then, UTC microseconds; None: unknown.
        is_transactional: transactions were written there in the last day; None: unknown.
        held: what can be read as soon as the last stable offset has passed it.
    """

    topic_id: TopicId | None
    asked_at: Micros = AT_ONCE
    readable_at: Micros | None = None
    is_transactional: bool | None = None
    held: HeldProof | None = None


class StandingGroups:
    """The groups that stand still, by partition, and what is proven of these partitions."""

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[str, dict[TopicPartition, StandingOffset]] = {}
        self._noted: dict[str, Micros] = {}
        self._proofs: dict[TopicPartition, Proof] = {}
        self._now = AT_ONCE

    @property
    def now(self) -> Micros:
        """Time of the newest answer."""
        return self._now

    def __bool__(self) -> bool:
        """Return whether any group stands before the last stable offset, however short."""
        return bool(self._of)

    def with_proofs(self, answer: CoordinatorAnswer, topic_ids: Mapping[str, TopicId], at: Micros) -> CoordinatorAnswer:
        """Note where the groups of an answer stand; return it with what is known of these partitions."""
        self._now = at
        for name in answer.gone:
            self._of.pop(name, None)
        for name in answer.groups.keys() - answer.unread:
            now = dict(self._standing(answer, name, self._of.get(name, {}), at))
            if now:
                self._of[name], self._noted[name] = now, at
            else:
                self._of.pop(name, None)
        self._release(answer)
        proofs = {
            place: proof for place, proof in self._proofs.items() if topic_ids.get(place[0], "") == proof.topic_id
        }
        if not proofs:
            return answer
        columns: dict[str, dict[str, dict[int, Any]]] = {"readable_at": {}, "is_transactional": {}}
        for (topic, number), proof in proofs.items():
            for column, by_topic in columns.items():
                by_topic.setdefault(topic, {})[number] = getattr(proof, column)
        return replace(answer, positions={**answer.positions, **columns})

    def _release(self, answer: CoordinatorAnswer) -> None:
        """Take what was held for proven once a last stable offset that was read later has passed it."""
        ends, stable = (answer.positions.get(field, {}) for field in ("high_watermark", "last_stable_offset"))
        for place, proof in self._proofs.items():
            held, (topic, number) = proof.held, place
            read, end = stable.get(topic, {}).get(number), ends.get(topic, {}).get(number)
            if held is None or read is None or end is None or (answer.positions_at or AT_ONCE) < held.known_at:
                continue
            held = held if held.end is not None else held._replace(end=end)
            if read < (held.end or 0):
                self._proofs[place] = proof._replace(held=held)
            else:
                readable_at = max(held.readable_at, proof.readable_at or AT_ONCE)
                self._proofs[place] = proof._replace(held=None, readable_at=readable_at)

    @staticmethod
    def _standing(
        answer: CoordinatorAnswer, name: str, before: Mapping[TopicPartition, StandingOffset], at: Micros
    ) -> Iterator[tuple[TopicPartition, StandingOffset]]:
        starts, ends = (answer.positions.get(field, {}) for field in ("log_start_offset", "last_stable_offset"))
        for topic, offsets in (answer.committed.get(name) or answer.starts.get(name) or {}).items():
            log_starts, stable = starts.get(topic, {}), ends.get(topic, {})
            for number, offset in offsets.items():
                end, was = stable.get(number), before.get((topic, number))
                same = was if was is not None and was.offset == offset else None
                if end is None:
                    if same is not None:
                        yield (topic, number), same
                elif max(offset, log_starts.get(number, 0)) < end:
                    if same is None:
                        yield (topic, number), StandingOffset(offset, at, end)
                    else:
                        yield (topic, number), same if end <= same.end else same._replace(has_grown=True)

    def unproven(self, topic_ids: Mapping[str, TopicId]) -> dict[TopicPartition, bool]:
        """Return where it is not known that something can be read, and whether more came; forget all other places."""
        for name in [name for name, at in self._noted.items() if at < self._now - _FORGOTTEN]:
            self._of.pop(name, None)
            del self._noted[name]
        until, places, unproven = Micros(self._now - STANDS), set[tuple[str, int]](), dict[tuple[str, int], bool]()
        for of_group in self._of.values():
            places.update(of_group)
            for place, standing in of_group.items():
                if standing.since <= until and place[0] in topic_ids:
                    readable_at = self._proof(place, topic_ids).readable_at
                    if readable_at is None or readable_at < standing.since + CLOCKS_DIFFER:
                        unproven[place] = unproven.get(place, True) and standing.has_grown
        self._proofs = {place: proof for place, proof in self._proofs.items() if place in places}
        return dict(sorted(unproven.items(), key=lambda item: self._proof(item[0], topic_ids).asked_at))

    def _proof(self, place: TopicPartition, topic_ids: Mapping[str, TopicId]) -> Proof:
        topic_id, proof = topic_ids.get(place[0]), self._proofs.get(place)
        return proof if proof is not None and proof.topic_id == topic_id else Proof(topic_id)

    def put(
        self,
        place: TopicPartition,
        topic_ids: Mapping[str, TopicId],
        *,
        asked_at: Micros | None = None,
        readable_at: Micros | None = None,
        is_transactional: bool | None = None,
    ) -> None:
        """Note what an answer proves, as far as it does; what could be read once is there."""
        proof = self._proof(place, topic_ids)
        came = [each for each in (readable_at, proof.readable_at) if each is not None]
        self._proofs[place] = proof._replace(
            asked_at=proof.asked_at if asked_at is None else asked_at,
            readable_at=max(came, default=None),
            is_transactional=proof.is_transactional if is_transactional is None else is_transactional,
        )

    def hold(self, place: TopicPartition, topic_ids: Mapping[str, TopicId], readable_at: Micros, now: Micros) -> None:
        """Note what was committed while another transaction was open; the first of it is the first that can be read."""
        proof = self._proof(place, topic_ids)
        self._proofs[place] = proof._replace(held=proof.held or HeldProof(readable_at, now))


class LeaderAnswer(NamedTuple):
    """Response of a leader, with the question: the partitions, and whether more came since groups stand still there."""

    places: Mapping[TopicPartition, bool]
    topic_ids: Mapping[str, TopicId]
    producers: ActiveProducers


class ReadableKind:
    """Asks what there is to read where groups stand still; see :class:`kind.Kind`. Stands behind ``groups``."""

    names: Sequence[str] = (LEADERS, COORDINATORS)

    def __init__(self, period: Micros, standing: StandingGroups) -> None:
        self._due, self._standing = Timer(period), standing
        self._writers: dict[TopicPartition, dict[int, Micros]] = {}
        self._open: set[TopicPartition] = set()
        self._has_answers = False

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock: never while no group stands still."""
        if self._has_answers:
            return AT_ONCE
        return self._due.next_at if self._standing else NEVER

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask the leaders when the time has come, and when one has named writers of transactions the coordinators."""
        if self._has_answers:
            self._has_answers = False
            writers = sorted({producer for of_place in self._writers.values() for producer in of_place})
            for broker in view.brokers if writers else ():
                ask(COORDINATORS, broker, partial(committed_transactions, producers=writers))
        elif self._standing and self._due.take_due(moment):
            self._writers, self._open = {}, set()
            unproven = self._standing.unproven(view.topic_ids)
            if TRANSACTION_STATE not in view.topics and _CONSUMER_OFFSETS in view.topics:
                self._note_plain(unproven, view)
                return
            by_leader: dict[BrokerId, dict[TopicPartition, bool]] = {}
            for place, has_grown in unproven.items():
                by_leader.setdefault(leader_of(view, place), {})[place] = has_grown
            for broker in by_leader.keys() & set(view.brokers):
                places = dict(islice(by_leader[broker].items(), MOST_PARTITIONS))
                ask(LEADERS, broker, partial(_asked, places, view.topic_ids))

    def _note_plain(self, places: Mapping[TopicPartition, bool], view: ClusterView) -> None:
        for place in places:
            self._standing.put(place, view.topic_ids, readable_at=self._standing.now, is_transactional=False)

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:
        """Note what an answer proves; it is shown with the next samples of the groups."""
        if answer.refusal is not None:
            return AnswerContent([], answer.refusal)
        if answer.kind == COORDINATORS:
            self._take_transactions(view, answer.value, envelope["collected_at"])
            return AnswerContent([])
        asked: LeaderAnswer = answer.value
        for place, has_grown in asked.places.items():
            self._take_producers(place, asked, envelope["collected_at"], has_grown=has_grown)
        if (denied := asked.producers.denied) is None:
            return AnswerContent([])
        self._due.next_at = Micros(max(self._due.next_at, self._due.next_at - self._due.period + _DENIED_MICROS))
        return AnswerContent([], PermissionDenied(READ_TOPICS, on=f"topic {denied}"))

    def _take_producers(self, place: TopicPartition, asked: LeaderAnswer, now: Micros, *, has_grown: bool) -> None:
        producers = asked.producers.of.get(place)
        if producers is None or not (producers or has_grown):
            self._standing.put(place, asked.topic_ids, asked_at=now)
            return
        writers = {one.producer_id: one.last_at for one in producers if one.has_ended_transaction}
        if writers:
            self._writers[place], self._has_answers = writers, True
        if any(one.is_open for one in producers):
            self._open.add(place)
        is_transactional = bool(writers) or place in self._open
        readable_at = None if is_transactional else now
        self._standing.put(
            place, asked.topic_ids, asked_at=now, readable_at=readable_at, is_transactional=is_transactional
        )

    def _take_transactions(self, view: ClusterView, began: Mapping[int, Micros], now: Micros) -> None:
        for place, writers in self._writers.items():
            proven = [began[producer] for producer, last_at in writers.items() if began.get(producer, NEVER) <= last_at]
            if proven and place in self._open:
                self._standing.hold(place, view.topic_ids, max(proven), now)
            elif proven:
                self._standing.put(place, view.topic_ids, readable_at=max(proven))


def _asked(
    places: Mapping[TopicPartition, bool], topic_ids: Mapping[str, TopicId], connection: Connection
) -> LeaderAnswer:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(places, key=itemgetter(0)):
        by_topic.setdefault(topic, []).append(number)
    return LeaderAnswer(places, topic_ids, active_producers(connection, by_topic))
