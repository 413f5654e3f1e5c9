"""Every command of the documentation that looks at something, run from another folder: all it has is a server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from exporters.read_model.reader import micros_now
from exporters.web.server import serving
from streaming.commands import COMMANDS, app, load
from streaming.settings import ExportSettings
from tests.docs.test_commands import PAGES, TO_A_LOG, shown_in
from tests.exporters.conftest import Tables, write_live_cluster
from tests.exporters.web.test_app import ask
from tests.plugins.local_http import wait_until

ASKING = frozenset(
    name for name in COMMANDS if name != "mcp" and any("--server" in option.opts for option in load(name).params)
)
"""Commands that can ask a server, but for the one that is a server itself."""
SETTINGS = ExportSettings(listen="127.0.0.1:0", refresh_interval=0.02)
NAMES = {
    **dict.fromkeys(("{cluster}", "prod", "NAME"), "main"),
    **dict.fromkeys(("prod-17", "kafka-1", "ID"), "main-4"),
    "{topic}": "orders",
    "{group}": "payments",
    "TIME": "15m",
    "orders-*": "orders*",
    "payments-*": "pay*",
    "prod-*": "main*",
    "*idle*": "kafka*",
}
"""What the documentation calls things, and what they are called in the tables here."""
ENDLESS = {"--follow", "-f", "--watch", "-w"}
HERE = {"--config": 2, "--tables": 2}
"""Options of who is on the machine of the tables, with how many words each takes."""


def asked(command: str) -> Iterator[list[str]]:
    """Yield the commands in a line that can ask a server, as they are typed elsewhere."""
    for part in re.split(r" (?:&&|\|\|) ", TO_A_LOG.sub("", command)):
        words = [*takewhile(lambda word: word not in {"|", ">", ";"}, shlex.split(part, comments=True))]
        if words[:1] == ["isrwatch"] and len(words) > 1 and words[1] in ASKING:
            rest = [NAMES.get(word, word) for word in words[2:] if word not in ENDLESS and word != "--help"]
            for option, length in HERE.items():
                if option in rest:
                    del rest[rest.index(option) : rest.index(option) + length]
            if "--wait" in rest:
                rest[rest.index("--wait") + 1] = "100ms"
                rest += ["--settle", "1ms"]
            if words[1] == "directories":
                rest = ["1" if word == "3" else word for word in rest]
            yield [words[1], *rest]


COMMANDS_SHOWN = sorted({tuple(words) for page in PAGES for line in shown_in(page) for words in asked(line)})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tables = Tables(tmp_path_factory.mktemp("tables") / "tables")
    write_live_cluster(tables, micros_now())
    with serving(tables.directory, replace(SETTINGS, stale_after=3600.0)) as address:
        wait_until(lambda: ask(address, "/-/ready")[0] == 200 and b"main-4" in ask(address, "/")[2])
        yield address


def test_the_documentation_shows_many_of_them() -> None:
    assert len(COMMANDS_SHOWN) > 30
    assert {words[0] for words in COMMANDS_SHOWN} >= {"incidents", "events", "brokers"}


@pytest.mark.parametrize("words", COMMANDS_SHOWN, ids=" ".join)
def test_a_command_of_the_documentation_answers_from_another_folder(
    words: tuple[str, ...], address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words, "--server", f"http://{address}"], env={"ISRWATCH_CONFIG": ""})
    assert done.exit_code in ({0, 1, 3} if words[0] == "health" else {0}), done.output  # unhealthy, unknown
    assert done.output.strip() or words[0] == "events"  # of which a pipe gets no line if there is none
    assert list(tmp_path.iterdir()) == []
