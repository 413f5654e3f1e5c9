"""Planned work on a broker, as it is announced: a lease, which holds until its end unless it is renewed or ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.contracts.observations import Observation, require

# However it is configured, no lease lasts longer: it would hide what goes wrong with the broker for too long.
LONGEST_LEASE: Final = Micros(7 * 86_400_000_000)
# Ends the reason of a lease whose command has ended, and which holds on for a short tail. It is stored with the reason,
# for people to read; a field of its own would be another format, for one line of text.
IN_ITS_TAIL: Final = " (the command has ended)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceObserved(Observation):
    """Planned work on a broker was announced, extended, renewed or ended. Its times are of that moment.

    Attributes:
        broker: the broker that the work may take down.
        lease: identifies the announcement; extending, renewing and ending it repeat this.
        lease_until: when it lapses; not after this observation: it is ended, for good.
        is_renewal: a running command still holds the lease; such an extension is no event.
        why: the reason, for people.
        announced_by: who, for people: user and host.
    """

    kind: ClassVar[str] = "maintenance"
    format: ClassVar[int] = 3

    broker: BrokerId
    lease: str
    lease_until: Micros
    is_renewal: bool = False
    why: str
    announced_by: str = ""

    def __post_init__(self) -> None:
        """Refuse a lease without identity, or one that lasts too long."""
        Observation.__post_init__(self)
        require(bool(self.lease), "lease is empty")
        require(self.lease_until >= 0, f"lease_until is negative: {self.lease_until}")
        require(self.lease_until - self.occurred_not_after <= LONGEST_LEASE, "a lease lasts at most 7 days")

    @property
    def is_end(self) -> bool:
        """True if it ends the lease."""
        return self.lease_until <= self.occurred_not_after
