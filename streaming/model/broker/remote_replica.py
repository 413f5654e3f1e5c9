"""One follower as its leader sees it, and when it counts as caught up (KIP-16, ``Replica.java``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

UNKNOWN_OFFSET: Final = -1


@dataclass(slots=True)
class RemoteReplica:
    """What the leader remembers of one follower's fetches.

    Attributes:
        log_end_offset: offset of its newest fetch: it has everything below. -1 before the first one in this epoch.
            Invariant: ≤ the leader's log end. Only its own fetches move it: an answer that was sent proves nothing.
        last_fetch_leader_end: the leader's own log end when that fetch was read. Invariant: never falls in an epoch.
        last_fetch_ms: when that fetch arrived.
        last_caught_up_ms: the newest moment at which it provably had everything the leader had. Invariant: never falls
            in an epoch; ≤ ``last_fetch_ms`` once it has fetched.
        broker_epoch: of the process that fetched; None before, -1 from a process not yet registered (KIP-903).
    """

    log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_end: int = UNKNOWN_OFFSET
    last_fetch_ms: int = 0
    last_caught_up_ms: int = 0
    broker_epoch: int | None = None


def fetched(remote: RemoteReplica, offset: int, leader_end: int, now: int, broker_epoch: int) -> None:
    """Note a fetch at ``offset`` that the leader read when its own log ended at ``leader_end``.

    The second branch is what keeps a follower in sync that is always one batch behind: it has now what the leader
    had at the *previous* fetch, so it was caught up at the time of that one.
    """
    if offset >= leader_end:
        caught_up_ms = now
    elif offset >= remote.last_fetch_leader_end:
        caught_up_ms = remote.last_fetch_ms
    else:
        caught_up_ms = remote.last_caught_up_ms
    if caught_up_ms > remote.last_caught_up_ms:  # noqa: PLR1730 - max() takes longer than all the rest
        remote.last_caught_up_ms = caught_up_ms
    if leader_end > remote.last_fetch_leader_end:  # noqa: PLR1730 - max() takes longer than all the rest
        remote.last_fetch_leader_end = leader_end
    remote.log_end_offset = offset
    remote.last_fetch_ms = now
    remote.broker_epoch = broker_epoch


def is_caught_up(remote: RemoteReplica, leader_end: int, now: int, window_ms: int) -> bool:
    """Return whether it may stay in the ISR; the window is inclusive.

    A follower at the leader's log end is caught up however old its last fetch is: a hung follower of an idle
    partition stays in the ISR.
    """
    return remote.log_end_offset == leader_end or now - remote.last_caught_up_ms <= window_ms


def behind_ms(remote: RemoteReplica, now: int, stalled: tuple[int, int]) -> int:
    """Give how long it has not been caught up, without the time in which the leader itself did not run."""
    begin, end = stalled
    return now - remote.last_caught_up_ms - max(0, end - max(begin, remote.last_caught_up_ms))


def is_stuck(remote: RemoteReplica, leader_end: int, now: int, window_ms: int) -> bool:
    """Until 0.8: tell whether a follower that is behind has not fetched for longer than the window."""
    return remote.log_end_offset < leader_end and now - max(remote.last_fetch_ms, remote.last_caught_up_ms) > window_ms


def is_slow(remote: RemoteReplica, leader_end: int, max_messages: int) -> bool:
    """Until 0.8: tell whether a follower is more messages behind than allowed (``replica.lag.max.messages``).

    A burst larger than the limit throws out followers that keep up perfectly well (KAFKA-1546 removed the rule).
    """
    return remote.log_end_offset != UNKNOWN_OFFSET and leader_end - remote.log_end_offset > max_messages


def for_new_leader(*, in_isr: bool, now: int) -> RemoteReplica:
    """Begin a leader epoch: nothing is known; members of the ISR get the benefit of one window."""
    return RemoteReplica(last_caught_up_ms=now if in_isr else 0)


def for_reelected_leader(remote: RemoteReplica, *, in_isr: bool, start_offset: int, now: int) -> RemoteReplica:
    """Begin another leader epoch under the same leader: positions are kept, the window of ISR members starts again."""
    if not in_isr:
        return replace(remote, last_fetch_ms=0, last_caught_up_ms=0)
    return replace(remote, last_fetch_leader_end=start_offset, last_fetch_ms=now, last_caught_up_ms=now)
