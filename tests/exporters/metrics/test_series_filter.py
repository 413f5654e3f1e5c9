"""What a user leaves out has no series, and is counted all the same."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporters.metrics.catalogue import CATALOGUE, FAMILIES
from exporters.metrics.compression import plain
from exporters.metrics.exposition import Exposition
from exporters.metrics.jmx_exposition import JmxExposition
from exporters.metrics.prepared import ScrapeRequest
from exporters.metrics.sample_ages import oldest_ages
from exporters.metrics.series_filter import EVERYTHING, SeriesFilter
from exporters.read_model.reader import TablesReader
from streaming.settings import EXPORT_FAMILIES, CollectSettings, ExportSettings
from tests.exporters.metrics.test_exposition import STALE_AFTER, Samples, exposed, names, samples

ODD = 'odd "topic"\\'


def scraped(reader: TablesReader, now: int, **settings: Any) -> Samples:
    chosen = SeriesFilter(ExportSettings(**settings))
    return samples(exposed(reader, now, exposition=Exposition(STALE_AFTER, chosen=chosen)))


def values_of(shown: Samples, label: str) -> dict[str, set[str]]:
    """The metrics with a label, and the values that it has."""
    values: dict[str, set[str]] = defaultdict(set)
    for name, labels in shown:
        if label in dict(labels):
            values[name].add(dict(labels)[label])
    return values


def without_labels(shown: Samples, *labels: str) -> Samples:
    """The samples of what has none of these labels; without those that are about the exposition itself."""
    return {
        key: value
        for key, value in shown.items()
        if not {*labels} & dict(key[1]).keys() and not key[0].startswith("kafka_replication_exporter_")
    }


@pytest.mark.parametrize(
    ("settings", "topics"),
    [
        ({"topics": ("ord*",)}, {"orders"}),
        ({"topics": ("!*rder*",)}, {ODD}),
        ({"topics": ("*", "!odd*")}, {"orders"}),
        ({"topics": ("!*",)}, set()),
    ],
)
def test_topics_that_are_left_out_have_no_series_and_are_counted(
    settings: dict[str, tuple[str, ...]], topics: set[str], still: TablesReader, fresh: int
) -> None:
    everything, shown = scraped(still, fresh), scraped(still, fresh, **settings)
    expected = {name: values & topics for name, values in values_of(everything, "topic").items() if values & topics}
    assert values_of(shown, "topic") == expected
    assert without_labels(shown, "topic") == without_labels(everything, "topic")
    assert {key: shown[key] for key in shown if "topic" in dict(key[1])}.items() <= everything.items()


def test_topics_that_are_left_out_take_no_place_of_the_partitions_with_series(still: TablesReader, fresh: int) -> None:
    chosen = SeriesFilter(ExportSettings(topics=("orders",)))
    exposition = Exposition(STALE_AFTER, detail_limit=80, chosen=chosen)  # of one partition with three replicas or two
    shown = samples(exposed(still, fresh, exposition=exposition))
    # The other topic is offline, and would come first.
    assert values_of(shown, "partition")["kafka_replication_partition_leader"] == {"0", "1"}
    assert shown["kafka_replication_exporter_partitions_without_detail", (("cluster", "main"),)] == 0


def test_groups_that_are_left_out_have_no_series_under_any_name(still: TablesReader, fresh: int) -> None:
    everything = scraped(still, fresh)
    shown = scraped(still, fresh, groups=("pay*", "idle*", "other*", "!other"))
    for label in ("group", "consumergroup"):
        before = values_of(everything, label)
        assert {"other", "payments"} <= set().union(*before.values())
        expected = {name: values & {"payments", "idle"} for name, values in before.items()}
        assert values_of(shown, label) == {name: values for name, values in expected.items() if values}
    assert without_labels(shown, "group", "consumergroup") == without_labels(everything, "group", "consumergroup")


def test_names_of_mbeans_are_left_out_too(still: TablesReader, fresh: int) -> None:
    ages, snapshot = oldest_ages(STALE_AFTER, CollectSettings()), still.refresh()
    jmx = {
        chosen: samples(
            plain(JmxExposition(STALE_AFTER, ages, chosen).render(snapshot, fresh, ScrapeRequest())).decode()
        )
        for chosen in (EVERYTHING, SeriesFilter(ExportSettings(topics=("!orders",))))
    }
    everything, shown = jmx.values()
    assert {"orders", ""} <= set().union(*values_of(everything, "topic").values())
    assert "orders" not in set().union(*values_of(shown, "topic").values())
    assert without_labels(shown, "topic") == without_labels(everything, "topic")


def test_the_families_are_those_of_the_settings_and_of_the_catalogue() -> None:
    assert tuple(FAMILIES) == EXPORT_FAMILIES
    assert {metric.name for family in FAMILIES.values() for metric in family} <= {each.name for each in CATALOGUE}


@pytest.mark.parametrize("family", EXPORT_FAMILIES)
def test_a_family_that_is_left_out_has_no_series_and_all_others_have(
    family: str, still: TablesReader, fresh: int
) -> None:
    everything, shown = scraped(still, fresh), scraped(still, fresh, disabled=(family,))
    left_out = {metric.name for metric in FAMILIES[family]}
    assert names(everything) - names(shown) == left_out
    assert shown["kafka_replication_exporter_family_exposed", (("family", family),)] == 0
    assert sum(value for (name, _), value in shown.items() if name.endswith("_family_exposed")) == len(FAMILIES) - 1
    text = exposed(
        still,
        fresh,
        ScrapeRequest(names=frozenset(left_out)),
        Exposition(STALE_AFTER, chosen=SeriesFilter(ExportSettings(disabled=(family,)))),
    )
    assert list(text_string_to_metric_families(text)) == []


def test_the_log_and_a_metric_say_what_is_left_out(still: TablesReader, fresh: int) -> None:
    assert EVERYTHING.sentence() is None
    settings = ExportSettings(topics=("!tmp-*",), disabled=("quorum", "groups"))
    assert SeriesFilter(settings).sentence() == (
        "series are left out by --topic '!tmp-*', --no-collector.groups, --no-collector.quorum; "
        "counts of clusters and brokers include them"
    )
    shown = scraped(still, fresh, topics=("orders", "!tmp-*"))
    patterns = {
        (dict(labels)["option"], dict(labels)["pattern"])
        for name, labels in shown
        if name == "kafka_replication_exporter_filter_info"
    }
    assert patterns == {("topic", "orders"), ("topic", "!tmp-*"), ("group", "*")}
