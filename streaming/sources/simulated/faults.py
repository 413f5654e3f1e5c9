"""How each fault of a scenario is done to the model and its network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.sources.simulated.scenario import Action, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.contracts.identifiers import BrokerId
    from streaming.sources.simulated.simulation import Simulation

Link = tuple["BrokerId", "BrokerId"]

_TO_A_BROKER: Final[dict[Action, Callable[[Simulation, BrokerId], None]]] = {
    Action.KILL: lambda it, broker: it.cluster.kill(broker),
    Action.START: lambda it, broker: it.start(broker),
    Action.STOP: lambda it, broker: it.cluster.stop(broker),
    Action.PAUSE: lambda it, broker: it.cluster.pause(broker),
    Action.RESUME: lambda it, broker: it.cluster.resume(broker),
}


def inflict(simulation: Simulation, fault: Fault) -> None:
    """Let a fault happen now."""
    if fault.broker is not None:
        _TO_A_BROKER[fault.action](simulation, fault.broker)
    elif fault.link is not None:
        _to_a_link(simulation, fault, fault.link)


def _to_a_link(simulation: Simulation, fault: Fault, link: Link) -> None:
    if fault.action is Action.HOLD:
        simulation.network.hold(link)
    elif fault.action is Action.SLOW:
        simulation.network.slow(link, fault.records_per_second or 1)
    else:
        simulation.network.release(link)
        simulation.cluster.release(link)
