"""The tree: versions, sequences, and what is bound to a session."""

from __future__ import annotations

from streaming.model.messages.zookeeper import Code, Create, Delete, GetChildren, GetData, SetData
from streaming.model.nodes.zookeeper.ensemble import Znodes

NODE = ("brokers", "ids", 1)


def test_data_is_set_only_over_the_version_that_was_read() -> None:
    tree = Znodes()
    tree.apply(Create(NODE, "a"), 1)
    first, _ = tree.apply(SetData(NODE, "b", version=0), 1)
    late, _ = tree.apply(SetData(NODE, "c", version=0), 2)
    assert (first.code, late.code) == (Code.OK, Code.BAD_VERSION)
    found, _ = tree.apply(GetData(NODE), 2)
    assert found.znode is not None
    assert (found.znode.data, found.znode.version) == ("b", 1)


def test_only_one_of_two_creates_the_same_node() -> None:
    tree = Znodes()
    codes = [tree.apply(Create(("controller",), broker, ephemeral=True), broker)[0].code for broker in (1, 2)]
    assert codes == [Code.OK, Code.NODE_EXISTS]
    assert (tree.owned_by(1), tree.owned_by(2)) == ([("controller",)], [])


def test_a_node_created_again_is_a_later_one() -> None:
    tree = Znodes()
    first, _ = tree.apply(Create(NODE, "a", ephemeral=True), 1)
    tree.apply(Delete(NODE), 1)
    second, _ = tree.apply(Create(NODE, "a", ephemeral=True), 2)
    assert first.znode is not None
    assert second.znode is not None
    assert second.znode.created > first.znode.created
    assert tree.owned_by(1) == []


def test_numbered_children_never_repeat_a_number() -> None:
    tree = Znodes()
    paths = [tree.apply(Create(("notices",), text, sequential=True), 1)[1] for text in "ab"]
    tree.apply(Delete(paths[1]), 1)
    paths.append(tree.apply(Create(("notices",), "c", sequential=True), 1)[1])
    assert len(set(paths)) == 3
    children = tree.apply(GetChildren(("notices",)), 1)[0].children
    assert [("notices", child) for child in children] == [paths[0], paths[2]]


def test_what_is_deleted_takes_everything_below_it_along() -> None:
    tree = Znodes()
    tree.apply(Create(("t",), "topic"), 1)
    tree.apply(Create(("t", "partitions", 0, "state"), "state"), 1)
    tree.apply(Delete(("t",)), 1)
    assert tree.get(("t", "partitions", 0, "state")) is None
    assert tree.apply(GetChildren(("t", "partitions")), 1)[0].children == ()
    assert tree.apply(Delete(("t",)), 1)[0].code is Code.NO_NODE
