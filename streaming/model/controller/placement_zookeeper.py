"""Where the replicas of a new topic went with ZooKeeper (``AdminUtils``): round robin with a growing shift. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.controller.placement import check_replication_factor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.controller.placement import Assignments, UsableBroker


def assign_replicas(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, *, start: int = 0, shift: int = 0
) -> Assignments:
    """Let the brokers take turns to lead; the followers of one leader differ from round to round.

    Racks count if every broker has one: no rack gets a second replica before each has its first. Without racks every
    broker counts as a rack of its own, which comes to the same formula. Kafka draws ``start`` and ``shift``.

    Raises:
        Refused: INVALID_REPLICATION_FACTOR.
    """
    usable = sorted(brokers, key=lambda broker: broker.broker)
    check_replication_factor(replication_factor, len(usable))
    rack_of = {broker.broker: broker.rack or "" for broker in usable}
    if any(broker.rack is None for broker in usable):
        rack_of = {broker.broker: f"{rank:09}" for rank, broker in enumerate(usable)}
    ring, racks = _alternating(rack_of), len(set(rack_of.values()))

    def replicas(partition: int) -> tuple[BrokerId, ...]:
        first = (partition + start) % len(ring)
        chosen = [ring[first]]
        candidates = _after(ring, first, (shift + partition // len(ring)) * racks)
        while len(chosen) < replication_factor:
            candidate = next(candidates)
            used = {rack_of[broker] for broker in chosen}
            if candidate not in chosen and (rack_of[candidate] not in used or len(used) == racks):
                chosen.append(candidate)
        return tuple(chosen)

    return tuple(replicas(partition) for partition in range(partitions))


def _alternating(rack_of: dict[BrokerId, str]) -> list[BrokerId]:
    """Put the first broker of each rack in a row, then the second of each, and so on."""
    depth: dict[str, int] = {}
    rows = []
    for broker, rack in rack_of.items():
        depth[rack] = depth.get(rack, -1) + 1
        rows.append((depth[rack], rack, broker))
    return [broker for _, _, broker in sorted(rows)]


def _after(ring: list[BrokerId], first: int, shift: int) -> Iterator[BrokerId]:
    """Walk round the ring without ``first``, for ever, from ``shift`` steps after it."""
    others = ring[first + 1 :] + ring[:first]
    while True:
        yield others[shift % len(others)]
        shift += 1
