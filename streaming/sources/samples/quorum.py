"""DescribeQuorum 0 to 2: the voters and observers of the metadata quorum, as its leader sees them.

Any broker can be asked; it asks the leader (KIP-595, KIP-836). The leader's own times are now, so how far another
member is behind in time is the difference to these, whatever the clock here says. Requires Describe on the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import DescribeQuorumRequest, DescribeQuorumResponse

from streaming.contracts.identifiers import MILLISECOND, BrokerId, Micros, Offset
from streaming.contracts.quorum_members import QUORUM_BEHIND, doubled, doubled_sentence
from streaming.contracts.samples import QuorumMemberObserved
from streaming.sources.permissions import DESCRIBE_CLUSTER, PermissionDenied
from streaming.sources.protocol.connection import CLUSTER_AUTHORIZATION_FAILED, ServiceRefused
from streaming.sources.protocol.identity import WrongNode
from streaming.sources.protocol.quorum_messages import (
    Quorum,
    QuorumMember,
    describe_quorum_request,
    member_of,
    read_quorum,
)
from streaming.sources.samples.kind import AnswerContent
from streaming.sources.source import Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streaming.sources.polling.view import ClusterView
    from streaming.sources.protocol.connection import Connection
    from streaming.sources.samples.kind import Ask, BrokerAnswer

KIND: Final = "quorum"
_NEWEST: Final = 2


def describe_quorum(connection: Connection) -> Quorum | None:
    """Ask a broker; None of a cluster without a metadata quorum: it uses ZooKeeper.

    Raises:
        ConnectionRefused: it does not respond.
        PermissionDenied: it may not be asked.
    """
    version = connection.newest(DescribeQuorumRequest.API_KEY, _NEWEST, "DescribeQuorum")
    if version < 0:
        return None
    quorum = connection.call(describe_quorum_request(version), DescribeQuorumResponse, read_quorum)
    if quorum.error == CLUSTER_AUTHORIZATION_FAILED:
        raise PermissionDenied(DESCRIBE_CLUSTER)
    return quorum


class QuorumKind:
    """Asks one broker for the quorum, and the next one if that does not answer; see :class:`kind.Kind`."""

    names: Sequence[str] = (KIND,)

    def __init__(self, period: Micros, report: Callable[[str], None] = lambda _: None) -> None:
        self._report, self._doubled = report, set[str]()
        self._due = Timer(period)
        self._answered: BrokerId | None = None
        self._left: list[BrokerId] = []
        self._epoch = -1
        self._unheard: dict[tuple[int, str | None], int] = {}

    @property
    def next_at(self) -> Micros:
        """Due time, by the monotonic clock."""
        return self._due.next_at

    def ask(self, view: ClusterView, ask: Ask, moment: Micros) -> None:
        """Ask the broker that answered last, or another one if it did not, when the time has come."""
        if not self._due.take_due(moment):
            return
        self._left = self._left or sorted(view.brokers, key=lambda broker: broker != self._answered)
        while self._left:
            broker = self._left.pop(0)
            if broker in view.brokers and ask(KIND, broker, describe_quorum):
                return

    def shown(self, view: ClusterView, answer: BrokerAnswer, envelope: dict[str, Any]) -> AnswerContent:  # noqa: ARG002 - the interface
        """Return the members; nothing while the quorum has no leader. Who does not answer is followed by the next.

        A leader of an older epoch may not know yet that it is none any more: it is believed if it says so again.
        """
        quorum: Quorum | None = answer.value
        is_final = isinstance(answer.refusal, ServiceRefused) and not isinstance(answer.refusal, WrongNode)
        if is_final or (answer.refusal is None and (quorum is None or not quorum.error)):
            self._answered, self._left = answer.broker, []
        elif self._left:
            self._due.expire()
        if quorum is None or quorum.error or quorum.leader.node < 0:
            return AnswerContent([], answer.refusal)
        before, self._epoch = self._epoch, quorum.leader.epoch
        if quorum.leader.epoch < before:
            return AnswerContent([])
        self._note_doubled(quorum)
        self._note_unheard(quorum, is_new_leader=quorum.leader.epoch > before)
        return AnswerContent([
            QuorumMemberObserved(
                **envelope,
                node=member.node,
                is_voter=member.is_voter,
                controller=quorum.leader.node,
                controller_epoch=quorum.leader.epoch,
                high_watermark=None if quorum.high_watermark is None else Offset(quorum.high_watermark),
                log_end_offset=None if member.log_end_offset is None else Offset(member.log_end_offset),
                last_fetch_at=_micros(member.last_fetch_ms),
                last_caught_up_at=_micros(self._caught_up_ms(quorum, member)),
                directory_id=member.directory_id,
            )
            for member in quorum.members
        ])  # fmt: skip

    def _note_unheard(self, quorum: Quorum, *, is_new_leader: bool) -> None:
        """Note since when, by its own clock, the leader has no fetch of voters: one that was dead before makes none."""
        now, before = quorum.voters.get(quorum.leader.node), {} if is_new_leader else self._unheard
        unheard = [each for each in quorum.members if each.is_voter and each.last_caught_up_ms is None]
        keys = [(each.node, each.directory_id) for each in unheard if now is not None]
        self._unheard = {key: before.get(key, now or 0) for key in keys}

    def _caught_up_ms(self, quorum: Quorum, member: QuorumMember) -> int | None:
        """Return when a member had caught up, at the latest; None while its leader is too new to have its fetches."""
        now, since = quorum.voters.get(quorum.leader.node), self._unheard.get((member.node, member.directory_id))
        is_long = now is not None and since is not None and now - since > QUORUM_BEHIND // MILLISECOND
        return since if member.is_voter and is_long else member.last_caught_up_ms

    def _note_doubled(self, quorum: Quorum) -> None:
        """Say once as which node several processes run, and again if they are others."""
        for node, members in doubled(quorum.members, member_of).items():
            sentence = doubled_sentence(node, sorted((each.directory_id, each.is_voter) for each in members))
            if sentence not in self._doubled:
                self._report(sentence)
            self._doubled.add(sentence)


def _micros(milliseconds: int | None) -> Micros | None:
    return None if milliseconds is None else Micros(milliseconds * MILLISECOND)
