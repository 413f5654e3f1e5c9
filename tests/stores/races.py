"""Several processes create one name at the same moment, round after round: how many are told that they did.

A store on which Delta tables may lie gives each name to one of them. The way to create is the client's: a PUT with
``If-None-Match: *`` by obstore; on HDFS a rename that does not overwrite, or a create that does not; a commit of
delta-rs that is not repeated.
"""

from __future__ import annotations

import multiprocessing
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import obstore
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from hdfs_native import Client, WriteOptions
from obstore.exceptions import AlreadyExistsError

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from tests.stores.store import Store

PROCESSES: Final = 8
ROUNDS: Final = 20
START_SECONDS: Final = 120.0
SLOWEST_SECONDS: Final = 60.0


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
    """Race for a name a round, in a new folder; ``by`` is one of the names in ``WAYS``.

    Raises:
        RuntimeError: a process failed of something else than that the name was taken.
    """
    folder = f"raced-{uuid.uuid4().hex[:8]}"
    if by == "commit":
        write_deltalake(f"{store.url}/{folder}", pa.table({"number": [0]}), storage_options=store.options)
    spawning = multiprocessing.get_context("spawn")  # a fork of a process with the threads of obstore hangs
    with ProcessPoolExecutor(processes, spawning, _meet_at, (spawning.Barrier(processes),)) as pool:
        futures = [pool.submit(_race, WAYS[by], (store, folder), number, rounds) for number in range(processes)]
        told = [future.result() for future in futures]
    if failed := [each for each in told if isinstance(each, str)]:
        raise RuntimeError("; ".join(failed))
    winners = [[number for number, won in enumerate(told) if won[each]] for each in range(rounds)]
    stored = WAYS[by](store, folder).stored
    return Race(winners, [stored(each) for each in range(rounds)])


_MEETING: list[Barrier] = []
"""Where the processes wait for each other before a round; each has its own list with the same one in it."""


def _meet_at(barrier: Barrier) -> None:
    _MEETING[:] = [barrier]


def _race(way: type[Way], place: tuple[Store, str], number: int, rounds: int) -> list[bool] | str:
    """Be one of the processes; return in which rounds it won, or of what it failed."""
    (meeting,) = _MEETING
    try:
        create = way(*place).create
        meeting.wait(START_SECONDS)
        won = []
        for each in range(rounds):
            meeting.wait(SLOWEST_SECONDS)
            won.append(create(each, number))
    except Exception as error:  # noqa: BLE001 - told to the test, which fails of it
        meeting.abort()
        return f"{type(error).__name__} {error}"
    return won


class Way(Protocol):
    """How a client creates names in a folder of a store."""

    def __init__(self, store: Store, folder: str) -> None: ...

    def create(self, each: int, number: int) -> bool:
        """Create the name of a round, with a number for its content; return whether it was not there yet."""

    def stored(self, each: int) -> int:
        """Return the number that the name of a round has for its content."""


class _Put(Way):
    def __init__(self, store: Store, folder: str) -> None:
        self._client, self._folder = store.opened(), folder

    def create(self, each: int, number: int) -> bool:
        try:
            obstore.put(self._client, f"{self._folder}/{each:020d}.json", b"%d" % number, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def stored(self, each: int) -> int:
        return int(bytes(obstore.get(self._client, f"{self._folder}/{each:020d}.json").bytes()))


class _Create(Way):
    def __init__(self, store: Store, folder: str) -> None:
        address, _, bucket = store.url.removeprefix("hdfs://").partition("/")
        self._client, self._folder = Client(f"hdfs://{address}"), f"/{bucket}/{folder}"

    def create(self, each: int, number: int) -> bool:
        return self._written(f"{each:020d}.json", number)

    def _written(self, name: str, number: int) -> bool:
        options = WriteOptions(overwrite=False, create_parent=True)
        try:
            with self._client.create(f"{self._folder}/{name}", options) as file:
                file.write(b"%d" % number)
        except FileExistsError:
            return False
        return True

    def stored(self, each: int) -> int:
        with self._client.read(f"{self._folder}/{each:020d}.json") as file:
            return int(file.read())


class _Rename(_Create):
    def create(self, each: int, number: int) -> bool:
        draft = f"{each:020d}.json.{number}"
        self._written(draft, number)
        try:
            self._client.rename(f"{self._folder}/{draft}", f"{self._folder}/{each:020d}.json", overwrite=False)
        except FileExistsError:
            return False
        return True


class _Commit(Way):
    def __init__(self, store: Store, folder: str) -> None:
        self._url, self._options = f"{store.url}/{folder}", store.options

    def create(self, each: int, number: int) -> bool:
        table = DeltaTable(self._url, version=each, storage_options=self._options)
        once = CommitProperties(max_commit_retries=0, custom_metadata={"number": str(number)})
        try:
            write_deltalake(table, pa.table({"number": [number]}), mode="append", commit_properties=once)
        except CommitFailedError:
            return False
        return True

    def stored(self, each: int) -> int:
        history = DeltaTable(self._url, storage_options=self._options).history()  # that of the whole log
        return next(int(entry["number"]) for entry in history if entry["version"] == each + 1)


WAYS: Final[dict[str, type[Way]]] = {"put": _Put, "create": _Create, "rename": _Rename, "commit": _Commit}
