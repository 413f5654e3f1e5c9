"""A real dynamic quorum (KIP-853): a leader without a fixed address, and a voter whose disk is wiped."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from deploy.sandbox.node import Node
from deploy.sandbox.plan import Plan, random_id, write_plan
from streaming.commands.doctor import CHECKS
from streaming.contracts.identifiers import Micros
from streaming.contracts.observations import ControllerObserved
from streaming.contracts.quorum_members import Member, replaced, replaced_sentence
from streaming.runtime.jars import jar_paths
from streaming.runtime.java import find_java
from streaming.settings import ClusterSettings, ControllersSettings, Settings
from streaming.sources.metadata_log.opening import bootstrap_of, open_voters
from streaming.sources.protocol.addresses import Address
from streaming.sources.protocol.connection import dialer
from streaming.sources.protocol.quorum_messages import Quorum, QuorumMember
from streaming.sources.protocol.security import Security
from streaming.sources.samples.directories import Directory, describe_directories
from tests.stores.serving import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.long]
_STORAGE, _QUORUM = "kafka.tools.StorageTool", "org.apache.kafka.tools.MetadataQuorumCommand"


class DynamicSandbox(Sandbox):
    """A cluster whose voters are in its metadata log: all controllers, or the given ones, at the level of a release."""

    def __init__(self, plan: Plan, voters: Collection[int] = (), *options: str) -> None:
        super().__init__(plan)
        self.directories = {node: random_id() for node in voters or plan.controllers}
        self._options = options

    def format_node(self, node: int, *options: str, java: Sequence[str | Path] = ()) -> None:
        own = self.plan.properties_of(node, self._nodes[node].data)
        del own["controller.quorum.voters"]
        servers = ",".join(self.controller_addresses[str(voter)] for voter in self.directories)
        own["controller.quorum.bootstrap.servers"] = servers
        if node in self.plan.controllers:
            own["advertised.listeners"] = own["listeners"]
        else:
            own["cordoned.log.dirs"] = cordoned = f"{own['log.dirs']}-cordoned"
            own["log.dirs"] += f",{cordoned}"
        self._nodes[node].write_properties(own)
        tool = [_STORAGE, "format", "-t", self.plan.cluster_id, "-c", str(self._nodes[node].properties_file), *options]
        subprocess.run([*(java or self._java(96)), *tool], capture_output=True, text=True, check=True)

    def wipe(self, node: int) -> None:
        """Replace the disk of a controller."""
        self.stop(node)
        self.start_empty(node)

    def start_empty(self, node: int) -> None:
        """Start a controller that is stopped, as an observer on an empty disk."""
        shutil.rmtree(self._nodes[node].data)
        self.format_node(node, "--no-initial-controllers", *self._options)
        self.start(node)

    def replace_by(self, node: int, java: Sequence[str | Path], *options: str) -> None:
        """Replace a controller by one of another version, which is started by a command."""
        self.stop(node)
        shutil.rmtree(self._nodes[node].data)
        self.format_node(node, "--no-initial-controllers", *options, java=java)
        self._nodes[node].start(list(java))

    def start_twin(self, node: int, folder: Path) -> Node:
        """Start another process with a node's configuration, at ports and on a disk of its own."""
        own = dict(line.split("=", 1) for line in self._nodes[node].properties_file.read_text().splitlines())
        ports = {port: free_port() for port in re.findall(r":(\d+)", own["listeners"])}
        twin = Node(node, folder, next(iter(ports.values())))
        for key in ("listeners", "advertised.listeners"):
            own[key] = re.sub(r":(\d+)", lambda found: f":{ports[found[1]]}", own[key])
        own["log.dirs"] = str(twin.data)
        own.pop("cordoned.log.dirs", None)
        twin.write_properties(own)
        tool = [_STORAGE, "format", "-t", self.plan.cluster_id, "-c", str(twin.properties_file)]
        subprocess.run([*self._java(96), *tool, "--no-initial-controllers"], capture_output=True, check=True)
        twin.start(self._java(256))
        return twin

    def properties_file(self, node: int) -> str:
        return str(self._nodes[node].properties_file)

    def _format(self) -> None:
        at = self.controller_addresses
        voters = ",".join(f"{node}@{at[str(node)]}:{directory}" for node, directory in self.directories.items())
        for node in self._nodes:
            own = ("--initial-controllers", voters) if node in self.directories else ("--no-initial-controllers",)
            self.format_node(node, *own, *self._options)
        write_plan(self.plan, self.root)


