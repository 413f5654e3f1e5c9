"""Files of a table that hold the rows of one Kafka cluster each, in a folder per cluster.

So a shard can replace the rows of its clusters without touching those of others. Readers need not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from streaming.contracts.identifiers import ClusterId
from streaming.delta.log.commit import written
from streaming.delta.log.definitions import arrow_schema, file_layout
from streaming.delta.log.storage import in_schema, read_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from streaming.contracts.columns import Table
    from streaming.delta.log.writer import Writer
    from streaming.delta.store.place import Place

Adds = list[dict[str, Any]]
"""``add`` actions of files that were written but not committed yet."""
_OF: Final = "of-"


def of_clusters(rows: pa.Table, clusters: Collection[str]) -> pa.Table:
    """Return the rows of these clusters; the same table if all rows are."""
    is_theirs = pc.is_in(rows["cluster_id"].cast(pa.string()), pa.array(sorted(clusters), pa.string()))
    return rows if pc.all(is_theirs).as_py() else rows.filter(is_theirs)


def write_cluster(directory: Place, definition: Table, cluster_id: ClusterId, rows: pa.Table) -> Adds:
    """Write all rows of a cluster, in the schema of the table, as files in the folder of the cluster."""
    folder = f"{_OF}{quote(cluster_id, safe='')}/"
    return list(written(directory / definition.name, rows, file_layout(definition), folder=folder))


def read_files(path: Place, definition: Table, files: Iterable[str]) -> pa.Table:
    """Read files of a table, by their names in its log; columns that were added later are null.

    Raises:
        TableUnreadable: one is damaged or missing.
    """
    schema = arrow_schema(definition)
    rows = (in_schema(read_file(path, name), schema, {}) for name in files)
    return pa.concat_tables([schema.empty_table(), *rows])


def files_by_cluster(writer: Writer) -> dict[ClusterId, list[str]]:
    """Return the names of the files of each cluster."""
    names: dict[ClusterId, list[str]] = {}
    for name in writer.files():
        names.setdefault(ClusterId(unquote(name.partition("/")[0].removeprefix(_OF))), []).append(name)
    return names
