"""The address of a node of Kafka, and how it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from streaming.errors import ConfigurationError

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
            "cluster.bootstrap_servers is empty; name a broker as host:port (or --bootstrap-servers)"
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
