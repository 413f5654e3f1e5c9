"""A network in which each node has an address of its own, and any two nodes can be cut off from each other.

Each node is in a network name space, and a router between them drops what is cut: as on a broken network, both sides
meet silence, no refusal. Needs ip (iproute2), nsenter and unshare; root, or a kernel that gives every user name spaces.
Everything is gone when this process ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

US: Final = 0
"""The recorder itself, among the nodes."""
_INSIDE: Final = "ISRWATCH_LISTENERS_INSIDE"
_ROUTER: Final = "router"
_SET_UP: Final = (
    "mount --make-rprivate /",
    "mount -t tmpfs network-names /run/netns",
    "ip link set lo up",
    f"ip netns add {_ROUTER}",
    f"nsenter --net=/run/netns/{_ROUTER} sysctl -qw net.ipv4.ip_forward=1",
)


def enter(module: str, arguments: Sequence[str]) -> int | None:
    """Run this program again in name spaces of its own, and return its exit code; None inside of them."""
    if os.environ.get(_INSIDE):
        return None
    user = ["--map-root-user"] if os.geteuid() else []
    again = ["unshare", *user, "--net", "--mount", sys.executable, "-m", module, *arguments]
    return subprocess.run(again, check=False, env={**os.environ, _INSIDE: "1"}).returncode


def address(node: int) -> str:
    """Return the address of a node."""
    return f"10.99.{node}.2"


class Network:
    """A router, the nodes and us around it. To be created in name spaces of its own (see :func:`enter`)."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = (US, *nodes)
        self._cut: set[tuple[int, int]] = set()
        Path("/run/netns").mkdir(parents=True, exist_ok=True)
        for command in _SET_UP:
            _run(command)
        for node in self._nodes:
            self._attach(node)

    def command(self, node: int) -> list[str]:
        """Return the command that runs another one in the network of a node."""
        return ["nsenter", f"--net=/run/netns/node-{node}"]

    def cut(self, node: int, others: Iterable[int] | None = None) -> None:
        """Drop what a node and others, by default all, send to each other."""
        for other in self._nodes if others is None else others:
            for pair in {(node, other), (other, node)} - self._cut:
                if other != node:
                    self._rule("add", pair)
                    self._cut.add(pair)

    def heal(self) -> None:
        """Drop nothing."""
        for pair in list(self._cut):
            self._rule("del", pair)
            self._cut.discard(pair)

    def limit(self, node: int, kilobits: int) -> None:
        """Let no more than so much a second through to a node."""
        self._shape(f"add dev r{node} root tbf rate {kilobits}kbit burst 4kb latency 2s")

    def unlimit(self, node: int) -> None:
        """Let everything through to a node."""
        self._shape(f"del dev r{node} root")

    def _shape(self, what: str) -> None:
        _run(f"nsenter --net=/run/netns/{_ROUTER} tc qdisc {what}")

    def _attach(self, node: int) -> None:
        """Connect a node to the router; ours is the name space in which we are."""
        inside = "" if node == US else f"-n node-{node} "
        there = "" if node == US else f" netns node-{node}"
        if node != US:
            _run(f"ip netns add node-{node}")
        _run(f"ip link add e{node}{there} type veth peer name r{node} netns {_ROUTER}")
        for what in (
            f"{inside}addr add {address(node)}/24 dev e{node}",
            f"{inside}link set e{node} up",
            f"{inside}link set lo up",
            f"-n {_ROUTER} addr add 10.99.{node}.1/24 dev r{node}",
            f"-n {_ROUTER} link set r{node} up",
            f"{inside}route add default via 10.99.{node}.1",
        ):
            _run(f"ip {what}")

    def _rule(self, what: str, pair: tuple[int, int]) -> None:
        source, target = map(address, pair)
        _run(f"ip -n {_ROUTER} rule {what} from {source} to {target} blackhole")


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)
