"""Elections between two answers about a partition: of a replica that may lack acknowledged records, or not. Pure.

A leader from outside of the ISR and the eligible leader replicas (KIP-966) that were seen last may have caught up
between the two answers. It cannot have, if nobody led, or if the leader before or itself did not answer meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.contracts.events import Cause, Evidence
from streaming.contracts.identifiers import NO_LEADER, UNSEEN_LEADER
from streaming.sources.polling.conduct import SLOW
from streaming.sources.polling.view import Explanation

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId, Micros
    from streaming.sources.polling.conduct import Listeners
    from streaming.sources.polling.fates import Step


def election_of(step: Step, listeners: Listeners) -> Explanation | None:  # noqa: PLR0911 - one per kind of election
    """Return the cause of a step by which a broker leads that was not in the ISR, or nobody led before; else None."""
    before, after = step.before, step.after
    if before is None or after.leader in (NO_LEADER, UNSEEN_LEADER, before.leader):
        return None
    leader, nobody_led = after.leader, before.leader == NO_LEADER
    if leader in before.isr:
        return (
            Explanation(Cause.UNFENCED, because=f"broker {leader} is back, and was in the ISR") if nobody_led else None
        )
    if leader in before.elr:
        because = f"broker {leader} was an eligible leader replica"
        return Explanation(Cause.ELR_ELECTION, because=because) if nobody_led else None
    if before.last_known_elr == (leader,):
        either = (Cause.LAST_KNOWN_LEADER, Cause.UNCLEAN_ELECTION)
        return Explanation(Cause.LAST_KNOWN_LEADER, Evidence.AMBIGUOUS, either)
    outside = f"broker {leader} leads, and was neither in the ISR {list(before.isr)} nor eligible to lead"
    if nobody_led:
        return Explanation(Cause.UNCLEAN_ELECTION, because=f"{outside}, while nobody led")
    absent = [each for each in (before.leader, leader) if _was_absent(each, step.since, step.until, listeners)]
    if not absent:
        return None
    because = f"{outside}; broker {absent[0]} did not answer meanwhile"
    return Explanation(Cause.UNCLEAN_ELECTION, because=because)


def _was_absent(broker: BrokerId, since: Micros, until: Micros, listeners: Listeners) -> bool:
    """Return whether a broker answered at no moment of a window, but for the end of it."""
    listener = listeners.of.get(broker)
    if listener is None:
        return False
    absence = listener.absence_within(since, until)
    if absence is None or absence.last_answer > since + SLOW // 3:
        return False
    return absence.until is None or absence.until >= until - SLOW
