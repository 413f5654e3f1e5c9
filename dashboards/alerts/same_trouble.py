"""What keeps a page quiet while another one says what matters more of the same trouble: somebody is awake already.

Alertmanager cannot do it: a page that it inhibits after it was notified sends no "resolved".
"""

from __future__ import annotations

from typing import Final

from dashboards.alerts.templates import firing

OFFLINE: Final = "KafkaOfflinePartitions"
UNDER_MIN_ISR: Final = "KafkaUnderMinIsr"
UNCLEAN_ELECTION: Final = "KafkaUncleanElection"
MORE: Final = "KafkaMorePartitionsUnavailable"
BROKER_LOST: Final = "KafkaBrokerLost"
BURNS_FAST: Final = "KafkaAvailabilityBurnsFast"


def not_beside(condition: str, alert: str, *others: str, seconds: int) -> str:
    """Return the condition where no other alert of the cluster began just now, unless the alert itself fires already.

    Args:
        condition: PromQL with the label cluster.
        alert: whose condition it is.
        others: alerts that have to be evaluated first.
        seconds: alerts that began longer ago do not count: what is added to them is new trouble.
    """
    pattern = "|".join(others)
    fires = f'ALERTS{{alertname=~"{pattern}", alertstate="firing"}}'
    age = "timestamp(ALERTS_FOR_STATE) - ALERTS_FOR_STATE"  # not time(): a back-test has another clock
    return (
        f"({condition})\n"
        f"unless on (cluster) ({fires} and on (cluster, alertname) {age} < {seconds}\n"
        f"  unless on (cluster) {firing(alert)})"
    )
