"""Commands of transcripts about producers: batches, acknowledgements, transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.messages.clients import TRANSACTION_STATE, Acks
from tests.plugins.transcript import Script, command
from tests.plugins.transcript_commands import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_ACKS = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}
_FIRST_NODE = 1_000


@command
def producer(it: Script, name: str, acks: str | int = "all", *, idempotence: bool = True) -> None:
    """``producer anna acks=1 idempotence=false``: a client called anna."""
    options = {"acks": _ACKS[str(acks)], "idempotence": idempotence}
    it.clients[name] = it.lab.producer(_FIRST_NODE + len(it.clients), **options)


@command
def transactional_producer(it: Script, name: str, transactional_id: str) -> None:
    """``transactional-producer anna payments``: a client called anna with a transactional id."""
    it.clients[name] = it.lab.transactional(transactional_id, _FIRST_NODE + len(it.clients))


@command
def transaction_log(it: Script, *replicas: int) -> None:
    """``transaction-log 3 1 2``: ``__transaction_state`` with one partition on these brokers."""
    it.lab.topic(TRANSACTION_STATE, [replicas], min_isr=min(2, len(replicas)))
    it.shown = len(it.lab.commits)


@command
def send(it: Script, name: str, where: str, *values: str) -> None:
    """``send anna orders-0 first second``: a batch of these records."""
    it.lab.send(it.clients[name], key_of(where), len(values), values=values)


@command
def sent(it: Script, name: str) -> Iterator[str]:
    """``sent anna``: what became of each batch."""
    for each in it.clients[name].sent:
        verdict = "waits" if each.error is None else "acknowledged" if each.error.name == "NONE" else each.error.name
        when = "" if each.error is None else f" at {each.decided_ms / 1_000:.3f}"
        attempts = "" if each.attempts == 1 else f" after {each.attempts} attempts"
        yield f"{' '.join(each.batch.values)}  {verdict}{when}{attempts}"


@command
def transaction(it: Script, name: str, step: str) -> None:
    """``transaction anna begin``; or ``commit``, or ``abort``."""
    it.lab.transact(it.clients[name], getattr(it.clients[name], step))


@command
def phase(it: Script, name: str) -> Iterator[str]:
    """``phase anna``: what a transactional producer is about."""
    client = it.clients[name]
    reason = f" ({client.fatal.name})" if client.fatal else ""
    yield f"{client.phase.name}{reason}, producer id {client.producer_id}, epoch {client.producer_epoch}"


@command
def batches(it: Script, where: str) -> Iterator[str]:
    """``batches orders-0``: every replica: what its batches hold, and how far its transactions are decided."""
    key = key_of(where)
    for broker, disk in sorted(it.lab.cluster.disks.items()):
        if key in disk.replicas:
            log, mark = disk.replicas[key].log, disk.replicas[key].high_watermark
            texts = [each.marker.name if each.marker else " ".join(each.values) for each in log.batches]
            stable = log.producers.last_stable_offset(mark)
            yield f"broker {broker}  {' | '.join(texts) or '-'}  high watermark {mark}, last stable offset {stable}"


@command
def late_transactions(it: Script, broker: int) -> Iterator[str]:
    """``late-transactions 1``: its metric PartitionsWithLateTransactionsCount."""
    yield str(it.lab.cluster.brokers[broker].partitions_with_late_transactions(it.lab.cluster.now))
