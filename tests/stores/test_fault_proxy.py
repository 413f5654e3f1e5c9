"""How the proxy frames what it passes on: bodies of a length that is not told beforehand, in both directions."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from tests.stores.fault_proxy import fault_proxy
from tests.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKED: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Two: a\r\nX-Two: b\r\n\r\n"
ANSWER: Final = CHUNKED + b"5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n"


@contextmanager
def listening(answer: bytes, *, ends: bytes) -> Iterator[tuple[Store, list[bytes]]]:
    """Give a server, and what it has received of each request: all up to ``ends``, after which it answers."""
    received: list[bytes] = []

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                text = b""
                while not text.endswith(ends):
                    text += connection.recv(1 << 16)
                received.append(text)
                connection.sendall(answer)

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        yield Store(url="s3://any", port=server.getsockname()[1]), received
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_chunks_are_passed_on_in_both_directions_by_a_connection_that_stays_open() -> None:
    pieces = [b"a" * 100_000, b"b", b"c" * 70_000]
    with listening(ANSWER, ends=b"\r\n0\r\n\r\n") as (store, received), fault_proxy(store) as proxy:
        with closing(http.client.HTTPConnection("127.0.0.1", proxy.store.port, timeout=30)) as client:
            for _ in range(2):
                client.request("PUT", "/a?b=c%2Fd", body=iter(pieces), headers={"If-None-Match": "*"})
                answer = client.getresponse()
                assert (answer.status, answer.read()) == (200, b"firstsecond")
                assert answer.headers.get_all("X-Two") == ["a", "b"]
                assert client.sock is not None
        for text in received:
            head, _, body = text.partition(b"\r\n\r\n")
            assert head.startswith(b"PUT /a?b=c%2Fd HTTP/1.1\r\n")
            assert f"Host: 127.0.0.1:{proxy.store.port}".encode() in head.split(b"\r\n")
            assert b"If-None-Match: *" in head
            assert joined(body) == b"".join(pieces)
    assert len(received) == 2


def joined(chunks: bytes) -> bytes:
    """Return the body that was sent in chunks."""
    whole = b""
    while chunks:
        size, _, chunks = chunks.partition(b"\r\n")
        whole, chunks = whole + chunks[: int(size, 16)], chunks[int(size, 16) + 2 :]
    return whole


def test_a_store_that_is_gone_looks_like_a_network_that_is() -> None:
    with listening(b"", ends=b"\r\n\r\n") as (store, received), fault_proxy(store) as proxy:
        client = http.client.HTTPConnection("127.0.0.1", proxy.store.port, timeout=30)
        client.request("GET", "/a")
        with pytest.raises(http.client.RemoteDisconnected):
            client.getresponse()
        client.close()
    assert len(received) == 1
