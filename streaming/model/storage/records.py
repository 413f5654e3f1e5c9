"""Sets of records as ranges. In this model a record is an offset and the leader epoch that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from streaming.model.storage.log import Log


class Span(NamedTuple):
    """The records of one leader epoch with offsets ``[start, end)``."""

    epoch: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) of epoch {self.epoch}"


class Records:
    """A set of records; neighbours are joined."""

    __slots__ = ("spans",)

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def add(self, span: Span) -> None:
        """Take a range in."""
        last = self.spans[-1] if self.spans else None
        if last is not None and (last.epoch, last.end) == (span.epoch, span.start):
            self.spans[-1] = last._replace(end=span.end)
        else:
            self.spans.append(span)

    def missing_from(self, log: Log) -> list[Span]:
        """Give what a log does not hold."""
        return [gap for span in self.spans if not holds(log, span) for gap in _gaps(log, span)]

    def keep_only(self, log: Log) -> None:
        """Take out what a log does not hold."""
        kept = [part for span in self.spans for part in spans_of(log, span.start, span.end) if part.epoch == span.epoch]
        self.spans = kept

    def __len__(self) -> int:
        """Count the records."""
        return sum(span.end - span.start for span in self.spans)


def spans_of(log: Log, start: int, end: int) -> list[Span]:
    """Give the records ``[start, end)`` of a log."""
    start, end = max(start, log.start), min(end, log.end)
    if start >= end:
        return []
    entries = log.epochs_between(start, end)
    ends = (*(offset for _, offset in entries[1:]), end)
    return [Span(epoch, offset, until) for (epoch, offset), until in zip(entries, ends, strict=True)]


def holds(log: Log, span: Span) -> bool:
    """Return whether a log has every record of a range; what retention deleted counts as held."""
    start = max(span.start, log.start)
    if start >= span.end:
        return True
    return span.end <= log.end and log.epochs_between(start, span.end) == ((span.epoch, start),)


def _gaps(log: Log, span: Span) -> list[Span]:
    """Give what a log lacks of a range; an epoch is in one piece in every log."""
    held = next((part for part in spans_of(log, span.start, span.end) if part.epoch == span.epoch), None)
    if held is None:
        return [span]
    gaps = (span._replace(end=held.start), span._replace(start=held.end))
    return [gap for gap in gaps if max(gap.start, log.start) < gap.end]


def first_difference(one: Log, other: Log, below: int) -> int | None:
    """Give the first offset below ``below`` at which both logs have a record, but not the same."""
    start, end = max(one.start, other.start), min(one.end, other.end, below)
    if start >= end or one.epochs == other.epochs or one.epochs_between(start, end) == other.epochs_between(start, end):
        return None
    pairs = zip(_breaks(one, start, end), _breaks(other, start, end), strict=False)
    return next((min(a[1], b[1]) for a, b in pairs if a != b), end)


def _breaks(log: Log, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Give (epoch, first offset) of each run, closed by the end: two equal prefixes part where the first run ends."""
    return (*log.epochs_between(start, end), (-1, end))
