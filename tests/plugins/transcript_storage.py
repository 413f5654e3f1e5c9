"""Commands about disks: what power cuts and broken disks take, and whether the logs of a partition agree."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from tests.plugins.transcript import Script, command
from tests.plugins.transcript_commands import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from streaming.model.storage.log import Log


@command
def sync(it: Script, *brokers: int) -> Iterable[str]:
    """``sync 1 2``: the operating systems of these machines flush what was appended so far."""
    for broker in brokers:
        it.lab.cluster.sync(broker)
    return ()


@command
def lose_power(it: Script, *brokers: int) -> Iterable[str]:
    """``lose-power 1 2``: these machines stop; what they had not flushed is lost."""
    for broker in brokers:
        it.lab.cluster.lose_power(broker)
    return ()


@command
def wipe(it: Script, broker: int) -> Iterable[str]:
    """``wipe 3``: its disk breaks and is replaced by an empty one."""
    it.lab.cluster.wipe(broker)
    return ()


@command
def compare(it: Script, where: str) -> Iterator[str]:
    """``compare orders-0``: do the replicas have the same records at the same offsets?"""
    key = key_of(where)
    logs = [(broker, disk.replicas[key].log) for broker, disk in it.lab.cluster.disks.items() if key in disk.replicas]
    for (one, log), (other, another) in combinations(logs, 2):
        offset = first_difference(log, another)
        if offset is not None:
            at = f"epoch {log.epoch_at(offset)} and epoch {another.epoch_at(offset)}"
            yield f"broker {one} and broker {other} differ from offset {offset} on: {at}"
            return
    yield "the logs agree"


def first_difference(one: Log, other: Log) -> int | None:
    """Find the first offset that both have, written in different epochs."""
    begin, end = max(one.start, other.start), min(one.end, other.end)
    borders = sorted({begin, *(offset for _, offset in (*one.epochs, *other.epochs) if begin < offset < end)})
    return next((it for it in borders if it < end and one.epoch_at(it) != other.epoch_at(it)), None)
