"""Commands of operators and administrators: topics, configuration, elections, reassignments, brokers, disks."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from streaming.contracts.identifiers import TopicId
from streaming.model.constants import Error, RefusedRequest
from streaming.model.controller.change import Mode
from streaming.model.controller.placement import JavaRandom
from streaming.model.controller.topics import NewTopic
from streaming.sources.simulated.timeline import brokers
from tests.plugins.transcript import Script, command
from tests.plugins.transcript_commands import key_of, news

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streaming.contracts.identifiers import TopicPartition


def _answers(it: Script, errors: dict[TopicPartition, Error]) -> Iterator[str]:
    for key, error in errors.items():
        if error is not Error.NONE:
            yield f"{key.topic_id}-{key.partition}: {error.name}"
    yield from _done(it)


def _ask(it: Script, request: Callable[[], None]) -> Iterator[str]:
    try:
        request()
    except RefusedRequest as refused:
        yield str(refused)
    yield from _done(it)


def _done(it: Script) -> Iterator[str]:
    it.lab.check()
    yield from news(it)


@command
def create_topic(
    it: Script,
    name: str,
    *assignments: tuple[int, ...],
    partitions: int | None = None,
    factor: int | None = None,
    **config: str | int,
) -> Iterator[str]:
    """``create-topic orders [1,2,3]`` or ``create-topic orders partitions=2 factor=3``; the controller answers."""
    admin = it.lab.cluster.admin

    def create() -> None:
        replicas = assignments or admin.place(JavaRandom(Random(0).getrandbits), partitions, factor)
        admin.create_topic(
            NewTopic(name, TopicId(name), replicas), {key: _text(value) for key, value in config.items()}
        )

    yield from _ask(it, create)


@command
def delete_topic(it: Script, name: str) -> Iterator[str]:
    """``delete-topic orders``."""
    yield from _ask(it, lambda: it.lab.cluster.admin.delete_topic(TopicId(name)))


@command
def create_partitions(it: Script, name: str, *assignments: tuple[int, ...]) -> Iterator[str]:
    """``create-partitions orders [1,2,3]``: one more."""
    yield from _ask(it, lambda: it.lab.cluster.admin.create_partitions(name, assignments))


@command
def configure(it: Script, subject: str, **config: str | int) -> Iterator[str]:
    """``configure orders min.insync.replicas=2``, ``configure cluster ...``; the value ``none`` takes it back."""
    topic = "" if subject == "cluster" else subject
    ((key, value),) = config.items()
    text = None if value == "none" else _text(value)
    yield from _ask(it, lambda: it.lab.cluster.admin.alter_config(key, text, topic))


def _text(value: str | int) -> str:
    return str(value).lower()


@command
def elect(it: Script, mode: str, *partitions: str) -> Iterator[str]:
    """``elect preferred orders-0`` or ``elect unclean orders-0``."""
    keys = [key_of(each) for each in partitions]
    yield from _answers(it, it.lab.cluster.admin.elect_leaders(Mode[mode.upper()], keys))


@command
def reassign(it: Script, where: str, target: tuple[int, ...]) -> Iterator[str]:
    """``reassign orders-0 [4,5,6]``."""
    yield from _answers(it, it.lab.cluster.admin.alter_partition_reassignments({key_of(where): target}))


@command
def cancel(it: Script, where: str) -> Iterator[str]:
    """``cancel orders-0``: takes its reassignment back."""
    yield from _answers(it, it.lab.cluster.admin.alter_partition_reassignments({key_of(where): None}))


@command
def reassignments(it: Script) -> Iterator[str]:
    """Tell what is on the move."""
    for key, moving in it.lab.cluster.admin.list_partition_reassignments().items():
        lists = f"replicas {brokers(moving.replicas)}; adding {brokers(moving.adding)}"
        yield f"{key.topic_id}-{key.partition}  {lists}; removing {brokers(moving.removing)}"


@command
def metrics(it: Script, *ids: int) -> Iterator[str]:
    """``metrics 1 2``: what these brokers count of what they lead."""
    for broker in ids:
        led = it.lab.cluster.brokers[broker].led_partitions()
        meters = it.lab.cluster.brokers[broker].leadership.proposals
        yield (
            f"broker {broker}  leads {len(led)}; under-replicated {sum(each.is_under_replicated for each in led)};"
            f" under min ISR {sum(each.is_under_min_isr for each in led)};"
            f" shrinks {meters.isr_shrinks}; expands {meters.isr_expands}; failed {meters.failed_isr_updates}"
        )


@command
def unregister(it: Script, broker: int) -> Iterator[str]:
    """``unregister 3``: it will not come back."""
    yield from _ask(it, lambda: it.lab.cluster.admin.unregister_broker(broker))


@command
def running(it: Script) -> Iterator[str]:
    """Tell which brokers have a process."""
    yield brokers(tuple(sorted(it.lab.cluster.brokers)))
