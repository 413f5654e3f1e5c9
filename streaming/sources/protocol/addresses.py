"""The address of a node of Kafka, and how it is written."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streaming.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_SERVER: Final = re.compile(r"^(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s\[\]]+)):(?P<port>\d{1,5})$")


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The address of a node; an IPv6 address is written in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(bootstrap_servers: str) -> tuple[Address, ...]:
    """Parse ``host:port,host:port``.

    Raises:
        ConfigurationError: it is empty, or an entry has no port.
    """
    entries = filter(None, (part.strip() for part in bootstrap_servers.split(",")))
    addresses = tuple(parse_address(entry, "cluster.bootstrap_servers") for entry in entries)
    if not addresses:
        raise ConfigurationError(
            "cluster.bootstrap_servers is empty; name a broker as host:port (or --bootstrap-server)"
        )
    return addresses


def parse_address(entry: str, key: str) -> Address:
    """Parse ``host:port`` or ``[IPv6 address]:port``.

    Raises:
        ConfigurationError: it is neither; the sentence names the key.
    """
    match = _SERVER.match(entry)
    if match is None or not 0 < int(match["port"]) < 1 << 16:
        raise ConfigurationError(f"{key} has {entry!r}; write host:port, separated by commas")
    return Address(match["six"] or match["host"], int(match["port"]))


# Counts of connections by the address that they were opened to. Knows no socket.


MAX_PEERS: Final = 2_000
"""More addresses than a cluster has nodes: those of one whose nodes change theirs at each start would grow for ever."""

COUNTS: Final = ("requests", "sent_bytes", "received_bytes", "errors", "throttled_ms")


@dataclass(slots=True)
class Peer:
    """One address.

    Attributes:
        certificate_expires_at: of the certificates that it showed last the first to end, seconds since 1970; None if
            it showed none.
        requests: that were sent.
        sent_bytes: of Kafka's protocol, without TLS and TCP.
        received_bytes: the same, of complete responses.
        errors: connections and requests that failed, and logins that were refused.
        throttled_ms: for how long the node was to read nothing of us, because of a quota, as its responses say.
    """

    certificate_expires_at: float | None = None
    requests: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    errors: int = 0
    throttled_ms: int = 0
    _counting: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, **more: int) -> None:
        """Add to the counts, by name; connections of several threads share a peer."""
        with self._counting:
            for name, count in more.items():
                setattr(self, name, getattr(self, name) + count)


class Peers:
    """Every address that was connected to. Thread-safe."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}
        self._opening = threading.Lock()

    def at(self, address: Address) -> Peer:
        """Return the peer at an address; beyond a limit all others share one, ``other``."""
        return self._of_name(str(address))

    def _of_name(self, name: str) -> Peer:
        with self._opening:
            is_new = name not in self._peers
            return self._peers.setdefault("other" if is_new and len(self._peers) >= MAX_PEERS else name, Peer())

    def all(self) -> dict[str, Peer]:
        """Return every peer by address."""
        with self._opening:
            return dict(self._peers)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return what was counted, by address."""
        return {address: {name: getattr(peer, name) for name in COUNTS} for address, peer in self.all().items()}

    def add(self, counts: Mapping[str, Mapping[str, int]], *, before: Mapping[str, Mapping[str, int]]) -> None:
        """Add what others have counted, another process for instance, since they had counted so much."""
        for address, counted in counts.items():
            earlier = before.get(address, {})
            self._of_name(address).count(**{name: count - earlier.get(name, 0) for name, count in counted.items()})
