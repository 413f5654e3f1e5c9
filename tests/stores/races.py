"""Several processes create one name at the same moment, round after round: how many are told that they did.

A store on which Delta tables may lie gives each name to one of them. The way to create is the client's: a PUT with
``If-None-Match: *`` by obstore; on HDFS a rename that does not overwrite, or a create that does not; a commit of
delta-rs that is not repeated.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import obstore
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from hdfs_native import Client, WriteOptions
from obstore.exceptions import AlreadyExistsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.synchronize import Barrier

    from tests.stores.store import Store

PROCESSES: Final = 8
ROUNDS: Final = 20
START_SECONDS: Final = 120.0
SLOWEST_SECONDS: Final = 60.0
TABLE: Final = "raced-table"


@dataclass(frozen=True, slots=True)
class Race:
    """What the processes were told, and what there is.

    Attributes:
        winners: in each round those that were told they created the name.
        stored: in each round whose content the name has.
    """

    winners: list[list[int]]
    stored: list[int]

    @property
    def numbers(self) -> set[int]:
        """How many won a round, of all rounds: on a store that is exclusive always one."""
        return {len(each) for each in self.winners}

    @property
    def lost(self) -> int:
        """How many were told that they created a name which has another's content."""
        return sum(len(set(each) - {kept}) for each, kept in zip(self.winners, self.stored, strict=True))


def raced(store: Store, *, by: str = "put", processes: int = PROCESSES, rounds: int = ROUNDS) -> Race:
    """Race for a name a round; ``by`` is one of the names in ``WAYS``.

    Raises:
        RuntimeError: a process failed of something else than that the name was taken.
    """
    if by == "commit":
        write_deltalake(f"{store.url}/{TABLE}", pa.table({"number": [0]}), storage_options=store.options)
    spawning = multiprocessing.get_context("spawn")  # a fork of a process with the threads of obstore hangs
    with ProcessPoolExecutor(processes, spawning, _meet_at, (spawning.Barrier(processes),)) as pool:
        futures = [pool.submit(_race, store, by, number, rounds) for number in range(processes)]
        told = [future.result() for future in futures]
    if failed := [each for each in told if isinstance(each, str)]:
        raise RuntimeError("; ".join(failed))
    winners = [[number for number, won in enumerate(told) if won[each]] for each in range(rounds)]
    return Race(winners, [WAYS[by][1](store, each) for each in range(rounds)])


_MEETING: list[Barrier] = []
"""Where the processes wait for each other before a round; each has its own list with the same one in it."""


def _meet_at(barrier: Barrier) -> None:
    _MEETING[:] = [barrier]


def _race(store: Store, by: str, number: int, rounds: int) -> list[bool] | str:
    """Be one of the processes; return in which rounds it won, or of what it failed."""
    (meeting,) = _MEETING
    try:
        create = WAYS[by][0](store)
        meeting.wait(START_SECONDS)
        won = []
        for each in range(rounds):
            meeting.wait(SLOWEST_SECONDS)
            won.append(create(each, number))
    except Exception as error:  # noqa: BLE001 - told to the test, which fails of it
        meeting.abort()
        return f"{type(error).__name__} {error}"
    return won


def _putting(store: Store) -> Callable[[int, int], bool]:
    client = store.opened()

    def put(each: int, number: int) -> bool:
        try:
            obstore.put(client, _name(each), b"%d" % number, mode="create")
        except AlreadyExistsError:
            return False
        return True

    return put


def _got(store: Store, each: int) -> int:
    return int(bytes(obstore.get(store.opened(), _name(each)).bytes()))


def _creating(store: Store) -> Callable[[int, int], bool]:
    client, folder = _hdfs(store, "created")

    def create(each: int, number: int) -> bool:
        try:
            with client.create(f"{folder}/{_name(each)}", WriteOptions(overwrite=False, create_parent=True)) as file:
                file.write(b"%d" % number)
        except FileExistsError:
            return False
        return True

    return create


def _renaming(store: Store) -> Callable[[int, int], bool]:
    client, folder = _hdfs(store, "renamed")

    def rename(each: int, number: int) -> bool:
        draft = f"{folder}/{_name(each)}.{number}"
        with client.create(draft, WriteOptions(overwrite=True, create_parent=True)) as file:
            file.write(b"%d" % number)
        try:
            client.rename(draft, f"{folder}/{_name(each)}", overwrite=False)
        except FileExistsError:
            return False
        return True

    return rename


def _read(folder_name: str) -> Callable[[Store, int], int]:
    def read(store: Store, each: int) -> int:
        client, folder = _hdfs(store, folder_name)
        with client.read(f"{folder}/{_name(each)}") as file:
            return int(file.read())

    return read


def _committing(store: Store) -> Callable[[int, int], bool]:
    def commit(each: int, number: int) -> bool:
        table = DeltaTable(f"{store.url}/{TABLE}", version=each, storage_options=store.options)
        once = CommitProperties(max_commit_retries=0, custom_metadata={"number": str(number)})
        try:
            write_deltalake(table, pa.table({"number": [number]}), mode="append", commit_properties=once)
        except CommitFailedError:
            return False
        return True

    return commit


def _committed(store: Store, each: int) -> int:
    """Say whose commit a version is: the history is that of the whole log."""
    history = DeltaTable(f"{store.url}/{TABLE}", storage_options=store.options).history()
    return next(int(entry["number"]) for entry in history if entry["version"] == each + 1)


def _name(each: int) -> str:
    return f"{each:020d}.json"


def _hdfs(store: Store, name: str) -> tuple[Client, str]:
    """Return a client and a folder of the bucket."""
    address, _, bucket = store.url.removeprefix("hdfs://").partition("/")
    return Client(f"hdfs://{address}"), f"/{bucket}/{name}"


WAYS: Final[dict[str, tuple[Callable[[Store], Callable[[int, int], bool]], Callable[[Store, int], int]]]] = {
    "put": (_putting, _got),
    "create": (_creating, _read("created")),
    "rename": (_renaming, _read("renamed")),
    "commit": (_committing, _committed),
}
