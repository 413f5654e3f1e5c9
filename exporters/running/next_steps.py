"""Commands to run next, as they can be copied from the output of ``isrwatch run`` and of the demo."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.terminal import Terminal


def print_steps(console: Terminal, steps: Mapping[str, str]) -> None:
    """Print the arguments of ``isrwatch`` for each purpose."""
    # In a venv that is not activated, the shell finds only the full path.
    command = "isrwatch" if shutil.which("isrwatch") else os.path.relpath(Path(sys.executable).with_name("isrwatch"))
    for purpose, arguments in steps.items():
        console.print(Text.assemble(f"  {command} {arguments}", (f"   # {purpose}", "dim")), soft_wrap=True)
