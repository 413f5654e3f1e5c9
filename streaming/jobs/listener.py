"""The listener of Spark's streaming queries: what Spark reports of each batch, as soon as it does.

Listeners of the user, ``spark.sql.streaming.streamingQueryListeners``, get the same reports.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

Report = Mapping[str, Any]
"""Report of Spark on one batch: the JSON of a ``StreamingQueryProgress``."""


class ProgressListener(StreamingQueryListener):
    """Hands on the report of each batch.

    PySpark would fetch a report field by field, some eighty calls to Java for each batch; this fetches its JSON.
    """

    def __init__(self, spark: SparkSession, progressed: Callable[[Report], None]) -> None:
        """Begin; ``progressed`` is called in a thread of py4j, and must not raise."""
        self._session, self._progressed = spark, progressed

    @property
    def _jlistener(self) -> Any:  # noqa: ANN401 - py4j ships no types
        """Return the listener of Java, always the same one: Spark removes only what it has added."""
        if not hasattr(self, "_jlistenerobj"):
            java = self._session.sparkContext._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]  # noqa: SLF001 - as PySpark does
            self._jlistenerobj = java.PythonStreamingQueryListenerWrapper(_OfJava(self._progressed))
        return self._jlistenerobj

    def onQueryStarted(self, event: Any) -> None:  # noqa: ANN401, N802 - as Spark names it
        """Do nothing; Java calls :class:`_OfJava` instead."""

    onQueryProgress = onQueryTerminated = onQueryStarted  # noqa: N815 - as Spark names them


class _OfJava:
    """Implements the interface through which Spark calls a listener in Python."""

    Java = type("Java", (), {"implements": ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]})

    def __init__(self, progressed: Callable[[Report], None]) -> None:
        self._progressed = progressed

    def onQueryProgress(self, event: Any) -> None:  # noqa: ANN401, N802 - as Java calls it
        """Hand on a report; a Spark that is ending may not give it any more."""
        try:
            report = json.loads(event.progress().json())
        except (Py4JError, OSError):
            return
        self._progressed(report)

    def onQueryStarted(self, event: Any) -> None:  # noqa: ANN401, N802 - as Java calls it
        """Do nothing: the supervisor has started the query."""

    onQueryIdle = onQueryTerminated = onQueryStarted  # noqa: N815 - as Java calls them


@contextmanager
def listening(spark: SparkSession, progressed: Callable[[Report], None]) -> Iterator[None]:
    """Listen to the queries of a session until the end of the block."""
    listener = ProgressListener(spark, progressed)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
