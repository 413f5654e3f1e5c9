"""A store that takes conditions and does not hold them under a race: what a probe of a store must find."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from tests.stores.races import raced
from tests.stores.s3 import s3proxy
from tests.stores.serving import listens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.store import Store

pytestmark = [pytest.mark.store, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with s3proxy(tmp_path_factory.mktemp("stores")) as store:
        yield store


def test_it_listens_at_no_other_address_of_this_machine(direct: Store) -> None:
    assert listens(direct.port)
    assert not listens(direct.port, "127.0.0.2")


def test_without_a_race_a_name_is_created_once(direct: Store) -> None:
    client = direct.opened()
    obstore.put(client, "once", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(client, "once", b"two", mode="create")


def test_in_a_race_several_win_a_name_and_what_they_wrote_is_lost(direct: Store) -> None:
    race = raced(direct)
    assert max(race.numbers) > 1
    assert race.lost > 0
