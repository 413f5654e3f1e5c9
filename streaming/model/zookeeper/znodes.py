"""The tree of znodes: versions, owners, compare-and-set. Pure; knows no sessions' time, no watches and no Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.model.messages.zookeeper import (
    ANY_VERSION,
    Code,
    Create,
    Delete,
    GetChildren,
    GetData,
    Operation,
    Path,
    Result,
    SetData,
    Znode,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Znodes:
    """Nodes by path.

    Departs from ZooKeeper: parents need not exist to have children, and a node is deleted with everything below it.
    """

    def __init__(self) -> None:
        self._nodes: dict[Path, Znode] = {}
        self._children: dict[Path, dict[str | int, None]] = {}
        self._owned: dict[int, dict[Path, None]] = {}
        self._transaction = 0
        self._sequence = 0

    def get(self, path: Path) -> Znode | None:
        """Give a node, None if there is none."""
        return self._nodes.get(path)

    def apply(self, operation: Operation, session: int) -> tuple[Result, Path]:
        """Carry out one operation; give its result and the path it was about."""
        match operation:
            case Create(path, data, ephemeral, sequential):
                if sequential:
                    self._sequence += 1
                    path = (*path, self._sequence)
                return self._create(path, data, session if ephemeral else None), path
            case SetData(path, data, version):
                return self._set(path, data, version), path
            case Delete(path):
                return self._delete(path), path
            case GetChildren(path):
                return Result(Code.OK, children=tuple(self._children.get(path, ()))), path
            case GetData(path):
                node = self._nodes.get(path)
                return Result(Code.NO_NODE if node is None else Code.OK, node), path
            case _:
                return Result(Code.OK), operation.path

    def owned_by(self, session: int) -> list[Path]:
        """Name the nodes bound to a session."""
        return list(self._owned.get(session, ()))

    def _create(self, path: Path, data: object, owner: int | None) -> Result:
        if path in self._nodes:
            return Result(Code.NODE_EXISTS, self._nodes[path])
        self._transaction += 1
        node = self._nodes[path] = Znode(data, 0, self._transaction, owner)
        for depth, name in enumerate(path):
            self._children.setdefault(path[:depth], {})[name] = None
        if owner is not None:
            self._owned.setdefault(owner, {})[path] = None
        return Result(Code.OK, node)

    def _set(self, path: Path, data: object, version: int) -> Result:
        node = self._nodes.get(path)
        if node is None:
            return Result(Code.NO_NODE)
        if version not in {ANY_VERSION, node.version}:
            return Result(Code.BAD_VERSION, node)
        self._transaction += 1
        self._nodes[path] = node = node._replace(data=data, version=node.version + 1)
        return Result(Code.OK, node)

    def _delete(self, path: Path) -> Result:
        if path not in self._nodes:
            return Result(Code.NO_NODE)
        self._transaction += 1
        for gone in list(self._below(path)):
            node = self._nodes.pop(gone, None)
            self._children.pop(gone, None)
            if node is not None and node.owner is not None:
                del self._owned[node.owner][gone]
        del self._children[path[:-1]][path[-1]]
        return Result(Code.OK)

    def _below(self, path: Path) -> Iterator[Path]:
        for child in self._children.get(path, ()):
            yield from self._below((*path, child))
        yield path
