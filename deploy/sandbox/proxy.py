"""A TCP proxy on the replication links: the link of one follower to one leader can be held, delayed or throttled.

Brokers advertise the proxy's port for their inter-broker listener; clients use another listener and are not affected.
The client id of its first request identifies a follower. Faults apply to the leader's responses only: requests to the
controller do not pass the proxy, so the follower stays registered and only lags.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from deploy.sandbox.properties import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    Link = tuple[int, int]

_CHUNK: Final = 64 * 1024
_HEADER: Final = struct.Struct(">ihhih")  # size, api key, api version, correlation id, length of the client id
_FETCHER: Final = re.compile(rb"broker-(\d+)-fetcher-")


@dataclass(frozen=True, slots=True)
class LinkFault:
    """The fault of a link: held, each chunk delayed by ``seconds``, or throttled to ``bytes_per_second``."""

    held: bool = False
    seconds: float = 0.0
    bytes_per_second: float = float("inf")


class ReplicationProxy:
    """``routes``: leader to (advertised port, the broker's own port). Runs in a thread of its own until ``close``."""

    def __init__(self, routes: Mapping[int, tuple[int, int]]) -> None:
        self._routes = dict(routes)
        self._faults: dict[Link, LinkFault] = {}
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="replication-proxy", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    def hold(self, leader: int, follower: int) -> None:
        """Hold everything from a leader to a follower; the connection stays open."""
        self._set(leader, follower, LinkFault(held=True))

    def delay(self, leader: int, follower: int, seconds: float) -> None:
        """Delay each chunk."""
        self._set(leader, follower, LinkFault(seconds=seconds))

    def limit(self, leader: int, follower: int, bytes_per_second: float) -> None:
        """Throttle a link."""
        self._set(leader, follower, LinkFault(bytes_per_second=bytes_per_second))

    def release(self, leader: int, follower: int) -> None:
        """Remove the fault of a link; held data is forwarded now."""
        self._set(leader, follower, LinkFault())

    def release_all(self) -> None:
        """Remove the faults of all links."""
        for leader, follower in list(self._faults):
            self.release(leader, follower)

    def close(self) -> None:
        """Close all links and stop."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _set(self, leader: int, follower: int, fault: LinkFault) -> None:
        self._faults[leader, follower] = fault
        self._loop.call_soon_threadsafe(self._changed.set)

    async def _listen(self) -> None:
        self._servers = [
            await asyncio.start_server(partial(self._serve, leader, target), HOST, advertised)
            for leader, (advertised, target) in self._routes.items()
        ]

    async def _serve(
        self, leader: int, target: int, follower_reader: asyncio.StreamReader, follower_writer: asyncio.StreamWriter
    ) -> None:
        """Forward one connection until either side closes it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio calls this in a task
        self._connections.add(task)
        writers = [follower_writer]
        try:
            first, follower = await _introduction(follower_reader)
            leader_reader, leader_writer = await asyncio.open_connection(HOST, target)
            writers.append(leader_writer)
            leader_writer.write(first)
            pumps = [
                asyncio.ensure_future(_copy(follower_reader, leader_writer)),
                asyncio.ensure_future(self._forward_responses(leader_reader, follower_writer, (leader, follower))),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side or the proxy has closed: the other side is closed below
        finally:
            self._connections.discard(task)
            for writer in writers:
                with suppress(OSError):
                    writer.close()

    async def _forward_responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
        """Forward a leader's responses, subject to the fault of the link."""
        while chunk := await reader.read(_CHUNK):
            await self._pass(len(chunk), link)
            writer.write(chunk)
            await writer.drain()

    async def _pass(self, size: int, link: Link) -> None:
        fault = self._faults.get(link, LinkFault())
        await asyncio.sleep(fault.seconds + size / fault.bytes_per_second)
        while self._faults.get(link, LinkFault()).held:
            self._changed.clear()
            await self._changed.wait()

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)


async def _introduction(reader: asyncio.StreamReader) -> tuple[bytes, int]:
    """Read the header of the first request; return it and the id of the follower in it (0: not a fetcher)."""
    head = await reader.readexactly(_HEADER.size)
    client_id = await reader.readexactly(max(0, _HEADER.unpack(head)[-1]))
    fetcher = _FETCHER.match(client_id)
    return head + client_id, int(fetcher[1]) if fetcher else 0


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
