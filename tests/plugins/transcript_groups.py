"""Commands of transcripts about consumers: readers, members of groups, commits, what is committed."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from streaming.contracts import health
from streaming.model.clients.positions import GroupProtocol, ResetPolicy
from streaming.model.cluster.descriptions import group_offsets
from streaming.model.messages.clients import IsolationLevel
from tests.plugins.transcript import Script, command
from tests.plugins.transcript_commands import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_NODE: Final = 2_000


def _options(options: dict[str, Any]) -> dict[str, Any]:
    read = {"reset": lambda it: ResetPolicy[it.upper()], "isolation": lambda it: IsolationLevel[it.upper()]}
    read |= {"protocol": GroupProtocol, "auto_commit_interval_ms": lambda it: it or None}
    read |= {"assignors": lambda it: it if isinstance(it, tuple) else (it,)}
    return {name: read.get(name, str)(value) for name, value in options.items()}


def _free_node(it: Script) -> int:
    return next(node for node in count(_FIRST_NODE) if node not in it.lab.cluster.clients)


@command
def reader(it: Script, name: str, *where: str, **options: Any) -> None:
    """``reader anna t-0 t-1 reset=latest rack=b``: a consumer called anna that was told what to read."""
    keys = [key_of(each) for each in where]
    it.clients[name] = it.lab.reader(*keys, node=_free_node(it), **_options(options))


@command
def start_in(it: Script, broker: int, rack: str) -> None:
    """``start-in 2 b``: a new process of broker 2, in the rack b."""
    it.lab.start(broker, rack)


@command
def member(it: Script, name: str, group: str, *topics: str, **options: Any) -> None:
    """``member anna g t protocol=consumer``: a consumer called anna in the group g."""
    it.clients[name] = it.lab.member(group, *topics, node=_free_node(it), **_options(options))


@command
def commit_offsets(it: Script, name: str) -> None:
    """``commit-offsets anna``: she commits how far she has read; ``acknowledged`` tells what came of it."""
    client = it.clients[name]
    client.commit(it.lab.cluster.now, lambda _now, _error: None)
    it.lab.cluster.flush(client.node)


@command
def acknowledged(it: Script, *names: str) -> Iterator[str]:
    """``acknowledged anna``: the last offset she was told to be committed, by partition, and what was refused."""
    for name in names:
        committing = it.clients[name].committing
        offsets = sorted((key.topic_id, key.partition, told.offset) for key, told in committing.committed.items())
        refused = "".join(f"  refused {error.name}" for error in committing.refused)
        yield (
            f"{name}  " + (" ".join(f"{topic}-{number}@{offset}" for topic, number, offset in offsets) or "-") + refused
        )


@command
def close(it: Script, name: str) -> None:
    """``close anna``: the application ends."""
    it.clients[name].close()
    it.lab.cluster.flush(it.clients[name].node)


@command
def positions(it: Script, *names: str) -> Iterator[str]:
    """``positions anna``: where she is, and what she got: offsets and their leader epochs."""
    for name in names:
        client = it.clients[name]
        for key, position in sorted(client.positions.items()):
            spans = client.consumed[key].spans if key in client.consumed else []
            got = " ".join(f"[{span.start}, {span.end})@{span.epoch}" for span in spans) or "nothing"
            near = f"  reads from {position.preferred}" if position.preferred is not None else ""
            yield f"{name}  {key.topic_id}-{key.partition}  {position.state.name} {position.offset}  got {got}{near}"


@command
def owners(it: Script, *names: str) -> Iterator[str]:
    """``owners anna bob``: what each reads, in which generation or member epoch."""
    for name in names:
        membership = it.clients[name].membership
        owned = " ".join(f"{key.topic_id}-{key.partition}" for key in sorted(membership.owned)) or "-"
        yield f"{name}  generation {membership.generation}  {owned}"


@command
def groups(it: Script) -> Iterator[str]:
    """``groups``: what an administrator is told of every group."""
    for each in group_offsets(it.lab.cluster):
        key, lag = each.topic_partition, health.lag(each.committed, each.high_watermark)
        yield (
            f"{each.group}  {each.protocol} {each.state.value}, members {each.members}"
            f"  {key.topic_id}-{key.partition}  member {each.member or '-'}"
            f"  committed {each.committed}  high watermark {each.high_watermark}  lag {lag}"
        )
