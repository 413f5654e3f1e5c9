"""Probes of the listeners of nodes: a kept connection for each request, one that is idle, and new ones all the time.

A connection of its own for each request, because a node answers the requests of one connection in turn: while one waits
for the controller, those behind it wait, too. Everything happens in one thread with its own event loop.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from tests.listeners.requests import QUORUM, Asked, Content, Read

EVERY_SECONDS: Final = 0.2
SILENT_AFTER_SECONDS: Final = 0.6
CONNECT_SECONDS: Final = 1.0
NEW, IDLE = "new connection", "idle connection"
_TICK_SECONDS: Final = 0.05
_SIZE: Final = struct.Struct(">i")
_CORRELATION: Final = slice(8, 12)  # of a frame, behind its size, key and version


class Seen(NamedTuple):
    """What a probe met; ``at`` in microseconds since 1970, of silence when the question was sent."""

    at: int
    node: int
    probe: str
    how: str
    content: Content
    moving: Mapping[str, Any]


class Recorder:
    """Probes nodes from its creation until ``close``.

    Args:
        nodes: address and questions of each node.
        every_seconds: pause from one question to the next.
    """

    def __init__(
        self, nodes: Mapping[int, tuple[tuple[str, int], Sequence[Asked]]], every_seconds: float = EVERY_SECONDS
    ) -> None:
        self.seen: list[Seen] = []
        self.longest_stall = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recorder", daemon=True)
        self._thread.start()
        self._tasks = [asyncio.run_coroutine_threadsafe(self._measure_stalls(), self._loop)]
        self._tasks += [
            asyncio.run_coroutine_threadsafe(work, self._loop)
            for node, (address, questions) in nodes.items()
            for work in (
                *(Probe(self.seen, node, address, question).run(every_seconds) for question in (*questions, None)),
                _new_connections(self.seen, node, address, NEW, questions[0], every_seconds),
                *(
                    _new_connections(self.seen, node, address, f"new {question.name}", question, 5 * every_seconds)
                    for question in questions
                    if question.name == QUORUM
                ),
            )
        ]

    def close(self) -> None:
        """Stop probing, and say why if a probe has failed by itself."""
        failures = [task.exception() for task in self._tasks if task.done()]
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for failure in failures:
            if failure is not None:
                raise failure

    async def _measure_stalls(self) -> None:
        """Note how late this machine runs what is due: what seemed silent meanwhile may have been the recorder."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(_TICK_SECONDS)
            self.longest_stall = max(self.longest_stall, time.monotonic() - began - _TICK_SECONDS)

    async def _shut(self) -> None:
        """Cancel everything, and let the transports close."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.05)


class _Wire(asyncio.Protocol):
    """One connection: frames of answers come in, and how it ended."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = asyncio.get_running_loop().create_future()
        self._data = bytearray()
        self._is_finished = False

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._data)
            if len(self._data) < _SIZE.size + size:
                return
            self.answers.put_nowait(bytes(self._data[_SIZE.size : _SIZE.size + size]))
            del self._data[: _SIZE.size + size]

    def eof_received(self) -> bool:
        self._is_finished = True
        return False  # closes

    def connection_lost(self, error: Exception | None) -> None:
        how = "closed" if self._is_finished or error is None else "reset"
        if error is not None and not isinstance(error, ConnectionResetError):
            how = "timed out"  # the kernel gave up what was not acknowledged
        if not self.ended.done():
            self.ended.set_result((now(), how))
        self.answers.put_nowait(None)


class Probe:
    """One kept connection to a node, opened again when it has ended, with one question on it, or none."""

    def __init__(self, seen: list[Seen], node: int, address: tuple[str, int], asked: Asked | None) -> None:
        self._seen, self._node, self._address, self._asked = seen, node, address, asked
        self._name = asked.name if asked else IDLE
        self._wire: _Wire | None = None
        self._transport: asyncio.Transport | None = None
        self._correlation = 0
        self._last: tuple[bytes, Read] | None = None

    async def run(self, every_seconds: float) -> None:
        """Ask again and again."""
        while True:
            began = time.monotonic()
            if await self._is_open():
                await self._ask()
            await asyncio.sleep(max(0.01, every_seconds - (time.monotonic() - began)))

    async def _is_open(self) -> bool:
        if self._wire is not None and not self._wire.ended.done():
            return True
        at = now()
        how, opened = await connect(self._address)
        if opened is None:
            self._note(at, how)
            return False
        self._transport, self._wire = opened
        if self._asked is None:
            self._note(now(), "open")
            self._wire.ended.add_done_callback(lambda ended: self._note(*ended.result()))
        return True

    async def _ask(self) -> None:
        wire, transport, asked = self._wire, self._transport, self._asked
        if asked is None or wire is None or transport is None:
            return
        self._correlation += 1
        frame = bytearray(asked.frame)
        frame[_CORRELATION] = _SIZE.pack(self._correlation)
        at = now()
        transport.write(bytes(frame))
        answer = asyncio.ensure_future(wire.answers.get())
        done, _ = await asyncio.wait({answer}, timeout=SILENT_AFTER_SECONDS)
        if not done:
            self._note(at, "silent")
        data = await answer
        if data is None:
            self._note(*wire.ended.result())
        else:
            read = self._read(asked, data)
            self._note(now(), "answered", read.content, read.moving)

    def _read(self, asked: Asked, data: bytes) -> Read:
        """Decode an answer, unless its bytes behind the correlation id are those of the one before."""
        if self._last is None or self._last[0] != data[4:]:
            self._last = data[4:], asked.read(data)
        return self._last[1]

    def _note(self, at: int, how: str, content: Content | None = None, moving: Mapping[str, Any] | None = None) -> None:
        self._seen.append(Seen(at, self._node, self._name, how, content or {}, moving or {}))


async def connect(address: tuple[str, int]) -> tuple[str, tuple[asyncio.Transport, _Wire] | None]:
    """Try to connect; return how it went, and the connection."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return "accepted", await asyncio.get_running_loop().create_connection(_Wire, *address)
    except ConnectionRefusedError:
        return "refused", None
    except ConnectionResetError:
        return "reset", None
    except (TimeoutError, OSError):
        return "unreachable", None


async def _new_connections(  # noqa: PLR0913, PLR0917 - what a probe is made of
    seen: list[Seen], node: int, address: tuple[str, int], name: str, asked: Asked, every_seconds: float
) -> None:
    """Open one connection after the other, and ask one question on each."""
    while True:
        began, at = time.monotonic(), now()
        data: bytes | None = None
        how, opened = await connect(address)
        if opened is not None:
            transport, wire = opened
            transport.write(asked.frame)
            try:
                async with asyncio.timeout(SILENT_AFTER_SECONDS):
                    data = await wire.answers.get()
                how = "answered" if data is not None else f"accepted, {wire.ended.result()[1]}"
            except TimeoutError:
                how = "accepted, silent"
            with suppress(OSError):
                transport.close()
        content = asked.read(data).content if data is not None and name != NEW else {}
        seen.append(Seen(at, node, name, how, content, {}))
        await asyncio.sleep(max(0.01, every_seconds - (time.monotonic() - began)))


def now() -> int:
    """Return the time in microseconds since 1970, the clock of the metadata log."""
    return time.time_ns() // 1000
