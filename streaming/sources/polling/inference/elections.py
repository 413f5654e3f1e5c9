"""Elections between two answers about a partition: of a replica that may lack acknowledged records, or not. Pure.

A leader from outside of the ISR and the eligible leader replicas (KIP-966) that were seen last may have caught up
between the two answers. It cannot have, if no broker led, or if the leader before or itself did not answer meanwhile.
Else the logs decide: where the epoch of the leader before ends in the log of the new one (KIP-279), below an end that
the former one had shown, records are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER
from streaming.sources.polling.inference.conduct import SLOW
from streaming.sources.polling.view import InferredCause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.sources.polling.inference.conduct import Listeners
    from streaming.sources.polling.inference.fates import Step
    from streaming.sources.polling.inference.inquiry import BrokerQuestion
    from streaming.sources.polling.view import ClusterView


_EPOCHS_KEPT: Final = 100
"""Leader epochs of a partition: a step between two answers never goes through as many."""


class SeenLogEnds:
    """Ends of logs that leaders have shown while they were the only replica in sync, and ends of their epochs.

    No other broker had to have what such a leader had, and it was committed at once, unless too few replicas were in
    sync for writers who wait for all of them.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, int], tuple[int, int]] = {}
        self._epoch_ends: dict[tuple[str, int, int], int] = {}

    def note_ends(self, leader: BrokerId, ends: Mapping[tuple[str, int], int], view: ClusterView) -> None:
        """Note where the logs of a broker end."""
        for (topic, number), end in ends.items():
            part = view.topics.get(topic, {}).get(number)
            if part is not None and part.isr == (leader,) and part.leader == leader and part.leader_epoch is not None:
                self._shown[topic, number] = part.leader_epoch, end

    def note_epoch_ends(self, question: BrokerQuestion, ends: Mapping[tuple[str, int], int]) -> None:
        """Note where the epochs end that were asked for."""
        for topic, number, epoch in question.partitions:
            if (topic, number) in ends:
                self._epoch_ends[topic, number, epoch] = ends[topic, number]

    def forget_all_but(self, view: ClusterView) -> None:
        """Forget what can decide nothing any more: of topics that are gone, and of epochs long before the present."""
        self._shown = {key: each for key, each in self._shown.items() if key[0] in view.topics}
        epochs = {
            (topic, number): part.leader_epoch or 0
            for topic in {topic for topic, _, _ in self._epoch_ends}
            for number, part in view.topics.get(topic, {}).items()
        }
        self._epoch_ends = {
            key: end
            for key, end in self._epoch_ends.items()
            if key[:2] in epochs and epochs[key[:2]] <= key[2] + _EPOCHS_KEPT
        }

    def shown(self, step: Step) -> int | None:
        """Return the end that the leader before a step had shown in its epoch; None: none, or of another epoch."""
        epoch, end = self._shown.get((step.topic, step.number), (-1, -1))
        return end if step.before is not None and step.before.leader_epoch == epoch else None

    def epoch_end(self, step: Step) -> int | None:
        """Return where the epoch before a step ends in the log of the new leader; None: that was not answered."""
        epoch = None if step.before is None else step.before.leader_epoch
        return None if epoch is None else self._epoch_ends.get((step.topic, step.number, epoch))


def is_from_outside(step: Step) -> bool:
    """Return whether a broker took over from another one that was not in the ISR seen last, nor eligible to lead."""
    before, after = step.before, step.after
    if before is None or before.leader < 0 or after.leader in (NO_LEADER, UNSEEN_LEADER, before.leader):
        return False
    return set(before.replicas) == set(after.replicas) and after.leader not in (*before.isr, *before.elr)


def is_missing_records(step: Step, ends: SeenLogEnds) -> bool | None:
    """Return whether a new leader lacks what the one before had shown; None: unknown."""
    shown, end = ends.shown(step), ends.epoch_end(step)
    return None if shown is None or end is None else end < shown


def election_of(step: Step, listeners: Listeners, ends: SeenLogEnds) -> InferredCause | None:  # noqa: PLR0911 - one per kind of election
    """Return the cause of a step by which a broker leads that was not in the ISR, or none led before; else None."""
    before, after = step.before, step.after
    if before is None or after.leader in (NO_LEADER, UNSEEN_LEADER, before.leader):
        return None
    if (after.leader_epoch or 0) < (before.leader_epoch or 0):
        return None  # the answer is older, or the controllers were restored from a backup
    leader, was_without = after.leader, before.leader == NO_LEADER
    if leader in before.isr:
        return (
            InferredCause(Cause.UNFENCED, because=f"broker {leader} is back, and was in the ISR")
            if was_without
            else None
        )
    if leader in before.elr:
        because = f"broker {leader} was an eligible leader replica"
        return InferredCause(Cause.ELR_ELECTION, because=because) if was_without else None
    if before.last_known_elr == (leader,):
        either = (Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)
        return InferredCause(Cause.LAST_KNOWN_LEADER, Evidence.AMBIGUOUS, either)
    outside = f"broker {leader} leads, and was neither in the ISR {list(before.isr)} nor eligible to lead"
    if was_without:
        return InferredCause(Cause.UNCLEAN_ELECTION, because=f"{outside}, while no broker led")
    absent = [each for each in (before.leader, leader) if _was_absent(each, step.since, step.until, listeners)]
    if any(_lived_through(each, step.since, step.until, listeners) for each in before.isr):
        absent = []  # no election is unclean while a member of the ISR is alive: the new leader had caught up
    if not absent and is_missing_records(step, ends):
        because = f"{outside}; the epoch before ends at {ends.epoch_end(step)} there, and {ends.shown(step)} was seen"
        return InferredCause(Cause.UNCLEAN_ELECTION, because=because)
    if not absent:
        return None
    because = f"{outside}; broker {absent[0]} did not answer meanwhile"
    return InferredCause(Cause.UNCLEAN_ELECTION, because=because)


def _lived_through(broker: BrokerId, since: Micros, until: Micros, listeners: Listeners) -> bool:
    """Return whether a broker answered all through a window, and the others list it."""
    listener = listeners.of.get(broker)
    return (
        listener is not None
        and listener.answered is not None
        and not listener.is_absent
        and listener.absence_within(since, until) is None
        and listeners.is_listed(broker) is not False
    )


def _was_absent(broker: BrokerId, since: Micros, until: Micros, listeners: Listeners) -> bool:
    """Return whether a broker answered at no moment of a window, but for the end of it."""
    listener = listeners.of.get(broker)
    if listener is None:
        return False
    absence = listener.absence_within(since, until)
    if absence is None or absence.last_answer > since + SLOW // 3:
        return False
    return absence.until is None or absence.until >= until - SLOW
