"""A real dynamic quorum (KIP-853): a leader without a fixed address, and a voter whose disk is wiped."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from deploy.sandbox import Sandbox, plan_cluster
from deploy.sandbox.plan import Plan, random_id, write_plan
from deploy.sandbox.properties import HOST
from streaming.commands.doctor import CHECKS
from streaming.contracts.quorum_members import Member, replaced, replaced_sentence
from streaming.settings import ClusterSettings, ControllersSettings, Settings
from streaming.sources.metadata_log.opening import bootstrap_of
from streaming.sources.protocol.quorum_messages import Quorum, QuorumMember

pytestmark = [pytest.mark.kafka, pytest.mark.long]
_STORAGE, _QUORUM = "kafka.tools.StorageTool", "org.apache.kafka.tools.MetadataQuorumCommand"


class DynamicSandbox(Sandbox):
    """A cluster whose voters are in its metadata log."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.directories = {node: random_id() for node in plan.controllers}

    def format_node(self, node: int, *options: str) -> None:
        own = self.plan.properties_of(node, self._nodes[node].data)
        del own["controller.quorum.voters"]
        servers = ",".join(self.controller_addresses.values())
        own["controller.quorum.bootstrap.servers"] = servers
        if node in self.plan.controllers:
            own["advertised.listeners"] = own["listeners"]
        self._nodes[node].write_properties(own)
        tool = [_STORAGE, "format", "-t", self.plan.cluster_id, "-c", str(self._nodes[node].properties_file), *options]
        subprocess.run([*self._java(96), *tool], capture_output=True, text=True, check=True)

    def wipe(self, node: int) -> None:
        """Replace the disk of a controller."""
        self.stop(node)
        shutil.rmtree(self._nodes[node].data)
        self.format_node(node, "--no-initial-controllers")
        self.start(node)

    def properties_file(self, node: int) -> str:
        return str(self._nodes[node].properties_file)

    def _format(self) -> None:
        voters = ",".join(f"{n}@{HOST}:{p.client}:{self.directories[n]}" for n, p in self.plan.controllers.items())
        for node in self._nodes:
            is_voter = node in self.plan.controllers
            self.format_node(node, *(("--initial-controllers", voters) if is_voter else ("--no-initial-controllers",)))
        write_plan(self.plan, self.root)


def eventually(state: Callable[[], Any], enough: Callable[[Any], object], seconds: float = 60.0) -> Any:
    deadline = time.monotonic() + seconds
    while not enough(found := state()):
        assert time.monotonic() < deadline, found
        time.sleep(1)
    return found


def gone(quorum: Quorum) -> dict[Any, Any]:
    def member(each: QuorumMember) -> Member:
        return Member(each.node, each.directory_id, each.is_voter, 0, each.last_caught_up_ms)

    return replaced(quorum.members, member)


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
