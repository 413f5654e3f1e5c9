"""Failures of Spark as one sentence, or as our own error if a Python worker has raised one."""

from __future__ import annotations

import re
import traceback
from typing import Final

from streaming import errors
from streaming.delta.log.storage import is_disk_full
from streaming.errors import IsrwatchError, NewerFormat

_RAISED: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt): .+$", re.MULTILINE)
_INTERNALS: Final = re.compile(
    r"\[\w+\] Query \[[^\]]*\] terminated with exception: "
    r"|Job aborted due to stage failure: .*most recent failure: Lost task [^)]*\) \([^)]*\): "
    r"|(?:\w+\.){2,}\w+(?:Error|Exception): "
    r"| SQLSTATE: \w+$"
)
"""Text that Spark writes around a cause: ids of queries, tasks, Java classes."""
OUR_ERROR: Final = re.compile(r"^\W*streaming\.(?:\w+\.)+(?P<name>[A-Z]\w+): (?P<sentence>.+)$", re.MULTILINE)


class SparkEnded(IsrwatchError):
    """Spark ended a stream, or did not start it, for a reason of its own."""


def spark_failure(error: BaseException) -> IsrwatchError:
    """Return the failure of Spark, or our own error that a Python worker has raised."""
    if is_disk_full(error):
        return IsrwatchError("the disk of the checkpoint or of Spark's temporary files is full; free space")
    if (ours := _our_error_in(str(error))) is None:
        return SparkEnded(sentence_of(error))
    # Only this error must keep its class: no restart fixes it.
    return (NewerFormat if ours["name"] == NewerFormat.__name__ else IsrwatchError)(sentence_of(error))


def sentence_of(error: BaseException) -> str:
    r"""Return an error in one sentence; for our own errors, even in a Python worker of Spark, it is their sentence.

    >>> sentence_of(RuntimeError("[FAILED] Traceback: ...\nstreaming.errors.IsrwatchError: it was cut\n at Spark"))
    'it was cut'
    >>> sentence_of(OSError(28, "No space left on device"))
    'No space left on device: free space on its disk'
    >>> sentence_of(RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.\n\tat x"))
    'Python worker failed to connect back'
    """
    if isinstance(error, OSError) and error.errno is not None:
        return errors.sentence_of(error)
    text = str(error).strip()
    return ours["sentence"] if (ours := _our_error_in(text)) else (_cause_in(text) or type(error).__name__)


def _cause_in(text: str) -> str:
    """Return the cause without Spark's text around it; for an error in a Python worker, Python's line."""
    of_python, _, _ = text.partition("Traceback (most recent call last)")[2].partition("\n\tat ")
    first = next(reversed(_RAISED.findall(of_python)), None) or text.partition("\n")[0]
    return _INTERNALS.sub("", first).strip(" .;")


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error; empty for our own errors, whose sentence is enough."""
    if isinstance(error, IsrwatchError) and not isinstance(error, SparkEnded):
        return ""
    return "".join(traceback.format_exception(error)).strip()


def _our_error_in(text: str) -> re.Match[str] | None:
    """Return our last error in a traceback: the earlier ones caused it."""
    return next(reversed(list(OUR_ERROR.finditer(text))), None)
