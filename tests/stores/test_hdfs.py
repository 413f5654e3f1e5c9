"""HDFS is exclusive: creating without overwriting, renaming without overwriting, and commits of delta-rs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.hdfs import hdfs
from tests.stores.races import raced
from tests.stores.serving import listens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.store import Store

pytestmark = [pytest.mark.store, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with hdfs(tmp_path_factory.mktemp("stores")) as store:
        yield store


def test_it_listens_at_no_other_address_of_this_machine(direct: Store) -> None:
    assert listens(direct.port)
    assert not listens(direct.port, "127.0.0.2")


@pytest.mark.parametrize("by", ["create", "rename", "commit"])
def test_of_eight_processes_one_wins_each_name(direct: Store, by: str) -> None:
    race = raced(direct, by=by)
    assert (len(race.winners), race.numbers, race.lost) == (20, {1}, 0)
