"""The end of a process that has threads in libraries which Python cannot end.

Python ends a daemon thread where it takes up its work again. In the middle of delta-rs or of the client of HDFS, which
are written in Rust, that is a crash (SIGSEGV or SIGABRT: exit codes 139 and 134) after everything was done. So a
process that still has daemon threads skips the last step, in which Python takes itself apart.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ending_safely() -> Iterator[None]:
    """Run a program until its ``SystemExit``, or another exception, ends the process.

    It must be entered before anything else is registered with ``atexit``, so that all of that still runs.
    """
    code = 0

    def end() -> None:
        if any(thread.daemon for thread in threading.enumerate()):
            logging.shutdown()
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)

    atexit.register(end)
    try:
        yield
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    except BaseException:
        code = 1
        raise