def eventually(state: Callable[[], Any], enough: Callable[[Any], object], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not enough(found := state()):
        assert time.monotonic() < deadline, found
        time.sleep(1)  # each look starts requests of its own
    return found


def led(settings: Settings) -> list[bool | None]:
    """Whether brokers name a leader of the quorum, as the source of the voters reports it."""
    seen = open_voters(settings).poll(Micros(time.time_ns() // 1_000))
    return [each.is_led for each in seen if isinstance(each, ControllerObserved)]


def directories_of(cluster: Sandbox) -> list[Directory]:
    connection = dialer(Security())(Address("127.0.0.1", cluster.plan.brokers[1].client), response_seconds=5.0)
    try:
        return sorted(describe_directories(connection))
    finally:
        connection.close()


def gone(quorum: Quorum) -> dict[Any, Any]:
    def member(each: QuorumMember) -> Member:
        return Member(each.node, each.directory_id, each.is_voter, 0, 1_000 * (each.last_caught_up_ms or 0) or None)

    return replaced(quorum.members, member)


def upgrade(cluster: Sandbox) -> str:
    """Upgrade the features to those of the newest release, and return what the tool says."""
    upgrades = ("--bootstrap-server", cluster.bootstrap_servers, "upgrade", "--release-version", "4.3")
    command = cluster.tool_command("org.apache.kafka.tools.FeatureCommand", *upgrades)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def warnings(settings: Settings) -> list[str]:
    return [sentence for status, sentence in CHECKS["metadata log"](settings) if status.name == "WARNING"]


def test_the_quorum_of_a_real_cluster_whose_leader_or_disk_is_missing() -> None:
    with DynamicSandbox(plan_cluster(brokers=1, controllers=3)) as cluster:
        settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers))
        quorum = bootstrap_of(settings).quorum
        leader = quorum().leader.node
        assert {each.directory_id for each in quorum().members if each.is_voter} == {*cluster.directories.values()}

        others = {node: at for node, at in cluster.controller_addresses.items() if node != str(leader)}
        fixed = ClusterSettings(
            bootstrap_servers=cluster.bootstrap_servers, controllers=ControllersSettings(addresses=others)
        )
        (said,) = warnings(Settings(cluster=fixed))
        assert said.startswith("no controller serves the metadata log: ")
        assert f"; controller {leader} leads, and has no address in cluster.controllers.addresses: add it" in said
        assert warnings(settings) == []

        victim = next(node for node in cluster.directories if node != leader)
        cluster.wipe(victim)
        found = gone(eventually(quorum, gone))
        voter, observer = found[victim]
        assert (voter.directory_id, len(found)) == (cluster.directories[victim], 1)
        (said,) = warnings(settings)
        assert said == replaced_sentence(victim, voter.directory_id, observer.directory_id)

        # What is advised brings the vote back.
        remove = f"remove-controller --controller-id {victim} --controller-directory-id {voter.directory_id}"
        assert remove in said
        cluster.run_tool(_QUORUM, "--bootstrap-server", cluster.bootstrap_servers, *remove.split())
        own = ("--command-config", cluster.properties_file(victim))
        cluster.run_tool(_QUORUM, *own, "--bootstrap-server", cluster.bootstrap_servers, "add-controller")
        healed = eventually(quorum, lambda now: not gone(now) and victim in now.voters)
        (again,) = (each.directory_id for each in healed.members if each.node == victim and each.is_voter)
        assert again == observer.directory_id
        assert warnings(settings) == []
        assert [directory.is_cordoned for directory in directories_of(cluster)] == [False, True]

        assert led(settings) == [True]
        for node in {*cluster.directories} - {healed.leader.node}:
            cluster.kill(node)
        assert eventually(lambda: led(settings), lambda found: found == [False]) == [False], "brokers name no leader"


def test_the_registration_of_a_controller_that_is_gone_blocks_the_upgrade_until_it_registers_again() -> None:
    release = ("--release-version", "3.9-IV0")
    plan = plan_cluster(brokers=1, controllers=2)
    voter, ghost = plan.controllers
    old_jars = ":".join(map(str, jar_paths("sandbox-kafka-3")))
    old = [find_java().executable, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", old_jars]
    with DynamicSandbox(plan, (voter,), *release) as cluster:
        settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers))
        assert warnings(settings) == []
        cluster.replace_by(ghost, old, *release)
        (said,) = eventually(lambda: warnings(settings), bool)
        cluster.stop(ghost)
        assert said.startswith(f"the registration of controller {ghost}, which is no voter (supports 21) blocks the ")
        assert f"start a controller of the new version with the id {ghost} once, as an observer" in said
        assert f"Controller {ghost} does not support this feature" in upgrade(cluster)

        cluster.start_empty(ghost)
        assert eventually(lambda: warnings(settings), lambda found: not found) == []
        assert "metadata.version was upgraded to 30" in upgrade(cluster)


def test_two_processes_with_one_id_are_named_by_their_registrations_and_by_their_disks(tmp_path: Path) -> None:
    """A copied configuration, on a disk of its own: of a controller that follows, and of a broker."""
    with DynamicSandbox(plan_cluster(brokers=2, controllers=2)) as cluster:
        settings = Settings(cluster=ClusterSettings(bootstrap_servers=cluster.bootstrap_servers))
        leader = bootstrap_of(settings).quorum().leader.node
        doubled = min({*cluster.directories} - {leader})
        assert warnings(settings) == []
        twins = [cluster.start_twin(node, tmp_path / str(node)) for node in (doubled, 2)]
        try:
            said = eventually(lambda: warnings(settings), lambda found: len(found) == 3)
        finally:
            for twin in twins:
                twin.signal(signal.SIGKILL)
                twin.wait_ended()
        assert {each.partition(":")[0] for each in said} == {
            f"two processes run as controller {doubled}",
            "two processes run with node.id 2",
            f"two processes run with node.id {doubled}",
        }
        by_turns = next(each for each in said if "by turns" in each)
        for port in (cluster.plan.controllers[doubled].client, twins[0].port):
            assert f"CONTROLLER at 127.0.0.1:{port} (incarnation " in by_turns
