"""The commands every transcript knows: a cluster, topics, writers, faults, time, and looking at things.

Commands of clients, operators and disks stand in siblings of this file (``transcript_<subject>.py``).
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from streaming.contracts.identifiers import BrokerId, TopicId, TopicPartition
from streaming.model.constants import PRESETS
from streaming.model.messages.network import CONTROLLER
from streaming.sources.simulated.timeline import partition, timeline
from tests.plugins.laboratory import QUICK, Lab
from tests.plugins.transcript import Script, command, milliseconds

if TYPE_CHECKING:
    from collections.abc import Iterator


@command
def cluster(it: Script, *brokers: int, latency: int = 1, preset: str = "", **options: Any) -> None:
    """``cluster 1 2 3 latency=1 preset=legacy-2.4 replica_lag_time_max_ms=10000 epoch_fencing=false``.

    Without a preset it is Kafka 4.x, with processes that start in no time and no rebalance of leaders.
    """
    usual = PRESETS[preset] if preset else QUICK
    switches = {item.name for item in fields(usual.switches)}
    turned = {name: type(getattr(usual.switches, name))(value) for name, value in options.items() if name in switches}
    others = {name: value for name, value in options.items() if name not in switches}
    constants = replace(usual, switches=replace(usual.switches, **turned), **others)
    it.lab = Lab(brokers, constants, latency)
    it.shown = len(it.lab.commits)


@command
def topic(it: Script, name: str, *assignments: tuple[int, ...], **options: Any) -> Iterator[str]:
    """``topic orders [1,2,3] [2,3,1] min_isr=2``: creates it and shows its partitions."""
    for key in it.lab.topic(name, assignments, **options):
        yield f"{name}-{key.partition}  {partition(it.lab.state(key))}"
    it.shown = len(it.lab.commits)


def key_of(text: str) -> TopicPartition:
    """Read ``orders-0``; a topic's id is its name here."""
    name, number = text.rsplit("-", 1)
    return TopicPartition(TopicId(name), int(number))


@command
def write(it: Script, where: str, records: int = 1, acks: str | int = "all", every: str = "") -> Iterator[str]:
    """``write orders-0 5 acks=all``, or for as long as the transcript lasts with ``every=100ms``."""
    if every:
        it.lab.keep_writing(key_of(where), records, milliseconds(every), acks_all=acks == "all")
        return
    refused = it.lab.cluster.refused
    it.lab.write(key_of(where), records, acks_all=acks == "all")
    if it.lab.cluster.refused > refused:
        yield f"refused {it.lab.cluster.refused - refused}"


@command
def run(it: Script, how: str, time: str | int) -> Iterator[str]:
    """``run for 5s`` or ``run to 45s``; prints what was committed meanwhile."""
    now = it.lab.cluster.now if how == "for" else 0
    it.lab.run(now + milliseconds(time))
    yield from news(it)


def news(it: Script) -> Iterator[str]:
    """Print what was committed since the last time."""
    commits, it.shown = it.lab.commits[it.shown :], len(it.lab.commits)
    for entry in timeline(commits):
        cause = f"  [{entry.cause}]" if entry.cause else ""
        yield f"{entry.at / 1_000:8.3f}  {entry.subject}  {entry.what}{cause}"


@command
def start(it: Script, node: str | int) -> None:
    """``start 3``: a new process."""
    it.lab.start(node_of(node))


def _signal(name: str) -> None:
    """Add the command that sends a signal to a process: ``kill 3``, ``kill controller-101``."""

    def act(it: Script, node: str | int) -> None:
        getattr(it.lab.cluster, name)(BrokerId(node_of(node)))

    act.__name__ = name
    command(act)


for signal in ("kill", "stop", "pause", "resume"):  # SIGKILL, SIGTERM, SIGSTOP, SIGCONT
    _signal(signal)

CONTROLLER_NAME = "controller"


def _link(text: str) -> tuple[int, int]:
    sender, receiver = (node_of(end) for end in text.split("->"))
    return sender, receiver


def node_of(text: str | int) -> int:
    """Read ``3``, ``controller`` or ``controller-101``; the first controller is the only one by default."""
    if isinstance(text, int) or not text.startswith(CONTROLLER_NAME):
        return int(text)
    return -int(text.removeprefix(f"{CONTROLLER_NAME}-")) if text != CONTROLLER_NAME else CONTROLLER


@command
def hold(it: Script, *links: str) -> None:
    """``hold 1->3``: nothing that 1 sends reaches 3; ``controller`` is a name for the active controller."""
    for link in links:
        it.lab.hold(*_link(link))


@command
def release(it: Script, *links: str) -> None:
    """``release 1->3``: what was held arrives now, in order."""
    for link in links:
        it.lab.release(*_link(link))


@command
def slow(it: Script, link: str, records_per_second: int) -> None:
    """``slow 1->3 900``: so many records a second."""
    it.lab.network.slow(_link(link), records_per_second)


@command
def show(it: Script, *what: str) -> Iterator[str]:
    """``show orders-0 orders-1``: the controller's truth."""
    for each in what:
        yield f"{each}  {partition(it.lab.state(key_of(each)))}"


@command
def logs(it: Script, where: str) -> Iterator[str]:
    """``logs orders-0``: every replica: offsets, high watermark, epochs (epoch@first offset)."""
    key = key_of(where)
    for broker, disk in sorted(it.lab.cluster.disks.items()):
        replica = disk.replicas.get(key)
        if replica is not None:
            log = replica.log
            epochs = " ".join(f"{epoch}@{offset}" for epoch, offset in log.epochs)
            yield f"broker {broker}  [{log.start}, {log.end})  high watermark {replica.high_watermark}  epochs {epochs}"


@command
def records(it: Script, since: str | int = 0) -> Iterator[str]:
    """``records 10s``: the metadata records since then, a batch a line, without idle heartbeats."""
    for batch in it.lab.batches_since(milliseconds(since)):
        yield "[" + ", ".join(type(record).__name__ for record in batch) + "]"
