"""One commit of a table: its data files, then the entry of the next version, created if it is absent.

It takes two requests to a store, where delta-rs' own ``write`` takes seven. Depends on Delta's protocol, on no row.
"""

from __future__ import annotations

import json
import time
import uuid
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.contracts.identifiers import NOWHERE
from streaming.delta.log.storage import file_place, writing
from streaming.delta.store.objects import put, remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from streaming.delta.store.place import Place

SMALL_ROWS: Final = 500
_SMALL: Final[Mapping[str, Any]] = {"compression": "snappy", "use_dictionary": False, "write_statistics": False}
"""With over a hundred columns a small file consists mostly of per-column pages, so these files have few of them."""
_LARGE: Final[Mapping[str, Any]] = {"compression": "snappy"}
_DENSE: Final[Mapping[str, Any]] = {"compression": "zstd", "write_page_checksum": True, "row_group_size": 65_536}
"""A reader of an hour skips the groups of other hours, by their bounds."""
_TRANSACTION: Final = "txn"


class Packing(Enum):
    """Compression of the files of a commit."""

    QUICK = "quick"
    """As a commit has time for."""
    DENSE = "dense"
    """As well as possible: the files stay for long."""
    STATE = "state"
    """The same of a state: each key has its own times and offsets, so a dictionary would be as long as the column."""


class DataFile(NamedTuple):
    """A data file of a version: its name in the log, its bytes, and the value of each partition column."""

    path: str
    size: int
    partition: Mapping[str, str]


class Layout(NamedTuple):
    """File layout of a table: the columns that partition it, and the columns with statistics."""

    partitioned_by: tuple[str, ...]
    with_statistics: tuple[str, ...]


def written(
    path: Place, rows: pa.Table, layout: Layout, *, folder: str = "", packing: Packing = Packing.QUICK
) -> Iterator[dict[str, Any]]:
    """Write rows as data files, one per partition, in ``folder`` of the table; yield the ``add`` action of each.

    Raises:
        IsrwatchError: a file cannot be written.
    """
    for partition, own in _partitions(rows, layout.partitioned_by):
        below = "".join(f"{name}={quote(value, safe='')}/" for name, value in partition.items())
        name = f"{folder}{below}part-{uuid.uuid4()}.parquet"
        content = _parquet(own, _options(own, packing))
        with writing(str(path)):
            put(file_place(path, name), content)
            remember(file_place(path, name), content)
        yield {
            "path": name,
            "partitionValues": partition,
            "size": len(content),
            "modificationTime": _millis(),
            "dataChange": True,
            "stats": json.dumps(_statistics(own, layout.with_statistics)),
        }


def _options(rows: pa.Table, packing: Packing) -> Mapping[str, Any]:
    if packing is Packing.DENSE:
        return _DENSE
    if packing is Packing.STATE:
        return {**_DENSE, "compression_level": 6, "use_dictionary": list(_repeated(rows.schema))}
    return _SMALL if rows.num_rows <= SMALL_ROWS else _LARGE


def _parquet(rows: pa.Table, options: Mapping[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    # Without Arrow's schema in the file, dictionary columns are read back as plain strings.
    pq.write_table(rows, sink, store_schema=False, **options)
    return bytes(sink.getvalue())


def _repeated(fields: Iterable[pa.Field], prefix: str = "") -> Iterator[str]:
    """Name the columns within columns whose values rows share: all but numbers of 64 bits and times."""
    for field in fields:
        name, kind = f"{prefix}{field.name}", field.type
        if pa.types.is_struct(kind):
            yield from _repeated(kind, f"{name}.")
        elif pa.types.is_list(kind):
            yield from _repeated([pa.field("element", kind.value_type)], f"{name}.list.")
        elif not pa.types.is_int64(kind) and not pa.types.is_timestamp(kind):
            yield name


def _partitions(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[dict[str, str], pa.Table]]:
    """Yield the rows of each partition, without the partition columns, which files do not contain."""
    if not columns:
        if rows.num_rows:
            yield {}, rows
        return
    partitions = rows.select(columns).group_by(list(columns), use_threads=False).aggregate([]).to_pylist()
    for values in partitions:
        own = rows
        for name, value in values.items() if len(partitions) > 1 else ():  # a commit is nearly always of one day
            own = own.filter(pc.equal(own[name], pa.scalar(value, rows.schema.field(name).type)))
        yield {name: str(value) for name, value in values.items()}, own.drop_columns(list(columns))


def _statistics(rows: pa.Table, columns: Iterable[str]) -> dict[str, Any]:
    """Return the statistics of a file as Delta's protocol defines them: bounds and null counts of some columns."""
    lowest, highest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for name in (name for name in columns if name in rows.column_names):
        column = rows[name]
        nulls[name] = column.null_count
        if column.null_count < len(column):
            bounds = pc.min_max(column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column)
            lowest[name], highest[name] = (_as_json(bounds[each]) for each in ("min", "max"))
    return {"numRecords": rows.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}


def _as_json(value: pa.Scalar) -> Any:  # noqa: ANN401 - any JSON value
    plain = value.as_py()
    return plain.isoformat().replace("+00:00", "Z") if pa.types.is_timestamp(value.type) else plain


def removed(file: DataFile, *, is_new_data: bool) -> dict[str, Any]:
    """Return the ``remove`` action of a file."""
    return {
        "path": file.path,
        "deletionTimestamp": _millis(),
        "dataChange": is_new_data,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size,
    }


def entry(
    adds: Iterable[Mapping[str, Any]],
    removes: Iterable[Mapping[str, Any]],
    transactions: Mapping[str, int],
    definition: Iterable[Mapping[str, Any]] = (),
) -> bytes:
    """Return the content of a log entry: ``add`` and ``remove`` actions without their name, and what else it stores."""
    commit = {"timestamp": _millis(), "operation": "WRITE", "operationParameters": {}, "engineInfo": "isrwatch"}
    actions = [
        {"commitInfo": commit},
        *definition,
        *({"add": each} for each in adds),
        *({"remove": each} for each in removes),
        *({_TRANSACTION: {"appId": name, "version": value}} for name, value in transactions.items()),
    ]
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


def transactions_in(actions: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the numbers by name that a log entry stores in the table."""
    stored = (action[_TRANSACTION] for action in actions if _TRANSACTION in action)
    return {each["appId"]: each["version"] for each in stored}


def _millis() -> int:
    return time.time_ns() // 1_000_000


# Applied positions of the logs of the bus: a table's commits store them as transactions.
#
# Positions, not batch ids, say what was applied: a new checkpoint starts again at batch 0, and a callback may run after
# its JVM has ended. A position names its log, because a log that was replaced begins again at position 0.


class StoresTransactions(Protocol):
    """A table or its writer, with the numbers that commits have stored in it by name."""

    def transaction_version(self, name: str, /) -> int | None:
        """Return a number; None if no commit has stored it."""


NO_LOG_IDS: Final[Mapping[str, int]] = MappingProxyType({})


def moved(positions: Mapping[str, int]) -> dict[str, int]:
    """Return the positions of sources as the transactions of a commit."""
    return {f"position/{source}": position for source, position in positions.items()}


def applied_position(table: StoresTransactions, source: str) -> int:
    """Read the position of the last applied record of a source from a table's transactions, -1 for none."""
    position = table.transaction_version(f"position/{source}")
    return NOWHERE.position if position is None else position
