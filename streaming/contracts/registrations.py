"""Registrations that block an upgrade of ``metadata.version``: what they support, and what unblocks it. Pure.

The active controller refuses a level that a registered node does not support, whether that node is up, is a voter or
has left for good: ``FeatureControlManager`` asks every registration of the metadata log. Brokers that are gone can be
unregistered (KIP-185), controllers since the level 4.4-IV2 (KIP-1312).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

UNREGISTERS_CONTROLLERS: Final = 33
"""The level 4.4-IV2."""


class Registration(NamedTuple):
    """A registered node.

    Attributes:
        node: its id.
        is_controller: otherwise it is a broker.
        level: the newest ``metadata.version`` that it supports; None is unknown.
        is_present: of a broker whether it is unfenced, of a controller whether it is a voter; None is unknown.
    """

    node: int
    is_controller: bool
    level: int | None
    is_present: bool | None


def blockers(registrations: Iterable[Registration], target: int) -> list[Registration]:
    """Return the registrations that do not support a level, controllers first."""
    too_old = (each for each in registrations if each.level is not None and each.level < target)
    return sorted(too_old, key=lambda each: (not each.is_controller, each.node))


def blocks(each: Registration) -> str:
    """Say what a registration is of, and what it supports."""
    node = f"{'controller' if each.is_controller else 'broker'} {each.node}"
    gone = ", which is no voter" if each.is_controller else ", which is down"
    return f"{node}{gone if each.is_present is False else ''} (supports {each.level})"


def unblocked_by(blocking: Iterable[Registration], finalized: int) -> Iterator[str]:
    """Say for each registration that blocks what unblocks it, at the level that the cluster uses."""
    for each in blocking:
        if not each.is_controller:
            gone = f", or kafka-cluster.sh unregister --id {each.node} if it is gone for good"
            yield f"upgrade broker {each.node}{'' if each.is_present else gone}"
        elif each.is_present:
            yield f"upgrade controller {each.node}"
        elif finalized >= UNREGISTERS_CONTROLLERS:
            yield f"kafka-cluster.sh unregister-controller --id {each.node} if controller {each.node} is gone for good"
        else:
            yield (
                f"start a controller of the new version with the id {each.node} once, as an observer, so that it "
                "registers again (below the level 4.4-IV2 the registration of a controller cannot be deleted)"
            )
