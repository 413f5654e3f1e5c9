"""Requests and responses whose bytes are written and read here: for what is asked of every partition, again and again.

In the flexible versions (KIP-482). They go over a ``Connection`` as kafka-python's messages do.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from streaming.errors import Quarantined
from streaming.sources.protocol.primitives import INT32, ByteReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from streaming.sources.protocol.connection import Connection

T = TypeVar("T")
_HEADER: Final = struct.Struct(">hhi")  # key, version, correlation id
_LOW_BITS: Final = 0x7F


class RawRequest:
    """A request of one version, with its body as bytes."""

    def __init__(self, api_key: int, version: int, body: bytes) -> None:
        self.API_KEY, self.API_VERSION = api_key, version
        self._body, self._header = body, b""

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        """Set the header, of version 2."""
        name = client_id.encode()
        fixed = _HEADER.pack(self.API_KEY, self.API_VERSION, correlation_id)
        self._header = fixed + struct.pack(">h", len(name)) + name + b"\0"

    def encode(self, *, header: bool, framed: bool) -> bytes:  # noqa: ARG002 - the signature of kafka-python's messages
        """Return the frame."""
        return INT32.pack(len(self._header) + len(self._body)) + self._header + self._body


class RawResponse(Generic[T]):
    """What decodes the body of a response; ``decode`` returns its header, of version 1, and the ``value``.

    Args:
        read: reads the body, up to the tagged fields at its end.
    """

    def __init__(self, read: Callable[[ByteReader], T]) -> None:
        self._read = read

    def value_of(self, connection: Connection, request: RawRequest) -> T:
        """Send a request, and return the value of its response.

        Raises:
            ConnectionRefused: the node does not respond, or not so.
        """

        def value(response: Any) -> T:  # noqa: ANN401 - what ``decode`` returns
            return response.value  # type: ignore[no-any-return]

        return connection.call(request, self, value)

    def decode(self, data: bytes, *, version: int, header: bool) -> Any:  # noqa: ANN401, ARG002 - as kafka-python's
        """Decode a response with its header.

        Raises:
            ValueError: the bytes are no such response.
        """
        reader = ByteReader(data)
        try:
            head = SimpleNamespace(correlation_id=reader.number(INT32))
            reader.tags()
            return SimpleNamespace(header=head, value=self._read(reader))
        except Quarantined as error:
            raise ValueError(str(error)) from None


def unsigned_varint(value: int) -> bytes:
    """Encode seven bits per byte, the lowest first."""
    encoded = bytearray()
    while value > _LOW_BITS:
        encoded.append(value & _LOW_BITS | _LOW_BITS + 1)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_string(text: str) -> bytes:
    """Encode a string of a flexible version."""
    data = text.encode()
    return unsigned_varint(len(data) + 1) + data


def compact_array(elements: Iterable[bytes]) -> bytes:
    """Encode an array of elements that are encoded."""
    listed = list(elements)
    return unsigned_varint(len(listed) + 1) + b"".join(listed)
