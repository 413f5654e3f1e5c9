"""Clock skew: when an observation happened, as far as the clock of its source can be believed.

Order never depends on clocks: the metadata log has offsets, a source its sequence numbers. Times come from the clocks
of controllers and collectors, which jump. Two rules keep a jump from doing harm for longer than it lasts:

- Nothing is observed before it happens. A time more than ``MAX_SKEW`` after the observation was collected becomes the
  time at which it was collected: a controller clock that was hours ahead for a while moves no watermark hours ahead.
- A poller whose clock was set back, and whose process was restarted, must not make its observations look old: they
  happened no earlier than what the same source reported before. (Times of the log never run back: ``sources.image``.)

A collector whose own clock is ahead is believed for an hour, because nothing here can correct it: its times, and the
watermark, are ahead until real time has caught up; durations stand still meanwhile, and none is ever negative. Further
ahead (``is_ahead``) it would silence other sources for that long, so the job, which has a clock, refuses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from streaming.contracts.identifiers import Micros
from streaming.contracts.maintenance import MaintenanceObserved
from streaming.contracts.observations import SourceKind

if TYPE_CHECKING:
    from dataclasses import Field

MAX_SKEW: Final = Micros(60_000_000)
MAX_AHEAD: Final = Micros(3_600_000_000)


class TimedObservation(Protocol):
    """What bears the times of an observation: the observation itself, or its envelope. A frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def authority(self) -> SourceKind:
        """The kind of source."""

    @property
    def occurred_not_before(self) -> Micros:
        """Begin of the window in which it happened."""

    @property
    def occurred_not_after(self) -> Micros:
        """End of the window in which it happened."""

    @property
    def collected_at(self) -> Micros:
        """When the collector received it."""


T = TypeVar("T", bound=TimedObservation)


def with_plausible_time(observed: T, newest_before: int | None) -> T:
    """Return an observation, or its envelope, with the time at which it can have happened.

    Args:
        observed: as its source reported it.
        newest_before: the newest time that the same source reported before, None for none.
    """
    at = observed.occurred_not_after
    if at > observed.collected_at + MAX_SKEW:
        at = observed.collected_at
    if observed.authority is SourceKind.POLL and newest_before is not None and at < newest_before:
        at = Micros(newest_before)
    if at == observed.occurred_not_after:
        return observed
    moved: dict[str, Any] = {"occurred_not_before": min(observed.occurred_not_before, at), "occurred_not_after": at}
    if isinstance(observed, MaintenanceObserved):  # it was announced for so long from then on
        moved["lease_until"] = max(0, observed.lease_until - (observed.occurred_not_after - at))
    return replace(observed, **moved)


def is_ahead(observed: TimedObservation, now: int) -> bool:
    """Return whether an observation was collected further ahead of a clock than is believed."""
    return observed.collected_at > now + MAX_AHEAD
