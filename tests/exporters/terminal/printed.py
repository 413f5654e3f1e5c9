"""What ``isrwatch state`` prints of tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from streaming.commands import app


def state(tables: Path, *options: str) -> str:
    """Give the lines for people, or what another ``--format`` among the options gives."""
    done = CliRunner().invoke(app, ["state", "--tables", str(tables), "--format", "lines", *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def objects(tables: Path, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in state(tables, "--format", "json", *options).splitlines()]


def refusal(tables: Path, *options: str) -> str:
    """Give the sentence with which options are refused; nothing else is printed."""
    done = CliRunner().invoke(app, ["state", "--tables", str(tables), *options])
    assert (done.exit_code, done.stdout) == (2, "")
    return done.stderr
