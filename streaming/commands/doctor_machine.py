"""Checks of this machine by ``isrwatch doctor``: folders, tables, Java, jars, ports and web configuration files."""

from __future__ import annotations

import os
import re
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.bus.directory import DirectoryReader
from streaming.bus.log import NO_LOCKS
from streaming.contracts.identifiers import LogPosition
from streaming.contracts.observations import Channel
from streaming.contracts.tables import PARTITION_CHANGES, SOURCE_PROGRESS, TABLES
from streaming.delta.log.definitions import ColumnComparison, check_layout, layout_of
from streaming.delta.log.queries import read_all
from streaming.delta.log.storage import open_table, wrong_files
from streaming.delta.log.table_log import actions_of, committed_at
from streaming.delta.store.lease import FOLDER, holder_of, newest_number
from streaming.delta.store.objects import StoreError, prove_exclusive
from streaming.delta.store.place import tables_place
from streaming.errors import ConfigurationError, TableRefused, TableUnreadable, reason_of
from streaming.locks import has_locks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from deltalake import DeltaTable

    from streaming.contracts.columns import Table
    from streaming.delta.store.place import Place
    from streaming.settings import Settings

# Findings of the checks of ``isrwatch doctor``, and their words.


SECONDS: Final = 5.0
"""Longest wait for one answer."""


class Status(StrEnum):
    """Result of a check; only a problem keeps isrwatch from working."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Sentence of one check; ``cluster`` is the one that it is about, of several."""

    check: str
    status: Status
    sentence: str
    cluster: str = ""


