"""What commands say on a terminal is broken between words, and in a pipe it is one line."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streaming.commands import collect, doctor, job, maintenance
from streaming.commands.doctor_machine import Finding, Status

SENTENCE = (
    "no broker answers at kafka-1.example.com:9092 of cluster TsuxU8vkmQiwdwEupwQpCTZDQ: set job.listen-address, "
)
SENTENCE += "or start a broker of the cluster TsuxU8vkmQiwdwEupwQpCTZDQ and then isrwatch again"


def finding(sentence: str) -> Finding:
    return Finding(check="brokers", status=Status.PROBLEM, sentence=sentence)


SAID: dict[str, Callable[[str], object]] = {
    "collect": collect.say,
    "job": job.say,
    "job, a problem": job.warn,
    "maintenance": maintenance.say,
    "doctor": lambda sentence: doctor.print_findings([finding(sentence)]),
}
WIDTH = 100


def plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()


@pytest.mark.parametrize("command", SAID)
def test_a_sentence_on_a_terminal_breaks_between_words(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", f"{WIDTH}")
    SAID[command](SENTENCE)
    in_pipe = "".join(capsys.readouterr())
    assert SENTENCE in in_pipe
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm")):  # as rich knows a terminal
        monkeypatch.setenv(name, value)
    SAID[command](SENTENCE)
    lines = plain("".join(capsys.readouterr()))
    assert max(map(len, lines)) <= WIDTH
    assert set(SENTENCE.split()) - set(" ".join(lines).split()) == set()
