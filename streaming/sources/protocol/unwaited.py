"""One request on an open connection, without waiting: its bytes go out and come in as far as the socket allows."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.sources.protocol.connection import SIZE
from streaming.sources.source import monotonic

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.sources.protocol.connection import Connection

_CHUNK: Final = 1 << 16
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Call(NamedTuple):
    """A request, the class of its response, and what is read of that: the arguments of ``Connection.call``."""

    request: Any
    response: Any
    read: Callable[[Any], Any]


class Exchange:
    """A request that is being sent and answered.

    Attributes:
        asked: when it was begun, by the monotonic clock.
        moved: when bytes came in last; until then, when it was begun.
        is_answered: whether the response is there.
        value: what is read of the response.

    Args:
        connection: open, and without another request; its socket does not block.
        call: the request.

    Raises:
        ConnectionRefused: from every method: the node has closed the connection, or its response cannot be decoded.
    """

    def __init__(self, connection: Connection, call: Call) -> None:
        self._connection, self._call = connection, call
        self._left = memoryview(connection.framed(call.request))
        self._data = bytearray()
        self.asked = self.moved = monotonic()
        self.is_answered, self.value = False, None
        connection.peer.count(requests=1, sent_bytes=len(self._left))
        self._send()

    @property
    def is_sent(self) -> bool:
        """True if all bytes are sent."""
        return not self._left

    def advance(self) -> None:
        """Send and receive what the socket allows now."""
        self._send()
        self._receive()

    def _send(self) -> None:
        try:
            while self._left:
                self._left = self._left[self._connection.socket.send(self._left) :]
        except _NOT_NOW:
            pass
        except OSError as error:
            raise self._connection.closed_by_node(error) from None

    def _receive(self) -> None:
        """Receive until nothing is left: what TLS has decrypted no selector shows."""
        size = None
        while size is None or len(self._data) < SIZE.size + size:
            try:
                chunk = self._connection.socket.recv(_CHUNK)
            except _NOT_NOW:
                return
            except OSError as error:
                raise self._connection.closed_by_node(error) from None
            if not chunk:
                raise self._connection.closed_by_node("end of stream")
            self._data += chunk
            self.moved = monotonic()
            if len(self._data) >= SIZE.size:
                size = self._connection.size_in(bytes(self._data[: SIZE.size]))
        self._connection.peer.count(received_bytes=len(self._data))
        call, data = self._call, bytes(self._data[SIZE.size : SIZE.size + size])
        self.value = self._connection.decoded(data, call.request, call.response, call.read)
        self.is_answered = True


def is_closed(connection: Connection) -> bool:
    """Return whether a node has closed a connection on which nothing is asked, or has sent anything on it."""
    try:
        connection.socket.recv(1)
    except _NOT_NOW:  # of TLS 1.3 there may be tickets, which are not for us
        return False
    except OSError:
        return True
    return True
