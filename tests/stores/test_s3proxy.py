"""A store that takes conditions and does not hold them under a race: what a probe of a store must find."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError

from tests.stores.fault_proxy import fault_proxy
from tests.stores.races import raced
from tests.stores.s3 import s3proxy
from tests.stores.store import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stores.store import Store

pytestmark = [pytest.mark.store, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with s3proxy(tmp_path_factory.mktemp("stores")) as store:
        yield store


def test_without_a_race_a_name_is_created_once(direct: Store) -> None:
    client = direct.opened()
    obstore.put(client, "once", b"one", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(client, "once", b"two", mode="create")


def test_in_a_race_several_win_a_name_and_what_they_wrote_is_lost(direct: Store) -> None:
    race = raced(direct)
    assert max(race.numbers) > 1
    assert race.lost > 0


def test_an_upload_in_chunks_arrives(direct: Store) -> None:
    pieces = [b"a" * 100_000, b"b", b"c" * 70_000]
    with fault_proxy(direct) as proxy:
        client = http.client.HTTPConnection("127.0.0.1", proxy.store.port, timeout=30)
        for name in ("one", "two"):  # by one connection, which stays open
            client.request("PUT", f"/{BUCKET}/chunks-{name}", body=iter(pieces), encode_chunked=True)
            answer = client.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
            client.request("GET", f"/{BUCKET}/chunks-{name}")
            assert client.getresponse().read() == b"".join(pieces)
        client.close()
