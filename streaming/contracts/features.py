"""Which brokers run another version than the others, and whether an upgrade was finished, by feature levels. Pure.

A release of Kafka raises the highest ``metadata.version`` that its brokers support; the cluster uses a new one after
``kafka-features upgrade`` only (KIP-584). Versions that differ in a bug-fix release alone look the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

METADATA_VERSION: Final = "metadata.version"


class FeatureLevels(NamedTuple):
    """One feature.

    Attributes:
        finalized: the level that the cluster uses; 0 is off.
        supported: the highest level that each broker supports.
    """

    finalized: int
    supported: Mapping[int, int]

    @property
    def behind(self) -> list[int]:
        """The brokers that support less than another one."""
        newest = max(self.supported.values(), default=0)
        return sorted(broker for broker, level in self.supported.items() if level < newest)


class BrokerVersions(NamedTuple):
    """What the feature levels say of the brokers' versions.

    Attributes:
        mixed: each feature of which some brokers support less than others, and these brokers.
        unused: the ``metadata.version`` that every broker supports while the cluster uses an older one; else None.
    """

    mixed: dict[str, list[int]]
    unused: int | None


def versions_of(features: Mapping[str, FeatureLevels]) -> BrokerVersions:
    """Compare what brokers support and what the cluster uses.

    Other features than ``metadata.version`` are switched on by choice, so a lower level of theirs is no upgrade to end.
    """
    mixed = {name: behind for name, levels in sorted(features.items()) if (behind := levels.behind)}
    metadata = features.get(METADATA_VERSION, FeatureLevels(0, {}))
    newest = min(metadata.supported.values(), default=0)
    return BrokerVersions(mixed, newest if newest > metadata.finalized and METADATA_VERSION not in mixed else None)
