"""Azure's blobs: exclusive, and what a client sees of faults before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stores.azure import azurite
from tests.stores.races import raced
from tests.stores.seen_by_clients import FaultsSeen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.store import Store

pytestmark = [pytest.mark.store, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with azurite(tmp_path_factory.mktemp("stores")) as store:
        yield store


class TestFaults(FaultsSeen):
    pass


@pytest.mark.parametrize("by", ["put", "commit"])
def test_of_eight_processes_one_wins_each_name(direct: Store, by: str) -> None:
    race = raced(direct, by=by)
    assert (len(race.winners), race.numbers, race.lost) == (20, {1}, 0)
