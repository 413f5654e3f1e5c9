"""Tables in an object store: seconds and requests of a commit, of the reader behind it, and of a quiet day.

    python -m tests.benchmarks.stores [--commits 100] [--milliseconds 25] [--seconds 60] [--dollars 5.0 0.4]

A server of S3 (versitygw) behind a proxy, which adds the milliseconds to each request and counts them. Printed are the
time of a commit, in turn with delta-rs' own ``write``; the time from the beginning of a commit until an exporter has
its rows; and the requests of an exporter and a job that have nothing to do but heartbeats, with the price of a day.
``--dollars``: of a million PUT and LIST requests, and of a million GET and HEAD requests (Amazon S3 Standard in
us-east-1, November 2026).
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import write_deltalake

from exporters.read_model.reader import TablesReader
from streaming.delta.changes.log import ChangeLog, in_commit
from streaming.delta.log.storage import table_at
from streaming.delta.projections.tables import DerivedTables
from streaming.delta.store.place import options_of, place_of
from tests.benchmarks._running import options, spread
from tests.delta.test_change_log import changed
from tests.stores.fault_proxy import fault_proxy
from tests.stores.s3 import versitygw

if TYPE_CHECKING:
    from collections import Counter

    import pyarrow as pa

    from streaming.delta.store.place import Place

LOOK_SECONDS: Final = 0.1
HEARTBEAT_SECONDS: Final = 5.0
DAY: Final = 86_400
WRITES: Final = {"PUT", "POST", "DELETE"}


def commits(place: Place, rows: pa.Table, count: int) -> None:
    """Print how long a commit takes, and one of delta-rs beside it."""
    log, ours, theirs = ChangeLog(place / "ours"), list[float](), list[float]()
    theirs_at = place / "theirs"
    write_deltalake(str(theirs_at), in_commit(rows, 0, 0), storage_options=options_of(theirs_at))
    table = table_at(theirs_at)
    for number in range(count):
        began = time.perf_counter()
        log.commit(rows, {"a": number})
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        write_deltalake(table, in_commit(rows, table.version() + 1, 0), mode="append")
        theirs.append(time.perf_counter() - began)
    print(f"a commit: {spread(ours)}; delta-rs' own: {spread(theirs)}", flush=True)


def followed(place: Place, rows: pa.Table, count: int) -> None:
    """Print how long it takes from the beginning of a commit until an exporter has its rows."""
    log, delays = ChangeLog(place), list[float]()
    DerivedTables(place)
    reader = TablesReader(place)
    reader.refresh()
    for number in range(count):
        began = time.perf_counter()
        version = log.commit(rows, {"a": number})
        while reader.snapshot.version < version:
            time.sleep(LOOK_SECONDS / 10)
            if reader.has_news():
                reader.refresh()
        delays.append(time.perf_counter() - began)
    print(f"a commit until an exporter has it: {spread(delays)}", flush=True)


def quiet(place: Place, rows: pa.Table, seconds: float, counts: Counter[tuple[str, str]], prices: list[float]) -> None:
    """Print the requests of a while in which only heartbeats are committed, and what a day of them costs."""
    log, reader, ended = ChangeLog(place), TablesReader(place), threading.Event()
    reader.refresh()

    def beat() -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            log.commit(rows.slice(0, 1), {"a": log.version})

    threading.Thread(target=beat, daemon=True).start()
    before, until = counts.copy(), time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        reader.read_side_tables()
        if reader.has_news():
            reader.refresh()
    ended.set()
    counted = counts - before
    writes = sum(count for (method, kind), count in counted.items() if method in WRITES or kind == "list")
    reads = counted.total() - writes
    a_day = [DAY / seconds * number for number in (writes, reads)]
    dollars = sum(number * price / 1e6 for number, price in zip(a_day, prices, strict=True))
    print(f"quiet: {a_day[0]:,.0f} PUT and LIST, {a_day[1]:,.0f} GET and HEAD a day: {dollars:.2f} dollars", flush=True)
    for (method, kind), count in sorted(counted.items()):
        print(f"  {method} {kind}: {count / seconds:.2f} a second", flush=True)


def main() -> None:
    chosen = options(__doc__, commits=100, milliseconds=25, seconds=60, dollars=[5.0, 0.4])
    _, rows = changed()
    with tempfile.TemporaryDirectory() as folder, versitygw(Path(folder)) as store, fault_proxy(store) as proxy:
        place = place_of(f"{proxy.store.url}/bench", proxy.store.options)
        proxy.round_trip_seconds = chosen.milliseconds / 1000
        commits(place, rows, chosen.commits)
        followed(place / "followed", rows, chosen.commits)
        quiet(place / "followed", rows, chosen.seconds, proxy.counts, chosen.dollars)


if __name__ == "__main__":
    main()
