"""Partitions at risk over the last minutes, as sparklines. Pure: no clock, no console."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rich.text import Text

from exporters.demo.cluster_view import STATES
from exporters.read_model.snapshot import SECOND
from exporters.terminal.columns import STATE_STYLES
from streaming.contracts.health import OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from exporters.read_model.snapshot import ReplicationSnapshot

AT_RISK: Final = (OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED)
BARS: Final = "▁▂▃▄▅▆▇█"
UNKNOWN: Final = "?"
STEP_SECONDS: Final = 4
STEPS: Final = 60
_LABEL: Final = max(len(STATES[state]) for state in AT_RISK)


@dataclass(slots=True)
class _Step:
    """The largest counts of one step, by state; None once one was unknown."""

    number: int
    peaks: dict[str, int | None]


@dataclass(slots=True)
class RiskHistory:
    """The partitions of all clusters in each state: now, and the largest number of each step of ``STEP_SECONDS``."""

    _steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=STEPS))
    _now: dict[str, int | None] = field(default_factory=dict)

    def add(self, snapshot: ReplicationSnapshot, now: int) -> None:
        """Add the present counts of all clusters."""
        self._now = counts = {state: counted(snapshot, state) for state in AT_RISK}
        number = now // (STEP_SECONDS * SECOND)
        if not self._steps or self._steps[-1].number != number:
            self._steps.append(_Step(number, dict(counts)))
            return
        peaks = self._steps[-1].peaks
        for state, count in counts.items():
            before = peaks[state]
            peaks[state] = None if count is None or before is None else max(before, count)

    def lines(self) -> Iterator[Text]:
        """Return a title and one sparkline per state, the newest step at the right; a step without a look is a gap."""
        if not self._steps:
            return
        newest = self._steps[-1].number
        by_number = {step.number: step.peaks for step in self._steps}
        numbers = range(max(self._steps[0].number, newest - STEPS + 1), newest + 1)
        minutes = (len(numbers) * STEP_SECONDS + 59) // 60
        title = f"partitions at risk over the last {minutes} min, largest number of each {STEP_SECONDS} s"
        yield Text(title, style="dim")
        for state in AT_RISK:
            peaks = [by_number[number][state] if number in by_number else -1 for number in numbers]
            most, now = max((peak for peak in peaks if peak is not None), default=0), self._now[state]
            line = "".join(_bar(peak, most) for peak in peaks)
            style = STATE_STYLES[state] if most > 0 else "green"
            said = f"now {UNKNOWN if now is None else f'{now:,}'}, most {max(0, most):,}"
            yield Text.assemble((f"{STATES[state]:{_LABEL}}  ", "dim"), (line, style), f"  {said}")


def counted(snapshot: ReplicationSnapshot, state: str) -> int | None:
    """Count the partitions of all clusters in a state; None while that is unknown of one."""
    counts = [cluster.counts.in_state(state) for cluster in snapshot.clusters.values()]
    return None if not counts or None in counts else sum(filter(None, counts))


def _bar(peak: int | None, most: int) -> str:
    """Return one character: the lowest bar is 0 and only 0; "?" is unknown, a space was not observed."""
    if peak is None:
        return UNKNOWN
    if peak < 0:
        return " "
    return BARS[0] if not peak else BARS[max(1, round(peak / most * (len(BARS) - 1)))]
