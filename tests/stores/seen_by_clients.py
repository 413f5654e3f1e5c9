"""What the clients see of each fault, and what the store has after it: tests for a file of each server.

Such a file has a fixture ``direct``, the store, and a class of tests that is derived from this one.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import obstore
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from obstore.exceptions import AlreadyExistsError, GenericError

from deploy.sandbox.waiting import wait_until
from tests.stores.fault_proxy import FaultProxy, fault_proxy
from tests.stores.faults import Fault, to
from tests.stores.serving import listens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ObjectStore

    from tests.stores.store import Store

BODY: Final = bytes(range(256)) * 40
LARGE: Final = BODY * 400  # more than the buffers of two sockets hold
PART: Final = 5 << 20  # the smallest that S3 takes
ENTRY: Final = r"/_delta_log/\d{20}\.json"


def tries(retries: int) -> dict[str, Any]:
    """Return how often a request is repeated, at once."""
    soon = dt.timedelta(milliseconds=10)
    backoff = {"init_backoff": soon, "max_backoff": soon, "base": 2}
    return {"max_retries": retries, "retry_timeout": dt.timedelta(seconds=30), "backoff": backoff}


class FaultsSeen:
    """Each test has a proxy of its own, and names of its own in the bucket."""

    @pytest.fixture
    def proxy(self, direct: Store) -> Iterator[FaultProxy]:
        with fault_proxy(direct) as running:
            yield running

    @pytest.fixture
    def name(self, request: pytest.FixtureRequest) -> str:
        return f"seen/{request.node.originalname}"

    def test_the_store_listens_at_no_other_address_of_this_machine(self, direct: Store) -> None:
        assert listens(direct.port)
        assert not listens(direct.port, "127.0.0.2")

    def test_what_has_no_fault_passes_unchanged(self, proxy: FaultProxy, name: str) -> None:
        client = proxy.store.opened()
        assert obstore.put(client, name, LARGE, mode="create", use_multipart=False)["e_tag"]
        assert bytes(obstore.get(client, name).bytes()) == LARGE
        assert bytes(obstore.get_range(client, name, start=256, end=512)) == BODY[:256]
        assert obstore.head(client, name)["size"] == len(LARGE)
        listed = obstore.list(client, prefix="seen", offset=name[:-1]).collect()
        assert (listed[0]["path"], listed[0]["size"]) == (name, len(LARGE))
        with pytest.raises(AlreadyExistsError):
            obstore.put(client, name, BODY, mode="create")
        obstore.delete(client, name)
        with pytest.raises(FileNotFoundError):
            obstore.get(client, name)

    def test_an_upload_in_parts_arrives(self, proxy: FaultProxy, direct: Store, name: str) -> None:
        whole = LARGE * 2
        obstore.put(proxy.store.opened(), name, iter([whole]), use_multipart=True, chunk_size=PART)
        assert bytes(obstore.get(direct.opened(), name).bytes()) == whole
        assert proxy.counts["PUT", "other"] >= len(whole) // PART

    @pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.BUSY_AFTER])
    def test_done_and_not_answered_looks_like_a_failure_or_like_anothers_object(
        self, proxy: FaultProxy, direct: Store, name: str, fault: Fault
    ) -> None:
        for retries, seen in ((0, GenericError), (3, AlreadyExistsError)):
            each = f"{name}-{fault.name}-{retries}"
            rule = proxy.fault(fault, to("PUT", each), times=1)
            with pytest.raises(seen):
                obstore.put(proxy.store.opened(retry_config=tries(retries)), each, BODY, mode="create")
            assert len(rule.hit) == 1
            assert bytes(obstore.get(direct.opened(), each).bytes()) == BODY

    def test_503_before_leaves_nothing_behind_and_is_cured_by_a_repetition(
        self, proxy: FaultProxy, direct: Store, name: str
    ) -> None:
        proxy.fault(Fault.BUSY_BEFORE, to("PUT", name), times=2)
        with pytest.raises(GenericError, match="503"):
            obstore.put(proxy.store.opened(retry_config=tries(0)), name, BODY, mode="create")
        with pytest.raises(FileNotFoundError):
            obstore.head(direct.opened(), name)
        obstore.put(proxy.store.opened(retry_config=tries(3)), name, BODY, mode="create")
        assert proxy.counts == Counter({("PUT", "other"): 3})

    def test_what_hangs_before_the_store_arrives_when_it_is_released_after_the_client_has_gone(
        self, proxy: FaultProxy, direct: Store, name: str
    ) -> None:
        rule = proxy.fault(Fault.HANGS_BEFORE, to("PUT", name))
        with pytest.raises(GenericError):
            obstore.put(proxy.store.opened(retry_config=tries(0), timeout="300ms"), name, BODY, mode="create")
        with pytest.raises(FileNotFoundError):
            obstore.head(direct.opened(), name)
        rule.release()
        wait_until(lambda: _has(direct.opened(), name), "what hung to arrive")

    def test_what_hangs_after_the_store_is_there_and_its_answer_comes_when_it_is_released(
        self, proxy: FaultProxy, direct: Store, name: str
    ) -> None:
        rule = proxy.fault(Fault.HANGS_AFTER, to("PUT", name))
        answers: list[object] = []
        client = proxy.store.opened()
        putting = threading.Thread(target=lambda: answers.append(obstore.put(client, name, BODY, mode="create")))
        putting.start()
        wait_until(lambda: _has(direct.opened(), name), "the object")
        assert (len(rule.hit), answers) == (1, [])
        rule.release()
        putting.join(30)
        assert len(answers) == 1

    def test_a_cut_upload_leaves_nothing_behind(self, proxy: FaultProxy, direct: Store, name: str) -> None:
        proxy.fault(Fault.UPLOAD_CUT, to("PUT", name), times=1)
        with pytest.raises(GenericError):
            obstore.put(proxy.store.opened(retry_config=tries(0)), name, LARGE, mode="create", use_multipart=False)
        with pytest.raises(FileNotFoundError):
            obstore.head(direct.opened(), name)

    def test_a_cut_answer_fails_or_is_fetched_again(self, proxy: FaultProxy, direct: Store, name: str) -> None:
        obstore.put(direct.opened(), name, LARGE, use_multipart=False)
        proxy.fault(Fault.ANSWER_CUT, to("GET", name), times=2)
        with pytest.raises(GenericError):
            obstore.get(proxy.store.opened(retry_config=tries(0)), name).bytes()
        assert bytes(obstore.get(proxy.store.opened(retry_config=tries(3)), name).bytes()) == LARGE
        assert proxy.counts == Counter({("GET", "other"): 3})

    def test_each_request_takes_a_round_trip_longer(self, proxy: FaultProxy, name: str) -> None:
        client = proxy.store.opened()
        obstore.put(client, name, BODY)
        proxy.round_trip_seconds = 0.2
        began = time.monotonic()
        for _ in range(2):
            obstore.head(client, name)
        assert 0.4 <= time.monotonic() - began < 2.0

    def test_a_commit_whose_answer_is_lost_looks_like_that_of_another_writer(
        self, proxy: FaultProxy, direct: Store, name: str
    ) -> None:
        url, options = f"{direct.url}/{name}", proxy.store.options
        write_deltalake(url, pa.table({"writer": [0]}), storage_options=options)
        proxy.counts.clear()
        proxy.fault(Fault.ANSWER_LOST, to("PUT", ENTRY), times=1)
        once = CommitProperties(max_commit_retries=0, custom_metadata={"writer": "me"})
        row = pa.table({"writer": [1]})
        with pytest.raises(CommitFailedError):
            write_deltalake(url, row, mode="append", storage_options=options, commit_properties=once)
        table = DeltaTable(url, storage_options=direct.options)
        assert (table.version(), table.history(1)[0]["writer"]) == (1, "me")
        assert (proxy.counts["PUT", "data"], proxy.counts["PUT", "entry"]) == (1, 2)
        assert proxy.counts["GET", "list"] > 0


def _has(client: ObjectStore, name: str) -> bool:
    try:
        obstore.head(client, name)
    except FileNotFoundError:
        return False
    return True
