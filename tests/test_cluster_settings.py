"""A configuration of several clusters: each as if it stood alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streaming.cluster_settings import each_cluster, filled
from streaming.errors import ConfigurationError
from streaming.settings import ClusterSettings, Settings, load
from tests.test_settings import REFERENCE, write

TWO = """
[[cluster]]
name = "prod"
bootstrap_servers = "a:9092"
[cluster.client]
"security.protocol" = "SSL"
[cluster.collect]
primary_source = "poll"
[cluster.collect.broker_metrics]
"1" = "http://a:7071/metrics"

[[cluster]]
name = "staging"
bootstrap_servers = "b:9092"

[collect]
collector = "collector-1"
poll_interval = "7s"
"""


def test_each_cluster_has_its_own_keys_and_those_of_all(tmp_path: Path) -> None:
    prod, staging = each_cluster(write(tmp_path, TWO))
    assert (prod.cluster.bootstrap_servers, staging.cluster.bootstrap_servers) == ("a:9092", "b:9092")
    assert (prod.cluster.client, staging.cluster.client) == ({"security.protocol": "SSL"}, {})
    assert (prod.collect.primary_source, staging.collect.primary_source) == ("poll", "auto")
    assert (prod.collect.broker_metrics, staging.collect.broker_metrics) == ({"1": "http://a:7071/metrics"}, {})
    assert {each.collect.poll_interval for each in (prod, staging)} == {7.0}


def test_sources_of_two_clusters_have_different_names(tmp_path: Path) -> None:
    names = [each.collect.collector for each in each_cluster(write(tmp_path, TWO))]
    assert names == ["collector-1@prod", "collector-1@staging"]


def test_the_single_table_stays_what_it_was(tmp_path: Path) -> None:
    path = write(tmp_path, '[cluster]\nbootstrap_servers = "a:9092"\n')
    assert each_cluster(path) == [load(path)]
    assert each_cluster(None) == [Settings()]


def test_what_asks_no_cluster_reads_the_rest(tmp_path: Path) -> None:
    settings = load(write(tmp_path, TWO))
    assert (settings.cluster, settings.collect.poll_interval) == (ClusterSettings(), 7.0)


def test_one_of_several_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path, TWO)
    assert [each.cluster.bootstrap_servers for each in each_cluster(path, "staging")] == ["b:9092"]
    with pytest.raises(ConfigurationError, match=r"no cluster of the configuration is called 'test'; it has: prod, s"):
        each_cluster(path, "test")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cluster = []\n", "cluster is an empty list"),
        ("cluster = [3]\n", r"cluster must be a table: write \[cluster\], or \[\[cluster\]\] for each"),
        ("[[cluster]]\n", r"\[\[cluster\]\] number 1 needs a name"),
        ('[[cluster]]\nname = "EU/prod"\n', r"\[\[cluster\]\] number 1 needs a name of letters, digits"),
        ('[[cluster]]\nname = "a"\n[[cluster]]\nname = "a"\n', r"two \[\[cluster\]\] are called 'a'"),
        ('[[cluster]]\nname = "a"\nservers = "b:1"\n', r"\[\[cluster\]\] a: unknown key cluster\.servers; the keys of"),
        (
            '[[cluster]]\nname = "a"\n[cluster.collect]\npoll_interval = "0s"\n',
            r"\[\[cluster\]\] a: collect\.poll_interval",
        ),
        ('[[cluster]]\nname = "a"\ncollect = 3\n', r"\[\[cluster\]\] a: collect must be a table"),
        ('[[cluster]]\nname = "a"\n[cluster.collect]\nlisten = ":1"\n', "listen is of the collector, not of a cluster"),
        ('[collect.broker_metrics]\n1 = "http://a"\n[[cluster]]\nname = "a"\n', "collect.broker_metrics is of one clu"),
        ('[collect.spark_checkpoints]\nq = "/a"\n[[cluster]]\nname = "a"\n', "collect.spark_checkpoints is of one clu"),
        ('[export]\nport = 1\n[[cluster]]\nname = "a"\n', r"^unknown key export\.port"),
    ],
)
def test_a_wrong_cluster_is_one_sentence_that_names_it(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        each_cluster(write(tmp_path, text))


def test_the_example_of_the_reference_has_two_clusters(tmp_path: Path) -> None:
    example = REFERENCE.read_text().partition("# Several clusters")[2].partition("\n\n")[0]
    lines = re.findall(r"^#     (.*)$", example, re.MULTILINE)
    names = [each.cluster.name for each in each_cluster(write(tmp_path, "\n".join(lines)))]
    assert len(names) == 2


def test_a_secret_that_is_missing_names_its_cluster(tmp_path: Path) -> None:
    text = TWO.replace('"SSL"', '"${NOT_SET_ANYWHERE}"')
    with pytest.raises(ConfigurationError, match=r"^\[\[cluster\]\] prod: cluster\.client security\.protocol refers"):
        filled(each_cluster(write(tmp_path, text)))
