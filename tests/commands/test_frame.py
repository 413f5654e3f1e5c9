"""The frame of the command line: lazy, helpful, one sentence an error."""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import metadata, version
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from streaming import commands
from streaming.commands import COMMANDS, Command, Purpose, app, explained, load
from streaming.errors import ConfigurationError, ConnectionRefused, MissingTool

RUNNER = CliRunner()


@pytest.fixture
def fails_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Put a command "broken" into the table, which raises the given error."""

    def arrange(error: Exception) -> None:
        def broken() -> None:
            raise error

        command = Command(target="tests_frame_broken:broken", help="Break.", purpose=Purpose.LEARN, extra="all")
        monkeypatch.setitem(COMMANDS, "broken", command)
        module = type(sys)("tests_frame_broken")
        module.broken = broken  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tests_frame_broken", module)

    return arrange


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command, env = [sys.executable, *words], {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=env)


def test_help_names_every_command_and_imports_no_room() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['isrwatch', '--help']\n"
        "from streaming.commands import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted(n for n in sys.modules if n.split('.')[0] in"
        " {'streaming', 'exporters', 'dashboards', 'pyspark', 'deltalake', 'pyarrow', 'confluent_kafka'}))\n"
    )
    run = python("-c", script)
    assert run.returncode == 0, run.stderr
    assert all(f"│ {name} " in run.stdout for name in COMMANDS)
    names = {"alert_settings", "commands", "configuration_file", "durations", "errors", "name_patterns", "settings"}
    imported = {name.removeprefix("streaming.") for name in ast.literal_eval(run.stdout.splitlines()[-1])}
    # The contracts are plain; the settings of alerts know their conditions.
    assert {name for name in imported if not name.startswith("contracts")} == {
        "streaming",
        "escapes",
        "terminal",
        *names,
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_has_help(name: str) -> None:
    assert load(name).callback is not None or load(name).commands
    result = RUNNER.invoke(app, [name, "--help"], prog_name="isrwatch")
    assert result.exit_code == 0, result.output
    assert f"Usage: isrwatch {name}" in result.output
    assert "--install-completion" not in result.output


def test_a_typing_mistake_is_answered_with_the_nearest_command() -> None:
    result = RUNNER.invoke(app, ["exprt"])
    assert (result.exit_code, "Did you mean 'export'?" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--quux"], "No such option: --quux (see isrwatch --help)"),
        (["sandbox", "kill"], "Missing argument 'node'. (see isrwatch sandbox kill --help)"),
        (["job", "--tables"], "Option '--tables' requires an argument."),
        (["collect", "--speed", "x"], "unable to parse string as a number (see isrwatch collect --help)"),
    ],
)
def test_a_wrong_usage_is_one_plain_line_in_a_pipe(arguments: list[str], line: str) -> None:
    result = RUNNER.invoke(app, arguments, prog_name="isrwatch")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(f"{line}\n")
    assert len(result.stderr.splitlines()) == 1


def test_a_group_without_arguments_prints_its_help_and_nothing_else() -> None:
    result = RUNNER.invoke(app, ["sandbox"], prog_name="isrwatch")
    assert (result.exit_code, result.stderr, "Usage: isrwatch sandbox" in result.stdout) == (2, "", True)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConnectionRefused("broker-1:9092 refused us; check cluster.bootstrap_servers"), 1),
        (ConfigurationError("unknown key [export].port"), 2),
    ],
)
def test_an_error_for_the_user_is_one_plain_sentence_in_a_pipe(
    error: Exception, code: int, fails_with: Callable[[Exception], None]
) -> None:
    fails_with(error)
    result = RUNNER.invoke(app, ["broken"])
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"{error}\n")


@pytest.mark.parametrize(("options", "environment"), [(["--debug"], {}), ([], {"ISRWATCH_DEBUG": "1"})])
def test_debug_shows_the_error_itself(
    options: list[str], environment: dict[str, str], fails_with: Callable[[Exception], None]
) -> None:
    error = ConnectionRefused("refused")
    fails_with(error)
    assert RUNNER.invoke(app, [*options, "broken"], env=environment).exception is error


def test_our_own_bug_is_not_dressed_up_as_a_users_error(fails_with: Callable[[Exception], None]) -> None:
    error = AssertionError("broken invariant")
    fails_with(error)
    assert RUNNER.invoke(app, ["broken"]).exception is error


def test_a_missing_package_is_answered_with_the_pip_command(fails_with: Callable[[Exception], None]) -> None:
    fails_with(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.dataset"))
    result = RUNNER.invoke(app, ["broken"])
    assert (result.exit_code, result.stderr) == (1, "isrwatch broken needs pyarrow: pip install 'isrwatch[all]'\n")


def test_a_command_without_its_extra_names_the_extra() -> None:
    # In a process of its own: here another test may have imported modules that already hold the package.
    script = (
        "import sys\n"
        "sys.modules['deltalake'] = None\n"  # what Python finds when the package is not installed
        "sys.argv = ['isrwatch', 'export', '--tables', 'nowhere']\n"
        "from streaming.commands import main\n"
        "main()\n"
    )
    run = python("-c", script)
    assert (run.returncode, run.stderr) == (1, "isrwatch export needs deltalake: pip install 'isrwatch[export]'\n")


def test_a_missing_file_of_our_own_stays_a_bug() -> None:
    error = ModuleNotFoundError("No module named 'streaming.nowhere'", name="streaming.nowhere")
    assert explained("job", error) is error


def test_the_sandbox_outside_of_a_checkout_says_where_to_run_it() -> None:
    told = explained("sandbox", ModuleNotFoundError("No module named 'deploy'", name="deploy"))
    assert isinstance(told, MissingTool)
    assert str(told) == "isrwatch sandbox runs in a checkout of the project only: run it from there"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_fills_the_lines_of_a_narrow_terminal_and_loses_no_word_in_brackets(command: str) -> None:
    shown = RUNNER.invoke(app, [command, "--help"], env={"COLUMNS": "80"}).stdout
    prose = [line.strip() for line in shown.partition("╭")[0].splitlines()]
    early = [line for line, after in pairwise(prose) if line and after and len(f"{line} {after.split()[0]}") <= 78]
    assert early == []
    assert "[]" not in shown


IN_BRACKETS = "pip install 'isrwatch[export]'; [[cluster]] [/dim] [red]x"
GROUP = typer.Typer(help="A group of [alerts].")
GROUP.callback()(lambda: None)


@GROUP.command(help=f"Reads [cluster].\n\n{IN_BRACKETS}")
def below(
    one: Annotated[str, typer.Argument(help=IN_BRACKETS)] = "",
    *,
    two: Annotated[str, typer.Option(help=IN_BRACKETS)] = "",
) -> None:
    pass


def test_help_prints_words_in_square_brackets_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Has [alerts] in its line."
    monkeypatch.setitem(COMMANDS, "brackets", Command(target=f"{__name__}:GROUP", help=line, purpose=Purpose.WORK))

    def help_of(*words: str) -> str:
        return RUNNER.invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).stdout

    assert line in help_of()
    assert "A group of [alerts]." in help_of("brackets")
    assert "Reads [cluster]." in help_of("brackets")
    assert help_of("brackets", "below").count(IN_BRACKETS) == 3
    assert "The section [alerts] of the configuration chooses" in help_of("dashboards", "render")


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_errors_are_red_on_a_terminal_unless_no_color_is_set(
    environment: dict[str, str], *, coloured: bool, tmp_path: Path
) -> None:
    controller, terminal = pty.openpty()
    configuration = tmp_path / "isrwatch.toml"
    configuration.write_text("[nowhere]\n")
    clean = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR", "TERM"}}
    run = subprocess.run(
        [sys.executable, "-m", "streaming.commands", "job", "--config", str(configuration)],
        stderr=terminal,
        check=False,
        timeout=120,
        env={**clean, "TERM": "xterm", **environment},
    )
    os.close(terminal)
    written = os.read(controller, 10_000).decode()
    os.close(controller)
    assert run.returncode == 2
    assert "unknown key nowhere" in written
    assert coloured == ("\x1b[31m" in written)


def test_the_module_is_the_script() -> None:
    assert python("-m", "streaming.commands", "--version").stdout == f"isrwatch {version('isrwatch')}\n"


def test_extras_named_in_the_table_exist() -> None:
    extras = set(metadata("isrwatch").get_all("Provides-Extra") or ())
    assert {line.extra for line in commands.COMMANDS.values()} <= extras


def test_help_is_grouped_by_purpose() -> None:
    text = RUNNER.invoke(app, ["--help"], prog_name="isrwatch").output
    places = [text.index(f"─ {purpose} ─") for purpose in Purpose]
    assert places == sorted(places)
    for before, after, purpose in zip(places, [*places[1:], len(text)], Purpose, strict=True):
        named = {name for name, command in COMMANDS.items() if f"│ {name} " in text[before:after]}
        assert named == {name for name, command in COMMANDS.items() if command.purpose is purpose}


def completed(words: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys\nsys.argv = ['isrwatch']\nfrom streaming.commands import main\n"
        "try:\n    main()\nfinally:\n    print('pyarrow' in sys.modules, file=sys.stderr)\n"
    )
    place = str(len(words.split()))
    return python("-c", script, _ISRWATCH_COMPLETE="complete_bash", COMP_WORDS=f"isrwatch {words}", COMP_CWORD=place)


def test_a_shell_completes_commands_without_importing_them_and_the_options_of_one() -> None:
    commands_of = completed("reas")
    assert commands_of.stdout.split() == ["reassignments"], commands_of.stderr
    assert commands_of.stderr.split() == ["False"]
    options = completed("brokers --wa")
    assert options.stdout.split() == ["--watch"], options.stderr
