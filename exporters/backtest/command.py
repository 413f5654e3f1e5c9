"""``isrwatch backtest``: parses options, prints what would have fired."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from exporters.answers.source import folder_of
from exporters.backtest.evaluation import ScrapedSeries, firings
from exporters.backtest.replay import begins_at, replayed
from exporters.backtest.rule_files import Judgement, RuleFile
from exporters.read_model.conditions import ConditionSettings
from exporters.read_model.snapshot import SECOND
from exporters.read_model.times import Clock
from exporters.terminal.options import ConfigOption, LocalOption, OutputOption, TablesOption
from exporters.terminal.output import Row, RowOutput, output_of, until_closed
from exporters.terminal.table_layout import WORDS, Field
from streaming.durations import duration_text, seconds_of
from streaming.errors import ConfigurationError
from streaming.settings import load
from streaming.terminal import Terminal

if TYPE_CHECKING:
    from exporters.backtest.evaluation import Firing

COLUMNS: Final = ("alert", "severity", "began", "ended", "labels")
_MOST_SCRAPES: Final = 50_000
_STYLES: Final = {"page": "red", "critical": "red", "ticket": "yellow", "warning": "yellow"}


def backtest(  # noqa: PLR0913 - one parameter per option
    *,
    rules: Annotated[
        list[Path], typer.Argument(help="Files of alerting and recording rules, as Prometheus reads them.")
    ],
    since: Annotated[str, typer.Option(metavar="TIME", help="Start: 24h, 7d, yesterday, 2026-03-01T10:30.")] = "24h",
    until: Annotated[str | None, typer.Option(metavar="TIME", help="End; default: now.")] = None,
    step: Annotated[
        str, typer.Option(metavar="DURATION", help="Interval of scrapes, and of evaluations of the rules; at least 1s.")
    ] = "15s",
    row_format: OutputOption = None,
    local: LocalOption = False,
    tables: TablesOption = None,
    config_file: ConfigOption = None,
) -> None:
    """Show which alerts would have fired under your rules in the recorded past.

    Replays the recorded changes and renders /metrics at each scrape; promtool evaluates the rules over that.
    Alerts on metrics that have no past in the tables, such as offsets, are listed as not judged.

    Example: isrwatch backtest my-rules.yml --since 7d
    """
    output = output_of(row_format, Clock(time.time_ns() // 1_000, local))
    folder = folder_of(tables, config_file)
    files = [RuleFile.read(path) for path in rules]
    judgement = Judgement(files)
    begin, end = _asked(output.clock, since, until)
    recorded = begins_at(folder)
    if recorded > end:
        raise ConfigurationError(f"{_begin_line(recorded, output.clock)}; give a later --until")
    times = scrape_times(max(begin, recorded), end, _whole_seconds(step))
    if not judgement.alerts:
        _say_not_judged(output, judgement)
        raise ConfigurationError("none of the alerts can be judged; give rules on metrics of replication")
    scraped, settings = ScrapedSeries(), load(config_file)
    conditions = ConditionSettings.of(settings.alerts)
    scrapes = replayed(folder, times, judgement.metrics, settings.export, conditions)
    for place, scrape in enumerate(scrapes, start=1):
        scraped.add(scrape)
        _report(place, len(times))
    with tempfile.TemporaryDirectory(prefix="isrwatch-backtest-") as scratch, until_closed():
        fired = firings(files, judgement, scraped, times, Path(scratch))
        output.print((_row(each, times, output.clock) for each in fired), _fields(), COLUMNS, _style)
        _say_not_judged(output, judgement)
        if begin < recorded:
            output.say(f"{_begin_line(recorded, output.clock)}; before that nothing is recorded")
        output.say(_summary(fired, judgement, times, output.clock))


def _asked(clock: Clock, since: str, until: str | None) -> tuple[int, int]:
    begin, end = clock.read(since), clock.now if until is None else clock.read(until)
    if begin > end:
        raise ConfigurationError(f"--since {since} is after --until {until or 'now'}; swap them")
    return begin, end


def _whole_seconds(step: str) -> int:
    seconds = seconds_of("--step", step)
    if not (seconds.is_integer() and seconds >= 1):
        raise ConfigurationError(f"--step is {step}; write whole seconds, at least 1s, for example 15s")
    return int(seconds)


def _begin_line(recorded: int, clock: Clock) -> str:
    return f"the tables begin at {_to_the_second(clock.iso(recorded))}"


def scrape_times(begin: int, end: int, step: int) -> range:
    """Return the times of the scrapes, UTC microseconds, ``step`` seconds apart; the last one is the end.

    Raises:
        ConfigurationError: there are too many.
    """
    times = range(end - (end - begin) // (step * SECOND) * step * SECOND, end + 1, step * SECOND)
    if len(times) > _MOST_SCRAPES:
        longer = duration_text(-(-(end - begin) // SECOND // _MOST_SCRAPES))
        raise ConfigurationError(
            f"{len(times):,} scrapes are too many; give --step {longer} or a later --since (at most {_MOST_SCRAPES:,})"
        )
    return times


def _report(place: int, count: int) -> None:
    """Show on a terminal how far the past is applied."""
    if sys.stderr.isatty() and (place == count or place % 100 == 0):
        Terminal(stderr=True).progress(f"{place:,} of {count:,} scrapes", is_last=place == count)


def _row(firing: Firing, times: range, clock: Clock) -> Row:
    is_over = firing.last_at < times[-1]
    return {
        "alert": firing.alert,
        "severity": dict(firing.labels).get("severity"),
        "began": clock.iso(firing.began_at),
        "ended": clock.iso(firing.last_at + times.step) if is_over else None,
        "labels": {name: value for name, value in firing.labels if name != "severity"},
    }


def _fields() -> tuple[Field, ...]:
    return (
        Field("alert", lambda row: row["alert"]),
        Field("severity", lambda row: row["severity"] or ""),
        Field("fired", lambda row: _to_the_second(row["began"])),
        Field("until", lambda row: "still fires" if row["ended"] is None else _to_the_second(row["ended"])),
        Field("labels", lambda row: ", ".join(f"{name}={value}" for name, value in row["labels"].items()), wraps=WORDS),
    )


def _to_the_second(moment: str) -> str:
    return moment[:19].replace("T", " ")


def _style(row: Row) -> str:
    return _STYLES.get(str(row["severity"]), "")


def _say_not_judged(output: RowOutput, judgement: Judgement) -> None:
    reasons: dict[str, list[Any]] = {}
    for alert, why in judgement.not_judged.items():
        reasons.setdefault(why, []).append(alert)
    for why, alerts in sorted(reasons.items()):
        output.say(f"not judged: {', '.join(sorted(alerts))}: {why}")


def _summary(fired: list[Firing], judgement: Judgement, times: range, clock: Clock) -> str:
    names = {each.alert for each in fired}
    times_in_all = {0: "", 1: " once"}.get(len(fired), f" {len(fired)} times in all")
    return (
        f"{len(names)} of {len(judgement.alerts)} alerts fired{times_in_all}, "
        f"from {_to_the_second(clock.iso(times[0]))} to {_to_the_second(clock.iso(times[-1]))}, "
        f"every {times.step // SECOND} s; {len(judgement.not_judged)} could not be judged"
    )
