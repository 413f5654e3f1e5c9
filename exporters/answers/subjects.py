"""Every subject that can be asked about, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from exporters.answers.brokers import BROKERS
from exporters.answers.groups import GROUP_SUBJECT
from exporters.answers.partitions import CLUSTERS, PARTITION, TOPICS
from exporters.answers.replicas import DIRECTORIES, REASSIGNMENTS, REPLICAS
from exporters.answers.samples import METRICS, QUORUM, TRANSACTION_SUBJECT
from exporters.answers.settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporters.answers.subject import Subject

SUBJECTS: Final[Mapping[str, Subject]] = {
    each.name: each
    for each in (
        *(CLUSTERS, BROKERS, TOPICS, PARTITION, REPLICAS, REASSIGNMENTS, DIRECTORIES),
        *(GROUP_SUBJECT, TRANSACTION_SUBJECT, QUORUM, SETTINGS, METRICS),
    )
}
