"""A source of samples as tests open it, and what it reports until a test has seen enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import Observation
from streaming.errors import ConnectionRefused
from streaming.sources.protocol.addresses import Peers, parse_servers
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.security import Security
from streaming.sources.samples.kind import Kind
from streaming.sources.samples.source import SamplesSource
from tests.blocks import singly

PATIENCE = 60.0


def open_samples(
    servers: str,
    kinds: Callable[[], Sequence[Kind]],
    period: Micros,
    *,
    seconds: float = 5.0,
    report: Callable[[str], None] = lambda _: None,
) -> SamplesSource:
    """Open a source that learns who leads once a period, and gives up a request after these seconds."""
    peers = Peers()
    shared = {"cluster": "test", "name": "samples:a"}
    dial = dialer(Security(), peers)
    return SamplesSource(
        parse_servers(servers), dial, kinds, **shared, view_micros=period, peers=peers, report=report, seconds=seconds
    )


def polled(source: SamplesSource) -> list[Observation]:
    return [*singly(source.poll(Micros(time.time_ns() // 1000)))]


def until(
    source: SamplesSource, enough: Callable[[list[Observation]], object], refused: list[ConnectionRefused] | None = None
) -> list[Observation]:
    """Poll until a test has seen enough; a refusal ends it, unless there is a list for refusals."""
    found: list[Observation] = []
    deadline = time.monotonic() + PATIENCE
    while not enough(found):
        assert time.monotonic() < deadline, found[-5:]
        try:
            found += polled(source)
        except ConnectionRefused as refusal:
            if refused is None:
                raise
            refused.append(refusal)
    return found
