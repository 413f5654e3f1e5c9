"""Which view may be older than the one before, and how long it is in doubt.

Depends on views and the monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.identifiers import NO_LEADER, Micros
from streaming.sources.timer import monotonic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.sources.admin_view import ClusterView, PartitionView

RECHECK_AFTER: Final = Micros(300_000)  # longer than a healthy broker lags behind the metadata log
_RECHECKS: Final = 3
_LONGEST: Final = Micros(15_000_000)


class Doubt:
    """Why views that may be stale are not believed yet. It ends when two brokers agree, or after some rechecks.

    Rechecks alone, with nobody who agrees, do not undo an election that was seen: a broker that is cut off from the
    controllers repeats its view for ever. But no other broker may ever be reached, and controllers that were restored
    from a backup have lower epochs for good. So every doubt ends after ``_LONGEST``.

    Invariant: the last accepted view was received before all that are in doubt.
    """

    def __init__(self) -> None:
        self._rechecks = 0
        self._since = Micros(0)
        self._views: dict[int, ClusterView] = {}  # two responses of unknown brokers may be of the same one

    @property
    def is_open(self) -> bool:
        """Whether there is any."""
        return bool(self._rechecks)

    @property
    def is_long(self) -> bool:
        """Whether it has lasted so long that it ends with the next view."""
        return self.is_open and monotonic() - self._since > _LONGEST

    @property
    def needs_recheck(self) -> bool:
        """Whether a second opinion is wanted, without which a view is not believed yet."""
        return self.is_open and not self.is_long

    def ends_with(self, before: ClusterView, view: ClusterView) -> bool:
        """Return whether a view that may be stale is believed all the same; otherwise it adds to the doubt.

        Args:
            before: the last accepted view.
            view: what a broker shows now.
        """
        is_enough = self._is_enough(view) and not goes_back(before, view)
        if self.is_long or is_enough or self._is_agreed(view):
            return True
        self._since = self._since if self.is_open else monotonic()
        self._rechecks += 1
        if view.answered_by >= 0:
            self._views[view.answered_by] = view
        return False

    def _is_enough(self, view: ClusterView) -> bool:
        """Return whether there were enough rechecks: more of them where brokers disagree."""
        is_disputed = view.answered_by >= 0 and not self._views.keys() <= {view.answered_by}
        return self._rechecks >= (2 * _RECHECKS if is_disputed else _RECHECKS)

    def _is_agreed(self, view: ClusterView) -> bool:
        return view.answered_by >= 0 and any(
            other.answered_by != view.answered_by and (view.brokers, view.topics) == (other.brokers, other.topics)
            for other in self._views.values()
        )


def may_be_stale(before: ClusterView, after: ClusterView) -> bool:
    """Return whether a response may be older than the previous one.

    Brokers follow the metadata log at different speeds, and one that is partitioned from the controllers or was paused
    returns old metadata; the other brokers no longer list it. A partition that is missing may not have been replicated
    to that broker yet, and a recovery that another broker reports may be the state before the failure, unless leader
    epochs decide. A topic id that is new may be that of a topic that was deleted, and another cluster a wrong address.
    """
    if any(len(after.topics.get(topic, ())) < len(parts) for topic, parts in before.topics.items()):
        return True
    if after.answered_by == before.answered_by:
        return False
    is_listed = after.answered_by < 0 or after.answered_by in before.brokers
    has_new_topic = not after.topic_ids.items() <= before.topic_ids.items()
    has_new = has_new_topic or not after.brokers.keys() <= before.brokers.keys()
    return not is_listed or has_new or any(_may_be_older(old, view) for old, view in _changed(before, after))


def goes_back(before: ClusterView, after: ClusterView) -> bool:
    """Return whether a leader epoch is lower than before, as after controllers were restored from a backup."""
    return any((_epochs_passed(old, view) or 0) < 0 for old, view in _changed(before, after))


def _changed(before: ClusterView, after: ClusterView) -> Iterator[tuple[PartitionView, PartitionView]]:
    """Yield what the partitions that differ were and are; those of a topic that was created again have no epochs."""
    for topic, parts in after.topics.items():
        old_parts = before.topics.get(topic, {})
        if parts == old_parts:
            continue
        is_same_topic = before.topic_ids.get(topic) == after.topic_ids.get(topic)
        for number, view in parts.items():
            if (old := old_parts.get(number)) is not None:
                yield old if is_same_topic else old._replace(leader_epoch=None), view


def _epochs_passed(old: PartitionView, view: PartitionView) -> int | None:
    if old.leader_epoch is None or view.leader_epoch is None:
        return None
    return view.leader_epoch - old.leader_epoch


def _may_be_older(old: PartitionView, view: PartitionView) -> bool:
    """Return whether the leader epoch is lower, or a member of the ISR or a leader was added in the same one."""
    passed = _epochs_passed(old, view)
    if passed:
        return passed < 0
    return not set(view.isr) <= set(old.isr) or (old.leader == NO_LEADER != view.leader)
