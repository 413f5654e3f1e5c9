"""A machine on which isrwatch is installed watches a real cluster until it has named the broker that was killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.plugins.local_http import wait_until

if TYPE_CHECKING:
    from deploy.sandbox import Sandbox
    from tests.packages.machines import Machine

BROKER = 2


def first_incident(machine: Machine, cluster: Sandbox, command: str = "isrwatch/bin/isrwatch") -> str:
    """Start everything, kill a broker, and return what ``isrwatch incidents`` then prints."""
    with machine.running(command, "run", "--bootstrap-server", cluster.bootstrap_servers) as program:
        try:
            program.until("tables ")
            cluster.kill(BROKER)
            return wait_until(
                lambda: incident(machine, command), seconds=120, what=f"incident: {program.said()[-2000:]}"
            )
        finally:
            cluster.start(BROKER)


def incident(machine: Machine, command: str) -> str:
    """Return the incidents, if one of them names the broker."""
    printed = machine.run(command, "incidents")
    return printed if f"broker {BROKER}" in printed else ""
