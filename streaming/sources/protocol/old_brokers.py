"""Brokers older than Kafka 2.4, whose requests have other forms than ours; librdkafka still speaks to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.metadata import ApiVersionsRequest

from streaming.sources.protocol.connection import CannotServe, Connection
from streaming.sources.protocol.peers import Peers

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.sources.address import Address
    from streaming.sources.protocol.connection import Dial, T
    from streaming.sources.protocol.security import Security

_UNSUPPORTED_VERSION: Final = b"\x00\x23"
_ERROR: Final = slice(4, 6)  # behind the correlation id; the rest differs between versions (KIP-511)


class TooOld(CannotServe):
    """The broker does not support ApiVersions 3 (KIP-511)."""


class RecentConnection(Connection):
    """A connection to a broker of Kafka 2.4 or newer.

    Raises:
        TooOld: when it is created, for any other broker.
    """

    def _decoded(self, data: bytes, request: Any, response: Any, read: Callable[[Any], T]) -> T:  # noqa: ANN401 - as of the base class
        if request.API_KEY == ApiVersionsRequest.API_KEY and data[_ERROR] == _UNSUPPORTED_VERSION:
            raise TooOld(f"{self.address} is older than Kafka 2.4: it does not support ApiVersions 3")
        return super()._decoded(data, request, response, read)


def recent_dialer(security: Security, peers: Peers | None = None) -> Dial:
    """Return a dialer for one set of credentials, which notes what it sees of each address."""
    seen = peers or Peers()

    def dial(address: Address, *, response_seconds: float) -> Connection:
        return RecentConnection(address, security, response_seconds=response_seconds, peer=seen.at(address))

    return dial
