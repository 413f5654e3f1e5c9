"""What connections saw of each address that they were opened to. Knows no socket."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streaming.sources.address import Address

MAX_PEERS: Final = 2_000
"""More addresses than a cluster has nodes: those of one whose nodes change theirs at each start would grow for ever."""


@dataclass(slots=True)
class Peer:
    """One address. ``certificate_expires_at`` is in seconds since 1970, None where no certificate was shown."""

    certificate_expires_at: float | None = None


class Peers:
    """Every address that was connected to. Thread-safe."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self._opening = threading.Lock()

    def at(self, address: Address) -> Peer:
        """Return the peer at an address; beyond a limit all others share one, ``other``."""
        name = str(address)
        with self._opening:
            is_new = name not in self._peers
            return self._peers.setdefault("other" if is_new and len(self._peers) >= MAX_PEERS else name, Peer())
