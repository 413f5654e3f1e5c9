"""The stores that tables may lie in: a folder and a server of S3 in every run, the others in the long one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from streaming.delta.store.place import Place, place_of
from tests.stores.azure import azurite
from tests.stores.hdfs import hdfs
from tests.stores.s3 import moto, versitygw
from tests.stores.store import Store

Start = Callable[[Path], AbstractContextManager[Store]]
REMOTE: dict[str, Start] = {"moto": moto, "versitygw": versitygw, "azurite": azurite, "hdfs": hdfs}
LONG = [pytest.param(name, marks=pytest.mark.long) for name in REMOTE if name != "moto"]


@pytest.fixture(scope="module", params=["folder", "moto", *LONG])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place of each kind, empty."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "folder":
        yield folder
        return
    with REMOTE[request.param](folder) as store:
        yield place_of(f"{store.url}/root", store.options)


@pytest.fixture
def place(root: Place, request: pytest.FixtureRequest) -> Place:
    """A folder of its own for each test."""
    return root / f"test-{abs(hash(request.node.nodeid))}"
