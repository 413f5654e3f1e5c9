"""The log in each format, of a program that is started with the options."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.plugins.local_http import free_port

MESSAGE = 'a "quoted" topic=x'
LOGS = """
import logging, sys
from exporters.web.command import LogFormat, LogLevel, configure
configure(LogLevel(sys.argv[1]), LogFormat(sys.argv[2]))
log = logging.getLogger("any")
log.debug("small")
log.warning('a "quoted" topic=%s', "x")
try:
    int("none")
except ValueError:
    log.error("bad", exc_info=True)
"""


def logged(level: str, how: str) -> list[str]:
    ended = subprocess.run([sys.executable, "-c", LOGS, level, how], capture_output=True, text=True, check=True)
    return ended.stderr.splitlines()


def test_json_has_a_line_for_each_record_with_its_traceback() -> None:
    small, warning, error = map(json.loads, logged("debug", "json"))
    assert (small["level"], small["msg"]) == ("DEBUG", "small")
    assert (warning["level"], warning["msg"]) == ("WARN", MESSAGE)
    assert error["err"].splitlines()[-1] == "ValueError: invalid literal for int() with base 10: 'none'"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", error["time"])


def test_logfmt_quotes_what_would_not_be_one_value() -> None:
    warning, error = logged("warn", "logfmt")
    assert warning.endswith(f" level=WARN msg={json.dumps(MESSAGE)}")
    assert " level=ERROR msg=bad err=" in error


def test_below_the_level_nothing_is_logged_and_text_begins_with_the_time() -> None:
    (line, *traceback) = logged("error", "text")
    assert re.match(r"\d{4}-\d\d-\d\d ", line)
    assert line.endswith("bad")
    assert traceback[-1].startswith("ValueError: ")


def test_the_program_logs_in_the_format_of_its_option(tmp_path: Path) -> None:
    options = ["--log.format", "logfmt", "--topic.exclude", "^__", "--web.listen-address", f"127.0.0.1:{free_port()}"]
    command = [sys.executable, "-m", "streaming.commands", "export", "--tables", str(tmp_path), *options]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert program.stderr is not None
    first, second = program.stderr.readline(), program.stderr.readline()
    os.kill(program.pid, signal.SIGTERM)
    program.communicate(timeout=60)
    assert first.startswith("serving ")
    assert second.startswith("time=")
    assert "^__" in second
