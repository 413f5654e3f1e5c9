"""The table of docs/sizing.md: what it follows from, and that the page has it as it is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.sizes import LARGEST_SHARD, Measured, rounded, rows, size_of

PAGE = Path(__file__).parents[1] / "docs" / "sizing.md"
EASY = Measured(
    state_bytes=4_000, sample_bytes=1_000, sample_seconds=10e-6, executor=500, driver=900, driver_of_cluster=1,
    writes=1_000, writes_of_cluster=100, reads=10_000, reads_of_cluster=0, dollars_of_writes=5, dollars_of_reads=0.5,
)  # fmt: skip


def test_the_page_has_the_table_that_the_command_prints() -> None:
    assert "\n".join(rows([1, 10, 100], [10_000, 1_000_000, 7_000_000])) in PAGE.read_text()


def test_executors_are_as_many_as_samples_need_at_half_a_core_and_no_more_than_clusters() -> None:
    # A million partitions take 10 s of processor time, each 10 s: two executors that are half busy.
    assert [size.executors for clusters in (1, 2, 10) if (size := size_of(clusters, 1_000_000, EASY))] == [1, 2, 2]
    size = size_of(1, 1_000_000, EASY)
    assert size is not None
    assert size.offsets_seconds == 20, "one cannot be half busy: it samples half as often"


def test_an_executor_has_room_for_its_share_of_a_lost_one() -> None:
    two, four = size_of(2, 1_000_000, EASY), size_of(4, 2_000_000, EASY)
    assert two is not None
    assert four is not None
    assert two.executor == 500 + 1_000_000 * 5_000 / 1e6, "both clusters are on the one that is left"
    assert (four.executors, four.executor) == (4, 500 + 2 * 500_000 * 5_000 / 1e6), "a cluster is never cut"


def test_driver_and_requests_grow_with_clusters_and_not_with_partitions() -> None:
    small, large = size_of(10, 10_000, EASY), size_of(10, 7_000_000, EASY)
    assert small is not None
    assert large is not None
    assert (
        (small.driver, small.writes, small.reads) == (large.driver, large.writes, large.reads) == (909, 2_000, 10_000)
    )
    assert small.dollars == pytest.approx(0.015)


def test_a_cluster_that_no_core_can_fold_has_no_size() -> None:
    assert size_of(1, LARGEST_SHARD, EASY) is not None
    assert size_of(1, LARGEST_SHARD + 1, EASY) is None
    assert "does not fit" in [*rows([1], [7_000_000])][-1]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (7.4, "7"), (1_234, "1,200"), (98_765, "99,000"), (9_960_000, "10,000,000")]
)
def test_two_digits_of_a_number_count(number: float, text: str) -> None:
    assert rounded(number) == text
