"""BrokerVersions of brokers, by the feature levels that they support."""

from __future__ import annotations

from streaming.contracts.durability import BrokerVersions, FeatureLevels, versions_of

METADATA = "metadata.version"
KRAFT = "kraft.version"


def test_brokers_of_one_version_that_the_cluster_uses_are_in_order() -> None:
    features = {METADATA: FeatureLevels(30, {1: 30, 2: 30}), KRAFT: FeatureLevels(0, {1: 1, 2: 1})}
    assert versions_of(features) == BrokerVersions({}, None)
    assert versions_of({}) == BrokerVersions({}, None)


def test_a_broker_that_supports_less_than_another_runs_an_older_version() -> None:
    features = {METADATA: FeatureLevels(27, {1: 30, 2: 27, 3: 27}), KRAFT: FeatureLevels(1, {1: 1, 2: 0, 3: 1})}
    assert versions_of(features) == BrokerVersions({METADATA: [2, 3], KRAFT: [2]}, None)


def test_an_upgrade_ends_with_the_level_that_every_broker_supports() -> None:
    assert versions_of({METADATA: FeatureLevels(27, {1: 30, 2: 30})}) == BrokerVersions({}, 30)
    assert versions_of({METADATA: FeatureLevels(30, {1: 30, 2: 30})}).unused is None
