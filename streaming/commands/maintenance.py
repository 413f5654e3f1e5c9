"""``isrwatch maintenance``: announce planned work on brokers, end it, or run a command under a lease."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.text import Text

from streaming import settings as configuration
from streaming.changes.maintenance import leases_of
from streaming.commands.maintenance_advice import stop_warnings, stored_brokers, watched_clusters
from streaming.configuration_file import OPTION_HELP
from streaming.contracts.identifiers import SECOND, Micros
from streaming.contracts.tables import BROKER_STATE_TABLE
from streaming.contracts.words import utc_text
from streaming.delta.log.queries import open_ours
from streaming.delta.store.place import tables_place
from streaming.durations import duration_text, seconds_of
from streaming.errors import ConfigurationError, TableRefused, TableUnreadable, UnsafeStop
from streaming.terminal import Terminal, print_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streaming.changes.maintenance import Lease
    from streaming.commands.maintenance_advice import WatchedCluster
    from streaming.commands.maintenance_lease import HeldLease
    from streaming.contracts.identifiers import BrokerId
    from streaming.contracts.state import BrokerState
    from streaming.delta.store.place import Place
    from streaming.settings import Settings

# A clock that is off by more makes a lease begin or end at the wrong moment.
MAX_SKEW: Final = 60 * SECOND


_Command = Annotated[
    list[str] | None, typer.Argument(metavar="-- COMMAND", help="Run this command and hold a lease for it.")
]
_Broker = Annotated[list[int] | None, typer.Option(help="Broker id; may be repeated.")]
_For = Annotated[
    str | None,
    typer.Option("--for", metavar="DURATION", help="How long it may take: 90s, 30m, 2h. With a command: at most."),
]
_Why = Annotated[str | None, typer.Option(help="The reason, shown with the events; required for a new announcement.")]
_Extend = Annotated[bool, typer.Option("--extend", help="Extend announced work.")]
_End = Annotated[bool, typer.Option("--end", help="End announced work early.")]
_IfSafe = Annotated[
    bool,
    typer.Option(
        "--if-safe",
        help="Announce and run nothing, and exit with 75, unless these brokers are known to be safe to stop, all at "
        "once. Waits up to a minute while work on other brokers ends.",
    ),
]
_Cluster = Annotated[str | None, typer.Option(help="Name or id of the cluster, where there are several.")]
_Bus = Annotated[Path | None, typer.Option(help="Bus directory; default: bus.directory.")]
_Tables = Annotated[str | None, typer.Option(help="Folder or URL of the Delta tables; default: tables.directory.")]
_Config = Annotated[Path | None, typer.Option(help=OPTION_HELP)]


def maintenance(
    command: _Command = None,
    *,
    broker: _Broker = None,
    lasts: _For = None,
    why: _Why = None,
    extend: _Extend = False,
    end: _End = False,
    if_safe: _IfSafe = False,
    cluster: _Cluster = None,
    bus: _Bus = None,
    tables: _Tables = None,
    config: _Config = None,
) -> None:
    """Announce planned work on brokers; without --broker, list what is announced.

    While it lasts, what these brokers explain is planned: they may stop, leave ISRs and come back. Everything else is
    reported as always: other brokers, unclean elections, lost records. If a broker is not back when the time is over,
    its work has overrun and is no longer planned.

    Announce work before it begins: earlier changes are not planned. If a broker is not safe to stop, a line says why,
    and the command runs anyway, unless --if-safe is given.

    Example: isrwatch maintenance --broker 3 --for 30m --why "new disk"

    Better, because it ends when the work does: isrwatch maintenance --broker 3 --why upgrade -- ./restart-broker 3

    The lease of a command is renewed while it runs, holds for a minute more, and lapses when this machine crashes. The
    exit code is that of the command. Run it where the bus folder and the tables are; reach the broker by ssh.
    """
    from streaming.commands.maintenance_advice import chosen_brokers, chosen_cluster, watched_clusters

    settings = configuration.load(config)
    folder, place = bus or Path(settings.bus.directory), tables_place(settings, tables)
    clusters = watched_clusters(folder, place)
    if not broker:
        _list(clusters, cluster, has_work=any((command, end, extend, if_safe, lasts, why)))
        return
    chosen = chosen_cluster(clusters, cluster)
    brokers = chosen_brokers(chosen, broker)
    _check_safe(folder, place, brokers, is_asked=if_safe, is_new=not (end or extend))
    warnings = _warnings(place, brokers)
    _check_clock(chosen)
    if end:
        _end(folder, brokers)
    elif command:
        raise typer.Exit(_run(_held(folder, brokers, settings, why=why, lasts=lasts), command, warnings))
    else:
        _announce(folder, brokers, settings, why=why, lasts=lasts, extend=extend)
        _say_all(() if extend else warnings)


def duration(text: str, settings: Settings) -> int:
    """Read a duration as microseconds.

    Raises:
        ConfigurationError: it is none, or longer than allowed.
    """
    seconds, longest = seconds_of("--for", text), settings.maintenance.max_duration
    if not seconds:
        raise ConfigurationError(f"--for is {text}; write how long the work may take, for example 30m")
    if seconds > longest:
        raise ConfigurationError(
            f"--for {text} is longer than maintenance.max_duration ({duration_text(longest)}): announce less and "
            "extend it, or raise the key"
        )
    return int(seconds * SECOND)


def _announce(
    bus: Path, brokers: Sequence[BrokerState], settings: Settings, *, why: str | None, lasts: str | None, extend: bool
) -> None:
    from streaming.commands.maintenance_lease import Announcer, new_lease

    if lasts is None:
        raise ConfigurationError("say how long it may take with --for, for example --for 30m, or run a command: -- ...")
    micros = duration(lasts, settings)
    if extend:
        leases = [(one, lease) for one in brokers for lease in _extended(_in_maintenance(one))]
        reason = why or next(lease.reason for _, lease in leases)
        announcer = Announcer(bus, reason)
        announcer.publish([(one, lease.lease) for one, lease in leases], announcer.now() + micros)
    else:
        _refuse_overlap(brokers)
        announcer = Announcer(bus, _reason(why))
        lease = new_lease()
        announcer.publish([(one, lease) for one in brokers], announcer.now() + micros)
    say(f"{_names(brokers)}: planned work until {utc_text(Micros(announcer.now() + micros))}")


def _end(bus: Path, brokers: Sequence[BrokerState]) -> None:
    from streaming.changes.maintenance import leases_of
    from streaming.commands.maintenance_lease import Announcer

    leases = [(one, lease) for one in brokers for lease in leases_of(_in_maintenance(one)) if lease.is_open]
    announcer = Announcer(bus, next(lease.why for _, lease in leases))
    announcer.publish([(one, lease.lease) for one, lease in leases], 0)
    say(f"{_names(brokers)}: planned work ended, which the job applies within seconds")


def _held(
    bus: Path, brokers: Sequence[BrokerState], settings: Settings, *, why: str | None, lasts: str | None
) -> HeldLease:
    from streaming.commands.maintenance_lease import Announcer, HeldLease

    _refuse_overlap(brokers)
    micros = int(settings.maintenance.max_duration * SECOND) if lasts is None else duration(lasts, settings)
    return HeldLease(Announcer(bus, _reason(why)), brokers, settings.advanced, micros, say)


def _run(lease: HeldLease, command: Sequence[str], warnings: Iterable[str]) -> int:
    from streaming.commands.maintenance_lease import CommandNotRunnable, run_under

    _say_all(warnings)
    try:
        return run_under(lease, command)
    except CommandNotRunnable as error:
        say(str(error))
        return error.exit_code


def _reason(why: str | None) -> str:
    if not why or not why.strip():
        raise ConfigurationError('say why with --why, for example --why "new disk"')
    return why.strip()


def _refuse_overlap(brokers: Sequence[BrokerState]) -> None:
    """Refuse a second announcement; while one is only in its tail another may begin."""
    from streaming.changes.maintenance import leases_of

    for one in brokers:
        held = [lease for lease in leases_of(one) if _holds_on(lease)] if _is_held(one) else []
        if held:
            raise ConfigurationError(
                f"broker {one.broker} is in maintenance until {utc_text(max(lease.until for lease in held))} "
                f"({'; '.join(lease.why for lease in held)}): let it last longer with --extend, or end it with --end"
            )


def _extended(one: BrokerState) -> list[Lease]:
    """Return the leases that are to last longer: those in their tail only if there is nothing else."""
    from streaming.changes.maintenance import leases_of

    leases = [lease for lease in leases_of(one) if lease.is_open]
    return [lease for lease in leases if _holds_on(lease)] or leases


def _holds_on(lease: Lease) -> bool:
    is_over = lease.until <= time.time_ns() // 1_000  # the job closes it later
    return lease.is_open and not is_over and not lease.has_ended_command


def _check_safe(bus: Path, tables: Place, brokers: Sequence[BrokerState], *, is_asked: bool, is_new: bool) -> None:

    if is_asked and not is_new:
        raise ConfigurationError("--if-safe is about work that begins: leave it out with --extend and --end")
    if is_asked:
        wait_until_safe(bus, tables, brokers, say)


def _warnings(tables: Place, brokers: Sequence[BrokerState]) -> Iterator[str]:
    """Look into the tables only when it is asked for the first line."""
    from streaming.commands.maintenance_advice import stop_warnings

    try:
        yield from stop_warnings(tables, brokers, time.time_ns() // 1_000)
    except (TableUnreadable, TableRefused) as error:  # the work continues all the same
        yield f"whether {_names(brokers)} can be stopped is unknown: {error}"


def _in_maintenance(one: BrokerState) -> BrokerState:
    if not _is_held(one):
        raise ConfigurationError(f"no planned work is announced for broker {one.broker}: there is nothing to change")
    return one


def _is_held(one: BrokerState) -> bool:
    return one.maintenance_until is not None and one.maintenance_until > time.time_ns() // 1_000


def _check_clock(cluster: WatchedCluster) -> None:
    """Refuse a clock that is behind that of the collector; one that is ahead cannot be recognised."""
    if cluster.collected_at is None:
        return
    ahead = time.time_ns() // 1_000 - cluster.collected_at
    if ahead < -MAX_SKEW:
        raise ConfigurationError(
            f"the clock of this machine is {-ahead // SECOND} s behind that of the collector of {cluster.name}: "
            "correct it, or the work would count as over too early"
        )
    if ahead > MAX_SKEW:
        say(
            f"the newest observation of {cluster.name} is {ahead // SECOND} s old: nothing watches it at the moment, "
            "or the clock of this machine is ahead"
        )


def _work_of(one: BrokerState) -> str | None:
    if one.maintenance_until is not None and _is_held(one):
        return f"until {utc_text(one.maintenance_until)}  {one.maintenance_why}"
    return None if one.maintenance_overran_at is None else f"overran at {utc_text(one.maintenance_overran_at)}"


def _list(clusters: Sequence[WatchedCluster], name_or_id: str | None, *, has_work: bool) -> None:
    if has_work:
        raise ConfigurationError("name the brokers with --broker, for example --broker 3")
    lines = [
        f"{cluster.name}  broker {one.broker}  {line}"
        for cluster in clusters
        if name_or_id is None or name_or_id in {cluster.name, cluster.cluster_id}
        for _, one in sorted(cluster.brokers.items())
        if (line := _work_of(one)) is not None
    ]
    for line in lines:
        Terminal().row(line)
    if not lines:
        say("no planned work is announced")


def _names(brokers: Sequence[BrokerState]) -> str:
    return ("broker " if len(brokers) == 1 else "brokers ") + ", ".join(str(one.broker) for one in brokers)


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say(line: str) -> None:
    """Print a line on stderr: coloured on a terminal, plain in a pipe."""
    print_wrapped(Terminal(stderr=True), Text.assemble(("isrwatch maintenance: ", "dim"), line))


# Lets planned work begin only where it is safe: the advice of the tables, once they have what is announced of others.
#
# The job applies an announcement, and its end, a second or two after it is on the bus. Until then the advice is that
# of before: it would let two people stop two brokers at once, and refuse the next broker of a rolling restart.


# Longer than a session, and than the job may take to write the tables while nothing but time passes.
PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 0.5
_NOTHING_DONE: Final = "nothing was announced or run"


def wait_until_safe(bus: Path, tables: Place, brokers: Sequence[BrokerState], report: Callable[[str], None]) -> None:
    """Return as soon as brokers of one cluster are known to be safe to stop.

    It waits only for what is announced of other brokers: until the tables have it, and until a command that has ended
    is seen to have left its brokers up and in sync. Whatever else is against it is refused at once.

    Raises:
        UnsafeStop: one of them may not be stopped, or it is unknown.
    """
    deadline, is_waiting = time.monotonic() + PATIENCE_SECONDS, False
    while obstacles := _obstacles(bus, tables, brokers):
        against, may_pass = obstacles
        if not may_pass or time.monotonic() >= deadline:
            raise UnsafeStop(f"{against}: {_NOTHING_DONE}")
        if not is_waiting:
            report(f"waiting for {PATIENCE_SECONDS:g} s at most: {against}")
        is_waiting = True
        time.sleep(_PAUSE_SECONDS)


def _obstacles(bus: Path, tables: Place, brokers: Sequence[BrokerState]) -> tuple[str, bool] | None:
    """Return what is against the work, and whether that may pass by waiting; None for nothing.

    The tables are compared with the bus before the advice is read, so the advice has what the bus had.
    """
    if open_ours(tables, BROKER_STATE_TABLE) is None:
        return f"there are no tables in {tables} to say whether it is safe", False
    now = time.time_ns() // 1_000
    try:
        announced = _announced_beside(bus, tables, brokers, now)
        stored = _open_leases(stored_brokers(tables), brokers, now)
        warnings = list(stop_warnings(tables, brokers, now))
    except (TableUnreadable, TableRefused) as error:
        return f"whether it is safe is unknown: {error}", False
    lacking = sorted(broker for broker in stored if _signs(stored[broker]) != _signs(announced.get(broker, ())))
    if lacking and not warnings:
        numbers = ", ".join(map(str, lacking))
        warnings.append(f"the job has not applied yet what is announced of broker {numbers}, or ended")
    own = {lease.lease for one in brokers for lease in leases_of(one)}
    others = [lease for leases in announced.values() for lease in leases if lease.lease not in own]
    is_over = bool(others) and all(lease.has_ended_command for lease in others)
    return ("; ".join(warnings), bool(lacking) or is_over) if warnings else None


def _announced_beside(
    bus: Path, tables: Place, brokers: Sequence[BrokerState], now: int
) -> dict[BrokerId, tuple[Lease, ...]]:
    clusters = (each for each in watched_clusters(bus, tables) if each.cluster_id == brokers[0].cluster_id)
    return _open_leases((one for each in clusters for one in each.brokers.values()), brokers, now)


def _open_leases(
    states: Iterable[BrokerState], beside: Sequence[BrokerState], now: int
) -> dict[BrokerId, tuple[Lease, ...]]:
    """Return the leases that hold at a moment, of each other broker of the cluster."""
    cluster_id, own = beside[0].cluster_id, {one.broker for one in beside}
    return {
        one.broker: tuple(lease for lease in leases_of(one) if lease.is_open and lease.until > now)
        for one in states
        if one.cluster_id == cluster_id and one.broker not in own
    }


def _signs(leases: Iterable[Lease]) -> set[tuple[str, bool]]:
    """Return what the advice depends on: until when a running command holds its lease changes nothing."""
    return {(lease.lease, lease.has_ended_command) for lease in leases}