def numbered(number: int, thing: str) -> str:
    """Return a number of things in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


LEAST_FREE_BYTES: Final = 1 << 30
ANSWER_SECONDS: Final = 2.0
_MOST_BYTES: Final = 4096
_TITLE: Final = re.compile(rb"<title>([^<]*)")


def _folders(settings: Settings) -> Iterator[tuple[Status, str]]:
    tables = tables_place(settings)
    if not isinstance(tables, Path):
        yield _store(tables)
        yield from _lease(tables)
    for key, path in (
        ("bus.directory", Path(settings.bus.directory).absolute()),
        *([("tables.directory", tables.absolute())] if isinstance(tables, Path) else ()),
        ("job.checkpoint", Path(settings.job.checkpoint).absolute()),
    ):
        try:
            nearest = next(each for each in (path, *path.parents) if each.exists())
            is_writable = nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)
            locked = is_writable and has_locks(nearest)
        except OSError as error:
            yield Status.PROBLEM, f"{key}: {error.filename or path}: {reason_of(error)}"
            continue
        if is_writable and not locked and key == "bus.directory":
            yield Status.WARNING, f"{key}: {nearest}: {NO_LOCKS}"
        if not is_writable:
            yield (
                Status.PROBLEM,
                f"{key}: {nearest} is no folder that this user can write; correct the key or its owner",
            )
        elif (free := shutil.disk_usage(nearest).free) < LEAST_FREE_BYTES:
            yield Status.WARNING, f"{key}: {free / (1 << 20):,.0f} MiB are free below {nearest}; make space"
        else:
            exists = "can be written" if path.exists() else "can be created"
            yield Status.OK, f"{key}: {path} {exists}, {free / (1 << 30):,.0f} GiB are free"


def _store(tables: Place) -> Said:
    """Let writers race for names in the store of the tables."""
    try:
        prove_exclusive(tables)
    except (OSError, ConfigurationError) as error:
        return Status.PROBLEM, f"tables.directory: {error}"
    return Status.OK, f"tables.directory: {tables} can be written, and of several writers of one name one wins"


def _lease(tables: Place) -> Iterator[Said]:
    """Name the job that has, or had, the lease of the tables; whether it still runs its own page says."""
    with suppress(OSError):
        number = newest_number(tables / FOLDER)
        if (holder := holder_of(tables / FOLDER, number)) is not None:
            stopped = ", which has stopped" if holder.is_released else ""
            yield Status.OK, f"tables.directory: number {number} of the lease is of {holder}{stopped}"


def _tables(settings: Settings) -> Iterator[tuple[Status, str]]:

    return tables(settings)


def _packages(_: Settings) -> Iterator[tuple[Status, str]]:
    from isrwatch import PACKAGES, foreign_package

    foreign = foreign_package()
    yield (Status.PROBLEM, foreign) if foreign else (Status.OK, f"{', '.join(PACKAGES)} are those of isrwatch")


def _java(_: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.runtime.java import check_needs, find_java, has_name, name_environment, nss_wrapper

    java = find_java()
    yield Status.OK, f"Java {java.version} at {java.home} (from {java.origin})"
    name_environment()  # refused if there is no name
    if not has_name(uid := os.geteuid()):
        yield Status.OK, f"uid {uid} has no name in /etc/passwd; Spark gets one by {nss_wrapper()}"
    try:
        check_needs()
    except ConfigurationError as refusal:
        yield Status.WARNING, str(refusal)  # the configuration of Spark may have another folder


def _ports(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.runtime.listening import listen_all
    from streaming.web.config_file import has_tls

    for key, address, web_config_file in (
        ("collect.listen", settings.collect.listen, settings.collect.web_config_file),
        ("job.listen", settings.job.listen, settings.job.web_config_file),
        ("export.listen", settings.export.listen, settings.export.web_config_file),
    ):
        if not address:
            continue
        try:
            for opened in listen_all(address, key):
                opened.close()
        except ConfigurationError as refusal:
            program = f"isrwatch {key.partition('.')[0]}"
            if all(program in _title_at(each.strip(), is_tls=has_tls(web_config_file)) for each in address.split(",")):
                yield Status.OK, f"{key}: {program} runs already at {address}"
            else:
                yield Status.WARNING, f"{refusal}, unless it is {program} that runs already"
        else:
            yield Status.OK, f"{key}: {address} is free"


def _title_at(address: str, *, is_tls: bool) -> str:
    """Return the title of what a program serves at an address of this machine, "" if it shows none to every client."""
    import ssl
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    connection = HTTPConnection(host, int(port), timeout=ANSWER_SECONDS)
    if is_tls:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing secret is sent or read
        connection = HTTPSConnection(host, int(port), timeout=ANSWER_SECONDS, context=context)
    try:
        connection.request("GET", "/")
        title = _TITLE.search(connection.getresponse().read(_MOST_BYTES))
    except (OSError, HTTPException):
        return ""
    finally:
        connection.close()
    return "" if title is None else title[1].decode(errors="replace")


def _web_files(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.web.protection import protection_of

    files = {
        "collect.web_config_file": settings.collect.web_config_file,
        "job.web_config_file": settings.job.web_config_file,
        "export.web_config_file": settings.export.web_config_file,
    }
    for key, file in files.items():
        if not file:
            continue
        try:
            protects = protection_of(file).rules.protects()
        except ConfigurationError as error:
            yield Status.PROBLEM, f"{key}: {error}"
            continue
        given = [name for name, is_given in zip(_PROTECTIONS, protects, strict=True) if is_given]
        if given:
            yield Status.OK, f"{key}: {file} gives {', '.join(given)}"
            if key == "export.web_config_file" and settings.export.metrics_without_login:
                yield _metrics_without_login(given)
        else:
            yield (
                Status.WARNING,
                f"{key}: {file} protects nothing; write TLS or logins into it, as in conf/web-config.yml",
            )


def _metrics_without_login(given: Sequence[str]) -> tuple[Status, str]:
    _, certificates, logins = _PROTECTIONS
    if logins not in given:
        return Status.WARNING, "export.metrics_without_login: there are no logins, so it has no effect; remove it"
    also = f"; the {certificates} are required of Prometheus, too" if certificates in given else ""
    return (
        Status.OK,
        f"export.metrics_without_login: metrics and health checks are open to everyone, without a login{also}",
    )


def _links(settings: Settings) -> Iterator[tuple[Status, str]]:
    from streaming.settings import NO_LINKS

    url = settings.export.url
    links = f"export.url: alerts and boards link to {url.rstrip('/')}/incidents and {url.rstrip('/')}/runbook"
    yield (Status.OK, links) if url else (Status.SKIPPED, NO_LINKS)


_PROTECTIONS: Final = ("TLS", "certificates of clients", "logins")
CHECKS_OF_THE_MACHINE: Final[Mapping[str, Callable[[Settings], Iterator[tuple[Status, str]]]]] = {
    "packages": _packages,
    "folders": _folders,
    "tables": _tables,
    "Java": _java,
    "ports": _ports,
    "web files": _web_files,
    "links": _links,
}


# Findings of ``isrwatch doctor`` about the tables. It reads their logs, the sizes of their files, and one small table.


Said = tuple[Status, str]
Row = dict[str, Any]
_CORRECT: Final = "correct bus.directory or tables.directory"
_GOES_BACK: Final = "it was replaced or restored, and at its start the job goes back to the last record that both have"
_UNITS: Final = ((172_800, 86_400, "days"), (7_200, 3_600, "hours"), (120, 60, "minutes"), (0, 1, "s"))


def tables(settings: Settings) -> Iterator[Said]:
    """Check each table, how old the newest commit is, and whether the bus is the one that was applied.

    Raises:
        TableUnreadable: a file that has the right size is damaged, or the store of the tables fails.
        ConfigurationError: the bus is a file.
    """
    place = tables_place(settings)
    folder = place.absolute() if isinstance(place, Path) else place
    opened = {definition.name: _open(folder / definition.name, definition) for definition in TABLES.values()}
    if not any(opened.values()):
        yield Status.SKIPPED, f"{folder} has no tables yet: isrwatch job creates them"
        return
    yield from (said for said in opened.values() if isinstance(said, tuple))
    readable = {name: table for name, table in opened.items() if table is not None and not isinstance(table, tuple)}
    if readable:
        yield (
            Status.OK,
            f"{numbered(len(readable), 'table')} in {folder} have all their files, in the layout of this program",
        )
    progress = [] if (table := readable.get(SOURCE_PROGRESS.name)) is None else read_all(table).to_pylist()
    if changes := readable.get(PARTITION_CHANGES.name):
        yield _age(folder / PARTITION_CHANGES.name, changes, progress, settings.export.stale_after)
    if not settings.bus.kafka.bootstrap_servers:  # else the folder is that of a collector
        yield from _positions(Path(settings.bus.directory).absolute(), progress)


def _open(path: Place, definition: Table) -> DeltaTable | Said | None:
    """Open a table; return what is wrong with it, or None where there is none.

    Raises:
        TableUnreadable: the store fails.
    """
    try:
        table = open_table(path)
        if table is None:
            return None
        wrong = wrong_files(path, table)
    except TableUnreadable as error:
        if isinstance(error.__cause__, StoreError):  # not of this table alone: said once, and awaited once
            raise
        return Status.PROBLEM, str(error)
    try:
        check_layout(table, definition)
    except TableRefused as refusal:
        is_old = layout_of(table) == definition.layout and ColumnComparison.of(table, definition).are_ours
        return Status.WARNING if is_old else Status.PROBLEM, str(refusal)  # the job adds new columns at its start
    if wrong:
        files = f"{numbered(len(wrong), 'data file')} of {path} missing or cut, first {wrong[0]}"
        return Status.PROBLEM, f"{files}: bring back the whole folder of the tables from one copy"
    return table


def _age(path: Place, changes: DeltaTable, progress: Iterable[Row], stale_after: float) -> Said:
    """Compare the newest commit of the change log with now, and say which program is the reason if it is old."""
    try:
        written = committed_at(path, changes.version(), actions_of(path, changes.version()))
    except FileNotFoundError:
        return Status.PROBLEM, f"the newest entry in the log of {path} is missing: bring back the whole folder"
    age = time.time() - written / 1_000_000
    if age <= stale_after:
        return Status.OK, f"the newest commit is {_span(age)} old"
    reported = max((row["reported_at"] or 0 for row in progress), default=0) / 1_000_000
    if time.time() - reported > stale_after:
        fix = "no job runs: start isrwatch job, or read what it printed last"
    else:
        fix = "the job runs, but nothing new comes: start isrwatch collect, or read what it printed last"
    return Status.WARNING, f"the newest commit is {_span(age)} old: stale; {fix}"


def _span(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    size, unit = next((size, unit) for least, size, unit in _UNITS if seconds >= least)
    return f"{seconds / size:.0f} {unit}"


def _positions(bus: Path, progress: Iterable[Row]) -> Iterator[Said]:
    """Compare how far each source was applied with its log on the bus, as the job does at its start."""
    reader = DirectoryReader(bus)
    logs = {(channel.value, source) for channel in Channel for source in reader.logs(channel)}
    applied = {(row["channel"], row["source"]): LogPosition(row["position"], row["log_id"]) for row in progress}
    there = sorted(applied.keys() & logs)
    if applied and not there:
        yield Status.WARNING, f"the bus {bus} has no log that was applied to the tables: {_CORRECT}, or it was emptied"
    for channel, source in (changed := [key for key in there if _is_another(reader, *key, applied[key])]):
        log = f"the log {channel}/{source} of the bus {bus}"
        yield Status.WARNING, f"{log} is not the one that was applied to the tables: {_CORRECT}, or {_GOES_BACK}"
    if same := len(there) - len(changed):
        yield Status.OK, f"the tables continue from {numbered(same, 'log')} of the bus {bus}"


def _is_another(reader: DirectoryReader, channel: str, source: str, at: LogPosition) -> bool:
    return reader.last_common(Channel(channel), source, at) != at
