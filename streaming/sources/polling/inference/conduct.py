"""Behaviour of each broker's listener, second by second, and whom the brokers list. Pure; monotonic microseconds.

Conduct distinguishes what partitions alone do not. A process that ended refuses connections, one that hangs or is cut
off stays silent, and a broker that is stopped cleanly answers until it has left the ISRs. Brokers list each other:
one that answers and is not listed is cut off from the controllers, or about to stop.

A proxy proves nothing. Only an answer that carries the broker's id is one; a connection that is accepted says nothing.
Where several ids share an address, or the address of a broker that is not listed any more accepts connections, refused
and closed connections count for no more than silence does.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.sources.polling.inference.inquiry import Ask, Meeting, Presence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.sources.polling.inference.inquiry import Met

_SECOND: Final = 1_000_000
SLOW: Final = 1_500_000
"""An answer that is later than this is missed; one that is not was slow."""
_VOTE_LASTS: Final = 3 * _SECOND
_KEPT: Final = 8
_ENDED: Final = frozenset({Meeting.REFUSED, Meeting.CLOSED})


@dataclass(slots=True)
class Absence:
    """A time without an answer of a broker.

    Attributes:
        last_answer: end of the last answer before.
        since: first sign that it does not answer.
        ended_at: when a connection was refused or closed first; None: there was only silence.
        is_refused: no process listened there.
        until: end of the first answer afterwards, None while there is none.
    """

    last_answer: Micros
    since: Micros
    ended_at: Micros | None = None
    is_refused: bool = False
    until: Micros | None = None

    @property
    def is_process_gone(self) -> bool:
        """True if connections were refused or closed: silence alone may be that of a process which hangs."""
        return self.ended_at is not None


@dataclass(slots=True)
class ListenerConduct:
    """Conduct of the listener of one broker."""

    answered: Micros | None = None
    """End of the last answer."""
    answered_first: Micros | None = None
    """End of the first answer after the last absence."""
    gap: tuple[Micros, Micros] | None = None
    """Last two answers between which more than a few seconds passed, whatever explains them."""
    connection: int = 0
    absences: deque[Absence] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def is_absent(self) -> bool:
        """True while it does not answer."""
        return bool(self.absences) and self.absences[-1].until is None

    def meet(self, met: Met) -> None:
        """Note how a question ended."""
        if met.how is Meeting.ANSWERED:
            self._answer(met)
            return
        if self.answered is None or met.how is Meeting.WRONG_NODE or met.asked < self.answered - SLOW:
            return
        if met.how is Meeting.SILENT and met.ended - met.asked < SLOW:
            return
        if not self.is_absent:
            self.absences.append(Absence(self.answered, met.asked if met.how is Meeting.SILENT else met.ended))
        absence = self.absences[-1]
        if met.how in _ENDED:
            absence.ended_at = met.ended if absence.ended_at is None else absence.ended_at
            absence.is_refused |= met.how is Meeting.REFUSED

    def _answer(self, met: Met) -> None:
        if self.is_absent:
            absence = self.absences[-1]
            absence.until = met.ended
            self.answered_first = met.ended
            if met.ended - absence.last_answer < 2 * SLOW and not absence.is_refused:
                self.absences.pop()  # slow, or its connection was closed for another reason than its end
        if self.answered_first is None:
            self.answered_first = met.ended
        if self.answered is not None and met.ended - self.answered > 2 * SLOW:
            self.gap = self.answered, met.ended
        self.answered = met.ended if self.answered is None else max(self.answered, met.ended)
        self.connection = met.connection

    def silent_since(self, since: Micros, until: Micros) -> Micros | None:
        """Return since when it answered nothing, also while it may have waited for a controller, for most of a time."""
        gaps = [(self.answered or since, until), *([self.gap] if self.gap is not None else [])]
        lasting = (begin for begin, end in gaps if 2 * (min(end, until) - max(begin, since)) > until - since)
        return next(lasting, None)

    def unasked_within(self, since: Micros, until: Micros) -> int:
        """Return for how long a broker without an absence was not asked within a window: the poller stood still."""
        begin, end = self.gap or (until, until)
        return max(0, min(end, until) - max(begin, since))

    def absence_within(self, since: Micros, until: Micros) -> Absence | None:
        """Return the newest absence that overlaps a window."""
        return next(
            (
                each
                for each in reversed(self.absences)
                if each.last_answer <= until and (each.until is None or since <= each.until)
            ),
            None,
        )


class Listed(NamedTuple):
    """Change of whether the brokers list one of them: it happened after ``since``, and was seen at ``until``.

    ``is_registered``: of one that is not listed that it is registered no more, or again; None: that did not change.
    """

    broker: BrokerId
    is_listed: bool
    since: Micros
    until: Micros
    is_registered: bool | None = None


@dataclass(slots=True)
class _Listing:
    is_listed: bool
    seen: Micros
    """Time at which a broker was asked that showed it last."""
    first: Micros
    """The same of the first one: who was asked earlier says nothing against it."""
    unlisted: tuple[Micros, Micros] | None = None
    """Window in which it was last taken off the lists."""
    is_registered: bool = True


class _Vote(NamedTuple):
    asked: Micros
    ended: Micros
    listed: frozenset[BrokerId]
    fenced: frozenset[BrokerId] | None


class Listeners:
    """Conduct of all brokers, and whom they list.

    Attributes:
        of: the listener of each broker.
        shared: brokers whose address is that of another one, too.
        proxied: brokers whose address accepted connections while they were not listed, and did not answer.
        awaiting: brokers that were asked what they ask a controller for, and when: until then, they answer nothing that
            was asked later on the same connection.
        controller_answered: when a broker was asked last for what a controller answered then.
        uncontrolled: the last time of more than some seconds in which no controller answered any broker.
    """

    def __init__(self) -> None:
        self.of: dict[BrokerId, ListenerConduct] = {}
        self.shared: frozenset[BrokerId] = frozenset()
        self.proxied: set[BrokerId] = set()
        self.awaiting: dict[BrokerId, Micros] = {}
        self.controller_answered = Micros(0)
        self.uncontrolled = Micros(0), Micros(0)
        self._led_until: Micros | None = None
        self._slept: tuple[Micros, Micros] = Micros(0), Micros(0)
        self._votes: dict[int, _Vote] = {}
        self._listing: dict[BrokerId, _Listing] = {}
        self._is_disputed = False
        """Votes differ: each is counted until they agree again."""

    def listener(self, broker: BrokerId) -> ListenerConduct:
        """Return the listener of a broker."""
        return self.of.setdefault(broker, ListenerConduct())

    def sleep(self, until: Micros, lasted: Micros) -> None:
        """Note that the machine of the poller was suspended, and the monotonic clock stood still."""
        self._slept = until, lasted

    def slept_within(self, since: Micros, until: Micros) -> int:
        """Return for how long the machine was suspended within a window, at the least."""
        at, lasted = self._slept
        return lasted if since <= at <= until else 0

    def at(self, addresses: Mapping[BrokerId, tuple[str, int]]) -> None:
        """Note the addresses of the brokers that are listed."""
        count = Counter(addresses.values())
        self.shared = frozenset(broker for broker, address in addresses.items() if count[address] > 1)

    def meet(self, met: Met) -> list[Listed]:
        """Note how a question ended; return what has changed in whom the brokers list."""
        broker = met.question.broker
        if met.how is not Meeting.SILENT and met.question.ask is Ask.QUORUM:
            self.awaiting.pop(broker, None)
            if met.content is not None:
                self._note_controller(met)
        if met.how is Meeting.SILENT and self.awaiting.get(broker, 0) > self.controller_answered:
            return []  # it may wait for a controller: none has answered any broker since it was asked
        self.listener(broker).meet(met)
        if met.how is Meeting.SILENT and self.is_listed(broker) is False and met.ended - met.asked > _VOTE_LASTS:
            self.proxied.add(broker)
        elif met.how is Meeting.REFUSED:
            self.proxied.discard(broker)
        if isinstance(met.content, Presence):
            return self.vote(broker, met.content.unfenced, met.asked, met.ended, met.content.fenced)
        return []

    def _note_controller(self, met: Met) -> None:
        self.controller_answered = max(self.controller_answered, met.asked)
        if self._led_until is not None and met.ended - self._led_until > _VOTE_LASTS:
            self.uncontrolled = self._led_until, met.ended
        self._led_until = met.ended

    def is_trusted(self, broker: BrokerId) -> bool:
        """Return whether what connections to a broker meet is evidence: not behind a proxy."""
        return broker not in self.shared and broker not in self.proxied

    def vote(
        self,
        voter: int,
        listed: Iterable[BrokerId],
        asked: Micros,
        ended: Micros,
        fenced: frozenset[BrokerId] | None = None,
    ) -> list[Listed]:
        """Note whom a broker lists, and whom as fenced, if it says so; return the changes.

        A broker does not vote on itself, nor while it is not listed: it repeats what it saw last before it was cut off.
        """
        before, vote = self._votes.get(voter), _Vote(asked, ended, frozenset(listed), fenced)
        self._votes[voter] = vote
        if before is None:  # one that does not say who it is gets another number with each connection
            self._votes = {each: last for each, last in self._votes.items() if ended - last.ended <= _VOTE_LASTS}
        if before is not None and before[2:] == vote[2:] and not self._is_disputed:
            for broker in vote.listed:
                self._listing[broker].seen = asked
            return []
        self._is_disputed = False
        changed = []
        for broker in sorted({*self._listing, *self._votes[voter].listed}):
            change = self._counted(broker, ended)
            if change is not None:
                changed.append(change)
        self._is_disputed |= bool(changed)
        return changed + self._registered(ended)

    def _registered(self, now: Micros) -> list[Listed]:
        """Return the brokers that all who are listed list no more, not even as fenced; and those that are back."""
        votes = [
            vote
            for voter, vote in self._votes.items()
            if vote.fenced is not None and now - vote.ended <= _VOTE_LASTS and self.is_listed(BrokerId(voter))
        ]
        changed = []
        for broker, listing in self._listing.items() if votes else ():
            is_registered = listing.is_listed or any(broker in {*vote.listed, *(vote.fenced or ())} for vote in votes)
            if listing.is_registered is not is_registered and not listing.is_listed:
                changed.append(Listed(broker, False, listing.seen, now, is_registered))
            listing.is_registered = is_registered
        return changed

    def _counted(self, broker: BrokerId, now: Micros) -> Listed | None:
        listing = self._listing.get(broker)
        first = Micros(0) if listing is None else listing.first
        newest = {
            voter: vote
            for voter, vote in self._votes.items()
            if now - vote.ended <= _VOTE_LASTS and vote.asked >= first
        }
        votes = [
            vote for voter, vote in newest.items() if voter != broker and self.is_listed(BrokerId(voter)) is not False
        ] or [vote for voter, vote in newest.items() if voter == broker]
        in_favour = [vote for vote in votes if broker in vote.listed]
        if listing is None:
            seen = max((vote.asked for vote in in_favour), default=now)
            self._listing[broker] = _Listing(is_listed=True, seen=seen, first=seen)
            return None
        self._is_disputed |= 0 < len(in_favour) < len(votes)
        is_tied = 2 * len(in_favour) == len(votes)
        is_listed = listing.is_listed if is_tied else 2 * len(in_favour) > len(votes)
        of_state = [vote.asked for vote in votes if (broker in vote.listed) is listing.is_listed]
        listing.seen = max((listing.seen, *of_state))
        if is_listed is listing.is_listed:
            return None
        first = min(vote.ended for vote in votes if (broker in vote.listed) is is_listed)
        window = min(listing.seen, first), now
        listing.is_listed, listing.seen = is_listed, now
        listing.unlisted = listing.unlisted if is_listed else window
        return Listed(broker, is_listed, *window)

    def is_listed(self, broker: BrokerId) -> bool | None:
        """Return whether the brokers list one; None: they never did."""
        listing = self._listing.get(broker)
        return None if listing is None else listing.is_listed

    def was_unlisted_within(self, broker: BrokerId, since: Micros, until: Micros) -> bool:
        """Return whether a broker was taken off the lists within a window, whether it is listed again or not."""
        listing = self._listing.get(broker)
        window = None if listing is None else listing.unlisted
        return window is not None and window[0] <= until and since <= window[1]

    def is_isolated(self, broker: BrokerId, now: Micros) -> bool:
        """Return whether others that are listed, and answered just now, do not list a broker: what it says is old."""
        if self.is_listed(broker) is not False:
            return False
        return any(
            now - vote.ended <= _VOTE_LASTS and self.is_listed(BrokerId(voter)) and broker not in vote.listed
            for voter, vote in self._votes.items()
            if voter != broker
        )

    def is_absent_since(self, broker: BrokerId, moment: Micros) -> bool:
        """Return whether a broker has not answered since a moment, or earlier."""
        listener = self.of.get(broker)
        return listener is not None and listener.is_absent and listener.absences[-1].last_answer <= moment

    def is_listed_since(self, broker: BrokerId, moment: Micros) -> bool | None:
        """Return whether other brokers that were asked after a moment list one: False if one of them does not.

        Those that list a broker may be cut off with it, and repeat what they saw last; None: none was asked.
        """
        votes = [vote for voter, vote in self._votes.items() if voter != broker and vote.asked >= moment]
        return all(broker in vote.listed for vote in votes) if votes else None


def seconds(micros: int) -> str:
    """Write a time for people."""
    return f"{max(0, micros) / _SECOND:.2g} s"
