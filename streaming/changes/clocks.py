"""Clocks that are wrong: when an observation happened, as far as its source may be believed.

Order is never a question of clocks: the log has offsets, a source its numbers. Times are told by the clocks of
controllers and collectors, which jump. Two rules keep a jump from doing harm for longer than it lasts:

- Nothing was seen before it happened. What is told of more than ``DOUBT`` after it was collected happened when it was
  collected: so a controller's clock that stood hours ahead for a while puts no watermark hours ahead.
- A poller's clock that is set back, with its process started anew, does not make its news look old: it happened no
  earlier than what the same source told before. (The log's times never run back: ``sources.image``.)

A collector whose own clock jumps ahead is believed, for nobody else knows better: what it told, and the watermark, lie
ahead until time has caught up, durations stand still meanwhile, and none is ever negative.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Authority

if TYPE_CHECKING:
    from streaming.changes.buckets import Seen
    from streaming.contracts.observations import Observation

DOUBT: Final = Micros(60_000_000)
Told = TypeVar("Told", bound="Observation | Seen")


def dated(told: Told, before: int | None) -> Told:
    """Give an observation, or its envelope, the time at which it can have happened.

    Args:
        told: what was seen.
        before: the newest time that its source told before, None for none.
    """
    at = told.occurred_not_after
    if at > told.collected_at + DOUBT:
        at = told.collected_at
    if told.authority is Authority.POLL and before is not None and at < before - DOUBT:
        at = Micros(before)
    if at == told.occurred_not_after:
        return told
    return replace(told, occurred_not_before=min(told.occurred_not_before, at), occurred_not_after=at)
