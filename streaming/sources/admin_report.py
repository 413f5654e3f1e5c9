"""What a poller reports of the views that it reads: what has changed, or everything. Depends on views and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Heartbeat, Observation, SnapshotReason
from streaming.sources.admin_doubts import goes_back
from streaming.sources.admin_view import deleted_topics, has_same_members, snapshot, steps
from streaming.sources.timer import Timer, monotonic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.sources.admin_view import ClusterView

_BLIND_MICROS: Final = 60_000_000  # a poll that is later than this was not merely slow


class PolledReports:
    """Begins with a full report, which is sent again when it is due, or when only that can show what has changed.

    Args:
        name: of the source.
        poll_micros: interval of views.
        snapshot_micros: interval of full reports.
    """

    def __init__(self, name: str, *, poll_micros: Micros, snapshot_micros: Micros) -> None:
        self._name = name
        self._full_due = Timer(snapshot_micros)
        self._blind_after = max(_BLIND_MICROS, 2 * poll_micros)
        self._until = 0
        self._missed_changes = False

    def expire(self) -> None:
        """Send a full report next."""
        self._full_due.expire()

    def miss_changes(self) -> None:
        """Note that changes may have been missed since the last view, which the next full report says."""
        self._missed_changes = True

    def window(self, began: int, ended: int) -> dict[str, Micros]:
        """Return between which times happened what a view shows that was not reported yet.

        Invariant: a change happened after the request of the previous view and before the response of this one.

        Args:
            began: the request of the previous view.
            ended: the response of this one.
        """
        # When the clock is set back, a change must not become older than those reported before.
        start, end = self._until, max(ended, self._until + 1)
        # A machine that was suspended noticed no failure: its polls are as far apart as if they had failed.
        self._missed_changes |= end - start > self._blind_after
        self._until = end
        return {"occurred_not_before": Micros(min(max(began, start), end)), "occurred_not_after": Micros(end)}

    def of(
        self, before: ClusterView | None, remembered: ClusterView | None, view: ClusterView, envelope: Mapping[str, Any]
    ) -> list[Observation]:
        """Return what differs from the previous view, or everything.

        Args:
            before: the previous view, if there is one.
            remembered: what is compared with the first view: topics and leader epochs that an earlier collector polled.
            view: this one.
            envelope: what every observation says, with the :meth:`window`.
        """
        last = before or remembered
        is_new_log = last is not None and goes_back(last, view)
        deleted = [] if last is None else deleted_topics(last, view)
        self._missed_changes |= is_new_log
        reason = self._reason(before, view)
        if before is not None and reason is None:
            return steps(before, view, envelope) or [Heartbeat(**envelope)]
        self._missed_changes = False
        return snapshot(
            before,
            view,
            envelope,
            snapshot_id=f"{self._name}/{envelope['occurred_not_after']}",
            reason=reason or SnapshotReason.START,
            is_new_log=is_new_log,
            deleted=deleted,
        )

    def _reason(self, before: ClusterView | None, view: ClusterView) -> SnapshotReason | None:
        is_due = self._full_due.take_due(monotonic())
        if before is None:
            return SnapshotReason.START
        if self._missed_changes:
            return SnapshotReason.HISTORY_LOST
        return SnapshotReason.PERIODIC if is_due or not has_same_members(before, view) else None
