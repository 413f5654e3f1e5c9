"""Messages between a broker and ZooKeeper. Values only.

A path is a tuple of names: ``/brokers/ids/1`` is ``("brokers", "ids", 1)``.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming.model.messages.network import CONTROLLER

if TYPE_CHECKING:
    from streaming.contracts.identifiers import BrokerId

# The ensemble is one node here; it has the address that a KRaft cluster gives its active controller.
ENSEMBLE: Final = CONTROLLER
ANY_VERSION: Final = -1

Path = tuple[str | int, ...]


class Code(Enum):
    """Result of an operation."""

    OK = auto()
    NO_NODE = auto()
    NODE_EXISTS = auto()
    BAD_VERSION = auto()


class Znode(NamedTuple):
    """One node of the tree.

    Attributes:
        data: what it holds.
        version: how often its data was set.
        created: the transaction that created it (czxid); a broker's epoch (KIP-380).
        owner: the session it is bound to, None for one that stays.
    """

    data: Any
    version: int
    created: int
    owner: int | None = None


class Create(NamedTuple):
    """Create a node; ``sequential`` creates a numbered child of ``path`` instead."""

    path: Path
    data: Any
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Set a node's data if it still has this version: the compare-and-set on which everything rests."""

    path: Path
    data: Any
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a node and everything below it."""

    path: Path


class GetData(NamedTuple):
    """Read a node."""

    path: Path


class GetChildren(NamedTuple):
    """Name a node's children, oldest first."""

    path: Path


class Watch(NamedTuple):
    """Be told when the node or the list of its children changes."""

    path: Path


Operation = Create | SetData | Delete | GetData | GetChildren | Watch


class Result(NamedTuple):
    """The answer to one operation; ``znode`` is the node after it."""

    code: Code
    znode: Znode | None = None
    children: tuple[str | int, ...] = ()


class Connect(NamedTuple):
    """A process asks for a session."""

    broker: BrokerId


class Connected(NamedTuple):
    """Here it is."""

    session: int


class Ping(NamedTuple):
    """A session is alive."""

    session: int


class CloseSession(NamedTuple):
    """A session ends; what was bound to it goes at once."""

    session: int


class SessionExpired(NamedTuple):
    """The client was silent for too long: its session is no more, nor what was bound to it."""

    session: int


class Request(NamedTuple):
    """Operations, each on its own.

    ``epoch_version``: the version of ``/controller_epoch`` that the sender knows as controller; if it moved on,
    nothing at all is done.
    """

    session: int
    number: int
    operations: tuple[Operation, ...]
    epoch_version: int | None = None


class Answer(NamedTuple):
    """The results, in order; none if the sender is no longer the controller."""

    session: int
    number: int
    results: tuple[Result, ...]


class Changed(NamedTuple):
    """A watch fires: something about the node at ``path`` changed. The client has to read it to learn what."""

    session: int
    path: Path
