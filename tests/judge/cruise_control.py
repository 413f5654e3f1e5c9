"""Cruise Control's rule for slow brokers, on the signals that isrwatch has: what ours is judged beside.

A value is abnormal above 3 times the 90th percentile of the broker's own history *or* above 3 times the median of all
brokers, and above a floor. Each check raises the score of an abnormal broker by one and lowers that of any other;
from 5 it is reported, and nothing is done about more than a tenth of the brokers. Its history is of days, so that
minutes do not move it: here abnormal values are left out of it. Its own signals are log flush times, which need an
agent; here they are our response times, our shares of pairs that are behind and our times of appends, with our floors,
and at least one broker may be reported in a small cluster, as ours does it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Final

from streaming.changes.advice.slow_brokers import (
    APPEND_FLOOR_MICROS,
    BEHIND_FLOOR_PERCENT,
    HISTORY_ROUNDS,
    LEAST_HISTORY,
    RESPONSE_FLOOR_MICROS,
    SpeedSample,
    most_slow,
)
from streaming.contracts.identifiers import BrokerId

_MARGIN: Final = 3
_SCORE: Final = 5
_MOST: Final = 50
_FLOORS: Final = (RESPONSE_FLOOR_MICROS, BEHIND_FLOOR_PERCENT + 1, APPEND_FLOOR_MICROS)


class CruiseControl:
    """Sees the same rounds."""

    def __init__(self) -> None:
        self._history: dict[tuple[BrokerId, int], list[int]] = defaultdict(list)
        self._scores = Counter[str | int]()

    def slow_after(self, samples: Mapping[BrokerId, SpeedSample]) -> frozenset[BrokerId]:
        values = {
            broker: (sample.response_micros, sample.behind_percent, sample.append_micros)
            for broker, sample in samples.items()
        }
        for broker, mine in values.items():
            is_abnormal = any(
                self._is_abnormal(
                    mine[place], floor, self._history[broker, place], [one[place] for one in values.values()]
                )
                for place, floor in enumerate(_FLOORS)
            )
            self._scores[broker] = (
                min(_MOST, self._scores[broker] + 1) if is_abnormal else max(0, self._scores[broker] - 1)
            )
            for place, value in enumerate(mine):
                if value is not None and not is_abnormal:
                    self._history[broker, place] = [*self._history[broker, place], value][-HISTORY_ROUNDS:]
        slow = frozenset(broker for broker in samples if self._scores[broker] >= _SCORE)
        return slow if len(slow) <= most_slow(len(samples)) else frozenset()

    @staticmethod
    def _is_abnormal(value: int | None, floor: int, history: Sequence[int], all_values: Sequence[int | None]) -> bool:
        if value is None or value < floor:
            return False
        current = [each for each in all_values if each is not None]
        is_beyond_itself = len(history) >= LEAST_HISTORY and value > _MARGIN * quantiles(history, n=10)[-1]
        return is_beyond_itself or value > _MARGIN * median(current)
