"""Commands about disks: what power cuts and broken disks take, and whether the logs of a partition agree."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from tests.plugins.transcript import Script, command
from tests.plugins.transcript_commands import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming.model.storage.log import Log


@command
def sync(it: Script, *brokers: int) -> None:
    """``sync 1 2``: the operating systems of these machines flush what was appended so far."""
    for broker in brokers:
        it.lab.cluster.sync(broker)


@command
def lose_power(it: Script, *brokers: int) -> None:
    """``lose-power 1 2``: these machines stop; what they had not flushed is lost."""
    for broker in brokers:
        it.lab.cluster.lose_power(broker)


@command
def wipe(it: Script, broker: int) -> None:
    """``wipe 3``: its disk breaks and is replaced by an empty one."""
    it.lab.cluster.wipe(broker)


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


@command
def fail_log_dir(it: Script, broker: int, name: str) -> None:
    """``fail-log-dir 1 dir-2``: what lies there cannot be read any more."""
    it.lab.cluster.fail_log_dir(broker, name)


@command
def mend_log_dir(it: Script, broker: int, name: str) -> None:
    """``mend-log-dir 1 dir-2``: it can be read again, by the next process."""
    assert broker not in it.lab.cluster.brokers
    del it.lab.cluster.disks[broker].log_dirs.offline[name]


@command
def cordon(it: Script, broker: int, *names: str) -> None:
    """``cordon 1 dir-1 dir-2``: no new replicas there; without names everywhere again."""
    it.lab.cluster.disks[broker].log_dirs.cordoned = names


@command
def directories(it: Script, *ids: int) -> Iterator[str]:
    """Tell which replicas lie where."""
    for broker in ids:
        log_dirs = it.lab.cluster.disks[broker].log_dirs
        for name in log_dirs.names:
            replicas = [f"{key.topic_id}-{key.partition}" for key, place in log_dirs.placed.items() if place == name]
            offline = "  offline" if name in log_dirs.offline else ""
            yield f"broker {broker}  {name}: {' '.join(replicas) or '-'}{offline}"
