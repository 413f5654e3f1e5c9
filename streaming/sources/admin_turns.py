"""In which order the addresses of a cluster's brokers are asked. Pure."""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming.sources.address import Address


class Turns:
    """Begins with another address each time that the first one is asked.

    Attributes:
        advertised: the brokers of the cluster, which may not be reached.

    Args:
        bootstrap: the first ones to ask, and those to ask where what brokers advertise is not reached.
    """

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self.advertised: list[Address] = []
        self._bootstrap = list(bootstrap)
        self._turn = 0

    def next(self, connected: Address | None, *, is_asked: bool) -> list[Address]:
        """Return each address once, but not the one that is connected.

        Args:
            connected: a broker.
            is_asked: the first one is; otherwise they are in reserve.
        """
        self._turn += is_asked
        of_both = (_rotated(addresses, self._turn) for addresses in (self.advertised, self._bootstrap))
        alternating = filter(None, chain.from_iterable(zip_longest(*of_both)))
        return [address for address in dict.fromkeys(alternating) if address != connected]


def _rotated(addresses: list[Address], by: int) -> list[Address]:
    start = by % len(addresses) if addresses else 0
    return addresses[start:] + addresses[:start]
