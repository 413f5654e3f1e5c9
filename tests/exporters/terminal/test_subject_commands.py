"""``isrwatch state`` and a command for each subject: its options, its output, and what it prints again and again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from exporters.answers import source
from exporters.answers.answer import Answer, Question
from exporters.answers.server import Server
from exporters.answers.subjects import SUBJECTS
from exporters.terminal import subject_commands
from exporters.terminal.subject_commands import EXAMPLES
from streaming.commands import COMMANDS, Purpose, app
from tests.exporters.conftest import Rows, Tables, put_samples
from tests.exporters.terminal.test_every_table_fits import full

__all__ = ["full"]

SPAN = re.compile(r"\d+\.\ds|\d+m\d+s|\d+[dh]\d+[hm]|\d\d:\d\d:\d\d(\.\d+)?")
NAMES = sorted(EXAMPLES)


def run(tables: Path, *words: str, **environment: str) -> Any:
    return CliRunner().invoke(app, [*words, "--tables", str(tables)], env=environment)


def printed(tables: Path, *words: str) -> str:
    done = run(tables, *words)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def test_every_subject_but_clusters_is_a_command_with_the_same_help() -> None:
    shown = {name: subject for name, subject in SUBJECTS.items() if name in EXAMPLES}
    assert set(SUBJECTS) - set(shown) <= {"clusters", "events", "incidents", "incident", "health"}
    assert {name: COMMANDS[name].help for name in shown} == {name: subject.help for name, subject in shown.items()}
    assert {COMMANDS[name].purpose for name in (*shown, "state")} == {Purpose.LOOK}


def test_the_text_of_every_command(full: Path, golden: Callable[[str, str], None]) -> None:
    """In a pipe, with what differs between two runs masked."""
    texts = []
    for words in (
        ["state"],
        *([name] for name in NAMES),
        ["brokers", "-o", "wide"],
        ["partitions", "payments*", "--all"],
    ):
        text = printed(full, *words)
        texts.append(f"$ isrwatch {' '.join(words)}\n{SPAN.sub('<span>', text)}")
    golden("commands.txt", re.sub(r" {2,}", "  ", "\n".join(texts)))


def test_json_is_one_document_with_what_is_said_and_how_old_the_data_is(full: Path) -> None:
    document = json.loads(printed(full, "brokers", "-o", "json"))
    assert [row["broker"] for row in document["rows"]] == [1, 2, 3, 4, 5]
    assert document["clusters"][0]["name"] == "main"
    assert any("restart of brokers 1, 2, 3, 4, 5" in sentence["text"] for sentence in document["sentences"])
    assert (document["as_of"], document["unreadable"], document["now"][-1]) == (None, {}, "Z")
    state = json.loads(printed(full, "state", "-o", "json"))
    assert ([row["cluster"] for row in state["rows"]], len(state["partitions"])) == (["main"], 2)
    assert printed(full, "state", "-o", "csv").count("\n") == 2, "CSV has one table: the clusters"


def test_a_subject_is_chosen_by_argument_or_by_the_option_of_its_name(full: Path) -> None:
    every = [json.loads(printed(full, "brokers", *words, "-o", "json"))["rows"] for words in (["3"], ["--broker", "3"])]
    assert [[row["broker"] for row in rows] for rows in every] == [[3], [3]]
    refused = run(full, "brokers", "17")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr == "unknown broker 17; known: 1, 2, 3, 4, 5\n"
    assert run(full, "brokers", "").stderr.startswith("broker has ''; write a name")


def test_tables_and_a_server_are_two_sources(full: Path) -> None:
    refused = run(full, "brokers", "--server", "http://127.0.0.1:1")
    assert (refused.exit_code, "give one of them" in refused.stderr) == (2, True)
    alone = CliRunner().invoke(app, ["brokers"], env={"ISRWATCH_SERVER": "http://127.0.0.1:1"})
    assert (alone.exit_code, "127.0.0.1:1" in alone.stderr) == (1, True)


def test_a_served_answer_prints_what_the_tables_say(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that differs is who is asked; the server reads the same question."""
    asked: list[tuple[str, Question]] = []

    def served(_server: object, subject: str, question: Question) -> Answer:
        asked.append((subject, question))
        tables = source.Tables(folder=full, limits=source.Limits.of(None), now=now)
        return Answer.from_json(SUBJECTS[subject].answer(tables, question).to_json())

    now = time.time_ns() // 1_000
    monkeypatch.setattr(source, "micros_now", lambda: now)
    monkeypatch.setattr(Server, "answer", served)
    for words in (
        ["brokers", "3"],
        ["state", "--cluster", "main"],
        ["partitions", "--all", "--as-of", "1"],
        ["groups"],
    ):
        done = CliRunner().invoke(app, [*words, "--server", "http://127.0.0.1:1"])
        assert done.stdout == printed(full, *words), done.output
    assert [subject for subject, _ in asked] == ["brokers", "clusters", "partitions", "partitions", "groups"]
    assert asked[0][1] == Question(filters={"broker": ("3",)})
    assert asked[3][1] == Question(everything=True, at="1")


def test_watch_goes_through_errors_and_ends_with_an_interrupt(
    tables: Tables, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables.observe(rows, rows.broker(1))
    put_samples(tables, rows)
    damaged = tables.directory / "partition_changes" / "_delta_log"
    hidden = damaged.with_name("hidden")
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        if seconds != subject_commands.WATCH_SECONDS:
            return
        looks += 1
        if looks == 1:
            damaged.rename(hidden)
        elif looks == 2:
            hidden.rename(damaged)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(subject_commands.time, "sleep", sleep)
    done = run(tables.directory, "topics", "--watch")
    assert (done.exit_code, looks) == (0, 3)
    assert done.stdout.count("no topic has been observed") == 2
    refused = run(tables.directory, "brokers", "17", "--watch")
    assert (refused.exit_code, looks) == (2, 3), "what is wrong at the first look stays wrong"
