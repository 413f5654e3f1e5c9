"""What is planned, and so no reason for an alert.

That is: causes of ISR removals, brokers that were stopped on purpose, and those for which planned work was announced
(``isrwatch maintenance``).

Partitions that are offline or under min ISR, lost records and unclean elections are never planned.
"""

from __future__ import annotations

from typing import Final

from dashboards.promql import EVERYWHERE
from dashboards.signals import brokers, monitor

# Causes of planned operations. Any other cause raises the alert, also one that a later version introduces.
PLANNED_CAUSES: Final = ("controlled_shutdown", "reassignment", "restart")
UNPLANNED_CAUSES: Final = f'cause!~"{"|".join(PLANNED_CAUSES)}"'

_OF_BROKERS: Final = 'role="broker"'
DOWN: Final = (
    f"({brokers.FENCED.now()} == 1 or ({brokers.REGISTERED.now()} == 0 "
    f"and on (cluster, broker) {brokers.HOSTED.now()} > 0))"
)
"""Brokers that are fenced, or are not registered although replicas are assigned to them, by cluster and broker."""
STOPPED_ON_PURPOSE: Final = f"({brokers.SHUTTING_DOWN.now()} == 1)"
"""Brokers that shut down in a controlled way and have not registered since, by cluster and broker."""

ANSWERING: Final = (
    f"label_replace(max by (cluster, node) ({monitor.LISTENER_UP.series(EVERYWHERE, _OF_BROKERS)}) == 1, "
    '"broker", "$1", "node", "(.+)")'
)
"""Brokers of which a listener answers the collector, by cluster and broker."""


def unannounced(condition: str, within: str = "") -> str:
    """Leave out brokers for which planned work is announced; the condition has the labels cluster and broker.

    A condition that looks back says how far (``within``): what it counts may have happened during work that is over.
    """
    announced = brokers.MAINTENANCE
    past = f"max by (cluster, broker) (max_over_time({announced.series()}[{within}]))"
    return f"{condition}\nunless on (cluster, broker) ({past if within else announced.now()} == 1)"


def unplanned(condition: str) -> str:
    """Leave out brokers that were stopped on purpose, too."""
    return unannounced(f"{condition}\nunless on (cluster, broker) {STOPPED_ON_PURPOSE}")
