"""The table of docs/sizing.md: what it follows from, and that the page has it as it is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.builder import costs
from tests.benchmarks import sizes
from tests.benchmarks.sizes import LARGEST_SHARD, LOOKS, Measurement, Size, measurements, rounded, rows, size_of

PAGE = Path(__file__).parents[1] / "docs" / "sizing.md"
EASY = {
    "STATE": 4_000, "SAMPLES": 1_000, "ROUND": 10, "EXECUTOR": 500, "DRIVER": 900, "OF_CLUSTER": 1,
    "FILES_PUT": 100, "FILES_READ": 1_000, "OTHER_WRITES": 50, "OTHER_READS": LOOKS + 500,
}  # fmt: skip


@pytest.fixture
def easy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in EASY.items():
        monkeypatch.setattr(sizes, name, Measurement(value, "", ""))


def sized(clusters: int, partitions: int) -> Size:
    size = size_of(clusters, partitions)
    assert size is not None
    return size


def test_the_page_has_the_tables_that_the_command_prints() -> None:
    page = PAGE.read_text()
    assert "\n".join(rows([1, 10, 100], [10_000, 1_000_000])) in page
    assert "\n".join(measurements()) in page


@pytest.mark.usefixtures("easy")
def test_executors_are_as_many_as_samples_need_at_half_a_core_and_no_more_than_clusters() -> None:
    # A million partitions take 10 s of processor time, each 10 s: two executors that are half busy.
    assert [sized(clusters, 1_000_000).executors for clusters in (1, 2, 10)] == [1, 2, 2]
    assert sized(1, 1_000_000).offsets_seconds == 20, "one cannot be half busy: it samples half as often"


@pytest.mark.usefixtures("easy")
def test_an_executor_has_room_for_its_share_of_a_lost_one() -> None:
    two, four = sized(2, 1_000_000), sized(4, 2_000_000)
    assert two.executor == 500 + 1_000_000 * 5_000 / 1e6, "both clusters are on the one that is left"
    assert (four.executors, four.executor) == (4, 500 + 2 * 500_000 * 5_000 / 1e6), "a cluster is never cut"


@pytest.mark.usefixtures("easy")
def test_driver_and_requests_grow_with_clusters_and_not_with_partitions() -> None:
    small, large = sized(10, 10_000), sized(10, 7_000_000)
    assert (
        (small.driver, small.writes, small.reads)
        == (large.driver, large.writes, large.reads)
        == (909, 1_500, 15_000 + LOOKS)
    )
    assert small.dollars == pytest.approx((1_500 * 5 + (15_000 + LOOKS) * 0.4) / 1e6)
    assert sized(100, 10_000).writes == 100 * 100 + 18 * 50, "commits are one in a second at most, files are not"


def test_a_cluster_that_no_core_can_fold_has_no_size() -> None:
    assert size_of(1, LARGEST_SHARD) is not None
    assert size_of(1, LARGEST_SHARD + 1) is None
    assert "does not fit" in [*rows([1], [7_000_000])][-1]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (7.4, "7"), (1_234, "1,200"), (98_765, "99,000"), (9_960_000, "10,000,000")]
)
def test_two_digits_of_a_number_count(number: float, text: str) -> None:
    assert rounded(number) == text


def test_the_tables_of_costs_have_each_measured_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = {"collect": (100, 0.01), "job": (800, 0.05), "export": (120, 0.02), "run": (99, 0.001)}
    monkeypatch.setattr(costs, "cells", lambda: {(10, 1_000): cell, (1, 100_000): cell})
    text = costs.with_costs("before\n<!-- cost: x -->\nold\n<!-- end of the cost -->\nafter\n")
    assert "| 1 cluster |  | 1.1 GB, 0.08 cores |\n| 10 clusters | 1.1 GB, 0.08 cores |  |\n" in text
    assert text.startswith("before\n<!-- cost: x -->\n")
    assert text.endswith("<!-- end of the cost -->\nafter\n")
    assert "old" not in text
    row = "100 MB, 0.01 cores | 800 MB, 0.05 cores | 120 MB, 0.02 cores | 99 MB, 0.00 cores | 1.1 GB, 0.08 cores |"
    text = costs.with_costs("<!-- cost of each process: x -->\n<!-- end of the cost -->\n")
    assert f"| --- |\n| 1 | 100,000 | {row}\n| 10 | 1,000 | {row}\n" in text


@pytest.mark.parametrize("page", [costs.README, costs.SIZES])
def test_the_pages_have_the_costs_that_were_measured(page: Path) -> None:
    text = page.read_text()
    assert costs.with_costs(text) == text
    assert "<!-- cost" in text
    assert costs.cells(), "python -m tests.benchmarks.cost measures them"
