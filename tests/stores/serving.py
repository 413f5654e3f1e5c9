"""A server as a process: started, awaited, and ended by its pid."""

from __future__ import annotations

import re
import socket
import subprocess
from contextlib import contextmanager, suppress
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from deploy.sandbox.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

END_SECONDS: Final = 10.0
WATCH: Final = ("/bin/sh", "-c", 'read -r ended || kill -9 "$1"', "watch")
"""Ends a server whose starter is gone without having ended it: the kernel has closed the other end of its pipe."""


@contextmanager
def serving(
    command: Sequence[str | Path], folder: Path, *, ready: str, environment: Mapping[str, str] | None = None
) -> Iterator[re.Match[str]]:
    """Run a server until the block ends, and give what its output said when it was ready; see ``started``."""
    with started(command, folder, ready=ready, environment=environment) as (_, said):
        yield said


@contextmanager
def started(
    command: Sequence[str | Path],
    folder: Path,
    *,
    ready: str,
    environment: Mapping[str, str] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> Iterator[tuple[subprocess.Popen[bytes], re.Match[str]]]:
    """Run a server until the block ends, and give its process, and what its output said when it was ready.

    Args:
        command: the program and its arguments.
        folder: where it runs; its output is ``NAME.log`` there, in which NAME is that of the folder.
        ready: a regular expression; found in the output it says that the server answers.
        environment: the variables of its environment; this process's by default.
        seconds: that it may take until it is ready.

    Raises:
        RuntimeError: it ended by itself; with the end of its output.
        TimeoutError: it was not ready in time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{folder.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,  # Ctrl-C in a terminal ends the tests, which end the server
        )  # fmt: skip
    watch = subprocess.Popen([*WATCH, str(process.pid)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        what = f"{folder.name} to say {ready!r}"
        said = wait_until(lambda: _said(process, log, ready), what, seconds=seconds, every=0.02)
        yield process, said
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        watch.communicate(b"ended\n")


def free_port() -> int:
    """Give a port nobody uses now, below those of which the kernel takes one for each outgoing connection.

    One of those could be taken before the program that is to listen has started. Seeds of tests have no say in it.
    """
    while True:
        port = SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def listens(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether a server takes connections at an address of this machine.

    One that listens at every address does so at 127.0.0.2, too; one that listens at 127.0.0.1 does not.
    """
    try:
        socket.create_connection((address, port), 30).close()
    except ConnectionRefusedError:
        return False
    return True


def _said(process: subprocess.Popen[bytes], log: Path, ready: str) -> re.Match[str] | None:
    ended = process.poll() is not None
    text = log.read_text(encoding="utf-8", errors="replace")
    if ended:
        last = "\n".join(line[:300] for line in text.splitlines()[-15:])
        raise RuntimeError(f"{log.stem} has ended with {process.returncode}:\n{last}")
    return re.search(ready, text)
