"""The metadata of a simulated cluster, read from one broker at a time, as the admin source reads it.

The broker that answered is asked again; while it is silent for a second another one is asked, too, and each half minute
another one all the same. A view that may be stale is taken when a second broker agrees, or when the doubt has lasted.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from streaming.contracts.identifiers import BrokerId
from streaming.sources.polling.metadata import ELSEWHERE_EVERY, TimedView
from streaming.sources.polling.view import LONGEST_DOUBT, RECHECK_AFTER, ClusterView, goes_back, may_be_stale
from tests.judge.polls.answers import Answers
from tests.judge.polls.listeners import Clock, Listeners

SLOW_AFTER_MS: Final = 1_000
ROUND_MS: Final = 10_000
"""A round without an answer has failed by then."""
_RECHECKS: Final = 3
_ANSWER_MS: Final = (5, 40)
_NEXT_MS: Final = 3
_MICROS_PER_MS: Final = 1_000


class Views:
    """Reads the metadata each ``interval_ms``.

    Args:
        listeners: who serves.
        answers: what it says.
        clock: plans what happens later.
        brokers: all that may ever be asked.
        interval_ms: from the begin of a round to that of the next one.
        random: latencies, and where it begins.
        take: gets each view that is not in doubt; None of a round in which nobody answered.
    """

    def __init__(  # noqa: PLR0913 - who answers what, how often, and whose clock and chance it is
        self,
        listeners: Listeners,
        answers: Answers,
        clock: Clock,
        brokers: tuple[BrokerId, ...],
        *,
        interval_ms: int,
        random: Random,
        take: Callable[[TimedView | None], None],
    ) -> None:
        self._listeners, self._answers, self._clock = listeners, answers, clock
        self._brokers, self._interval_ms, self._random, self._take = list(brokers), interval_ms, random, take
        self._asked: BrokerId = random.choice(self._brokers)
        self._last: ClusterView | None = None
        self._doubts: dict[int, ClusterView] = {}
        self._rechecks = 0
        self._doubtful_since = 0
        self._elsewhere_at = 0
        self._round = 0

    def begin(self, at: int) -> None:
        """Begin a round at a time, and the next one after the interval."""
        self._clock.at(at, self._begin_round)

    def _begin_round(self) -> None:
        now = self._listeners.now
        self._round += 1
        others = [broker for broker in self._brokers if broker != self._asked]
        self._random.shuffle(others)
        is_elsewhere = now >= self._elsewhere_at
        if is_elsewhere:
            self._elsewhere_at = now + ELSEWHERE_EVERY // _MICROS_PER_MS
        order = [*others, self._asked] if is_elsewhere or self._rechecks else [self._asked, *others]
        self._try(self._round, order, now)

    def _try(self, number: int, order: list[BrokerId], began: int) -> None:
        """Ask the first of those that are left, unless a later question has been answered."""
        if number != self._round:
            return
        now = self._listeners.now
        if not order or now - began >= ROUND_MS:
            self._end_round(None, began)
            return
        broker, *rest = order
        if self._listeners.serves(broker):
            at = now + self._random.randint(*_ANSWER_MS)
            self._clock.at(at, lambda: self._answer(number, [broker, *rest], began, now))
            return
        wait = _NEXT_MS if self._listeners.refuses(broker) else SLOW_AFTER_MS
        self._clock.at(now + wait, lambda: self._try(number, rest, began))

    def _answer(self, number: int, order: list[BrokerId], began: int, asked: int) -> None:
        if number != self._round:
            return
        broker, *rest = order
        if not self._listeners.serves(broker):
            self._try(number, rest, began)
            return
        view, now = self._answers.view(broker), self._listeners.now
        self._asked = broker
        if self._is_doubtful(view, now):
            self._round += 1
            self.begin(now + RECHECK_AFTER // _MICROS_PER_MS)
            return
        self._doubts, self._rechecks, self._last = {}, 0, view
        self._end_round(TimedView(view, self._listeners.micros(asked), self._listeners.micros(now)), began)

    def _is_doubtful(self, view: ClusterView, now: int) -> bool:
        """Return whether a view waits for a second opinion."""
        if self._last is None or not may_be_stale(self._last, view):
            return False
        agreed = any(
            other != view.answered_by and (seen.brokers, seen.topics) == (view.brokers, view.topics)
            for other, seen in self._doubts.items()
        )
        is_disputed = not self._doubts.keys() <= {view.answered_by}
        is_enough = self._rechecks >= _RECHECKS * (1 + is_disputed) and not goes_back(self._last, view)
        is_long = bool(self._rechecks) and now - self._doubtful_since > LONGEST_DOUBT // _MICROS_PER_MS
        if agreed or is_enough or is_long:
            return False
        self._doubtful_since = self._doubtful_since if self._rechecks else now
        self._rechecks += 1
        self._doubts[view.answered_by] = view
        return True

    def _end_round(self, view: TimedView | None, began: int) -> None:
        self._round += 1
        self._take(view)
        self.begin(max(self._listeners.now, began + self._interval_ms))
