"""A small exact machine of KRaft's replication: fencing, election from ISR and ELR, catching up (KIP-497, KIP-966)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from streaming.contracts.identifiers import NO_LEADER


@dataclass(frozen=True, slots=True)
class Replicated:
    """One partition, as the controller has it."""

    replicas: tuple[int, ...]
    minimum: int
    isr: frozenset[int]
    leader: int
    elr: frozenset[int] = frozenset()
    last_known: tuple[int, ...] = ()
    is_diskless: bool = False
    """Any broker that is up reads and writes it, whatever its ISR."""

    @property
    def is_available(self) -> bool:
        return self.is_diskless or (self.leader != NO_LEADER and len(self.isr) >= self.minimum)

    def elected(self, up: frozenset[int], *, has_elr: bool) -> Replicated:
        """Elect: the leader if it may go on, else an in-sync replica, else an eligible one, else the last leader."""
        if self.leader in self.isr & up:
            return self
        for candidates in (self.isr, self.elr if has_elr and not self.isr else frozenset()):
            for replica in self.replicas:
                if replica in candidates & up:
                    return replace(
                        self,
                        leader=replica,
                        isr=self.isr or frozenset({replica}),
                        elr=self.elr - {replica},
                        last_known=(),
                    )
        if has_elr and not self.isr and not self.elr and len(self.last_known) == 1 and self.last_known[0] in up:
            return replace(self, leader=self.last_known[0], isr=frozenset(self.last_known), last_known=())
        return replace(self, leader=NO_LEADER)

    def with_isr(self, isr: frozenset[int], *, has_elr: bool) -> Replicated:
        eligible = (self.elr | self.isr) - isr if has_elr and len(isr) < self.minimum else frozenset()
        return replace(self, isr=isr, elr=eligible)

    def without(self, broker: int, up: frozenset[int], *, has_elr: bool) -> Replicated:
        """Fence a broker; without ELR the last in-sync replica stays in the ISR, and nobody leads."""
        if broker not in self.isr:
            return self
        if len(self.isr) == 1 and not has_elr:
            return replace(self, leader=NO_LEADER)
        shrunk = self.with_isr(self.isr - {broker}, has_elr=has_elr)
        after = shrunk.elected(up, has_elr=has_elr)
        is_first = after.leader == NO_LEADER and not after.isr and self.leader != NO_LEADER
        return replace(after, last_known=(self.leader,)) if is_first else after

    def caught_up(self, broker: int, *, has_elr: bool) -> Replicated:
        if self.leader == NO_LEADER or broker not in self.replicas:
            return self
        return self.with_isr(self.isr | {broker}, has_elr=has_elr)


@dataclass(frozen=True, slots=True)
class World:
    """A cluster; voters are None where nobody reports them."""

    brokers: tuple[int, ...]
    up: frozenset[int]
    partitions: tuple[Replicated, ...]
    has_elr: bool
    voters: tuple[int, ...] | None = None
    following: frozenset[int] = frozenset()

    def stopped(self, broker: int) -> World:
        up = self.up - {broker}
        partitions = tuple(each.without(broker, up, has_elr=self.has_elr) for each in self.partitions)
        return replace(self, up=up, partitions=partitions, following=self.following - {broker})

    def started(self, broker: int) -> World:
        up = self.up | {broker}
        partitions = tuple(each.elected(up, has_elr=self.has_elr) for each in self.partitions)
        return replace(self, up=up, partitions=partitions)

    def caught_up(self, broker: int) -> World:
        partitions = tuple(each.caught_up(broker, has_elr=self.has_elr) for each in self.partitions)
        following = self.following | ({broker} & set(self.voters or ()))
        return replace(self, partitions=partitions, following=following)

    def restarted(self, broker: int) -> World:
        return self.stopped(broker).started(broker).caught_up(broker)

    def whole(self) -> World:
        """The same cluster with everybody up and in sync: what is lost there is lost by configuration."""
        partitions = tuple(
            Replicated(
                each.replicas, each.minimum, frozenset(each.replicas), each.replicas[0], is_diskless=each.is_diskless
            )
            for each in self.partitions
        )
        voters = frozenset(self.voters or ())
        return replace(self, up=frozenset(self.brokers), partitions=partitions, following=voters)

    def has_quorum(self) -> bool:
        return self.voters is None or len(self.following & set(self.voters)) > len(self.voters) // 2
