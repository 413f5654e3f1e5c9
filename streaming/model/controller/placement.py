"""Placement of a new topic's replicas: KRaft's ``StripedReplicaPlacer``, and what an administrator may write instead.

Four wishes, the earlier the stronger: replicas of a partition in as many racks as there are; leaders on brokers that
are alive; an even spread, of leaders first; different followers for the partitions of one leader. Random numbers are
the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.model.constants import Error, RefusedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence

    from streaming.contracts.identifiers import BrokerId
    from streaming.model.messages.registrations import BrokerRegistration

if TYPE_CHECKING:
    Assignments = tuple[tuple[BrokerId, ...], ...]  # the replicas of each partition, the preferred leader first


class UsableBroker(NamedTuple):
    """A broker that may get replicas. A fenced one may, too: it will be back."""

    broker: BrokerId
    rack: str | None = None
    fenced: bool = False


def usable_brokers(brokers: Mapping[BrokerId, BrokerRegistration]) -> list[UsableBroker]:
    """Give the registered brokers without those that are shutting down, or have no directory that is not cordoned."""
    return [
        UsableBroker(broker, registration.rack, registration.fenced)
        for broker, registration in brokers.items()
        if (registration.fenced or not registration.in_controlled_shutdown)
        and (not registration.log_dirs or set(registration.log_dirs) - set(registration.cordoned_log_dirs))
    ]


def check_replication_factor(replication_factor: int, brokers: int) -> None:
    """Refuse more replicas than brokers, and none at all.

    Raises:
        RefusedRequest: INVALID_REPLICATION_FACTOR.
    """
    if replication_factor < 1:
        raise RefusedRequest(Error.INVALID_REPLICATION_FACTOR, f"{replication_factor} is not positive")
    if replication_factor > brokers:
        reason = f"{replication_factor} replicas need as many brokers, but only {brokers} are registered"
        raise RefusedRequest(Error.INVALID_REPLICATION_FACTOR, reason)


def check_assignments(
    assignments: Sequence[tuple[BrokerId, ...]], brokers: Mapping[BrokerId, BrokerRegistration]
) -> None:
    """Refuse replicas of a new topic that an administrator may not ask for (``ReplicationControlManager``).

    Raises:
        RefusedRequest: INVALID_REPLICA_ASSIGNMENT: a list cannot be (see :func:`check_replicas`), is of another length
            than the first, or has no broker that could lead.
    """
    for replicas in assignments:
        check_replicas(replicas, brokers)
        if len(replicas) != len(assignments[0]):
            raise _no_assignment(f"{list(replicas)} and {list(assignments[0])} have different lengths")
        if not any(brokers[broker].is_active for broker in replicas):
            raise _no_assignment(f"all brokers of {list(replicas)} are fenced or shutting down")


def check_replicas(replicas: tuple[BrokerId, ...], brokers: Mapping[BrokerId, BrokerRegistration]) -> None:
    """Refuse a list of replicas that cannot be.

    Raises:
        RefusedRequest: INVALID_REPLICA_ASSIGNMENT: it is empty, names a broker twice, or one that is not registered.
    """
    if not replicas:
        raise _no_assignment("a replica list is empty")
    strangers = [broker for broker in replicas if broker not in brokers]
    if strangers:
        raise _no_assignment(f"broker {strangers[0]} is not registered")
    if len(set(replicas)) < len(replicas):
        raise _no_assignment(f"{list(replicas)} names a broker twice")


def _no_assignment(reason: str) -> RefusedRequest:
    return RefusedRequest(Error.INVALID_REPLICA_ASSIGNMENT, reason)


def place(brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, random: JavaRandom) -> Assignments:
    """Place the replicas of some partitions in stripes over the racks (``StripedReplicaPlacer``).

    Departs from Kafka: racks draw their random numbers in the order of their names, in Kafka in that of a hash map.

    Raises:
        RefusedRequest: INVALID_REPLICATION_FACTOR: it is not between 1 and the number of brokers, or all are fenced.
    """
    usable = sorted(brokers, key=lambda broker: broker.broker)
    check_replication_factor(replication_factor, len(usable))
    if all(broker.fenced for broker in usable):
        raise RefusedRequest(Error.INVALID_REPLICATION_FACTOR, "all brokers are fenced")
    stripes = _Stripes(usable, random)
    return tuple(stripes.next(replication_factor) for _ in range(partitions))


class _Ring:
    """Brokers of one rack that are alike, taken in turn; each epoch begins one further than the one before."""

    def __init__(self, brokers: Iterable[BrokerId], random: JavaRandom) -> None:
        self.brokers = list(brokers)
        self._offset = random.next_int(len(self.brokers)) if self.brokers else 0
        self._taken = 0
        self._epoch = 0

    def next(self, epoch: int) -> BrokerId | None:
        """Take the next broker that this epoch has not had; None: it has had all."""
        if epoch != self._epoch and self.brokers:
            self._epoch, self._taken = epoch, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._taken == len(self.brokers):
            return None
        self._taken += 1
        return self.brokers[(self._offset + self._taken - 1) % len(self.brokers)]


class _Rack:
    """One rack. Fenced brokers come last, and never lead."""

    def __init__(self, brokers: Sequence[UsableBroker], random: JavaRandom) -> None:
        self._fenced = _Ring((broker.broker for broker in brokers if broker.fenced), random)
        self._unfenced = _Ring((broker.broker for broker in brokers if not broker.fenced), random)

    def next_leader(self, epoch: int) -> BrokerId | None:
        return self._unfenced.next(epoch)

    def next_follower(self, epoch: int) -> BrokerId | None:
        unfenced = self._unfenced.next(epoch)
        return self._fenced.next(epoch) if unfenced is None else unfenced

    def shuffle(self, random: JavaRandom) -> None:
        random.shuffle(self._fenced.brokers)
        random.shuffle(self._unfenced.brokers)


class _Stripes:
    """All racks in a row. An epoch is one partition; each begins one rack further than the one before."""

    def __init__(self, brokers: Sequence[UsableBroker], random: JavaRandom) -> None:
        by_rack: dict[str | None, list[UsableBroker]] = {}
        for broker in brokers:
            by_rack.setdefault(broker.rack, []).append(broker)
        # Brokers without a rack share one, before all others.
        self._racks = [
            _Rack(by_rack[name], random) for name in sorted(by_rack, key=lambda rack: (rack is not None, rack or ""))
        ]
        self._row = list(self._racks)
        self._offset = random.next_int(len(self._racks))
        self._unfenced = sum(not broker.fenced for broker in brokers)
        self._epoch = 0
        self._random = random

    def next(self, replication_factor: int) -> tuple[BrokerId, ...]:
        """Give the replicas of the next partition: a leader, then one broker a rack from the offset on."""
        if self._epoch == self._unfenced > 1:
            self._shuffle()
        racks, rank = len(self._row), self._offset % len(self._row)
        leads, leader = self._leader(rank)
        replicas = [leader]
        skipped = False
        while len(replicas) < replication_factor:
            if rank == leads and not skipped:
                skipped = True  # the rack of the leader waits until every other one has had its turn
            else:
                follower = self._row[rank].next_follower(self._epoch)
                replicas += [] if follower is None else [follower]
            rank = (rank + 1) % racks
        self._epoch += 1
        self._offset = (self._offset + 1) % racks
        return tuple(replicas)

    def _leader(self, rank: int) -> tuple[int, BrokerId]:
        """Find the first rack with an unfenced broker; there is one, for an epoch has had none yet."""
        while (leader := self._row[rank].next_leader(self._epoch)) is None:
            rank = (rank + 1) % len(self._row)
        return rank, leader

    def _shuffle(self) -> None:
        """Start over in another order once every broker has led, so that the pairs of brokers differ."""
        self._random.shuffle(self._row)
        for rack in self._racks:
            rack.shuffle(self._random)
        self._epoch = 0


# Placement of a new topic's replicas with ZooKeeper (``AdminUtils``): round robin with a growing shift. Pure.


def assign_replicas(
    brokers: Iterable[UsableBroker], partitions: int, replication_factor: int, *, start: int = 0, shift: int = 0
) -> Assignments:
    """Let the brokers take turns to lead; the followers of one leader differ from round to round.

    Racks count if every broker has one: no rack gets a second replica before each has its first. Without racks every
    broker counts as a rack of its own, which comes to the same formula. Kafka draws ``start`` and ``shift``.

    Raises:
        RefusedRequest: INVALID_REPLICATION_FACTOR.
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


# Java's use of random bits: ``Random.nextInt(bound)`` and ``Collections.shuffle``. The bits are the caller's.


_INT_LIMIT: Final = 1 << 31


class JavaRandom:
    """``java.util.Random`` over given bits, so that the same bits give Kafka's own choices.

    Args:
        bits: gives a whole number of that many random bits; ``random.Random(seed).getrandbits`` does.
    """

    def __init__(self, bits: Callable[[int], int]) -> None:
        self._bits = bits

    def next_int(self, bound: int) -> int:
        """Give 0 to ``bound`` - 1, equally distributed."""
        drawn = self._bits(31)
        if bound & (bound - 1) == 0:
            return bound * drawn >> 31  # the high bits are the better ones
        # What lies beyond the last multiple of the bound would favour small numbers.
        while drawn - drawn % bound + bound - 1 >= _INT_LIMIT:
            drawn = self._bits(31)
        return drawn % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Bring ``items`` into a random order, in place."""
        for size in range(len(items), 1, -1):
            other = self.next_int(size)
            items[size - 1], items[other] = items[other], items[size - 1]
