"""The Spark session. The user's configuration of Spark takes precedence over ``conf/spark-defaults.conf``.

Knows Spark's configuration and the environment of the process.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import streaming
from streaming.errors import IsrwatchError
from streaming.jobs.java_output import JavaOutput
from streaming.resources import conf_path
from streaming.runtime import class_archive
from streaming.runtime.java import check_needs, find_java, java_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
# Set in local mode only: a Spark cluster has its own driver addresses, Java options, web pages and plans, and object
# stores have no atomic rename.
LOCAL_ONLY: Final = frozenset({
    "spark.ui.enabled",
    "spark.sql.adaptive.enabled",
    "spark.driver.bindAddress",
    JAVA_OPTIONS,
    "spark.driver.host",
    "spark.sql.streaming.checkpointFileManagerClass",
})  # fmt: skip
_LOCAL: Final = "local"
WITHOUT_HOST_NAME: Final = "-Dlog4j2.statusLoggerLevel=OFF"
"""Java option by which Spark's log does not begin with the trace of a host name without an address."""
OF_SUBMIT: Final = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--jars": "spark.jars",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}
"""Options of spark-submit for properties that we set as well."""
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

SECONDS_TO_KEEP_PLANNERS: Final = 120.0
_PLANNER: Final = " pyspark.daemon pyspark.sql.worker."


def build_session(
    app_name: str,
    *,
    jars: Sequence[Path] = (),
    extra: Mapping[str, str] | None = None,
    output: JavaOutput | None = None,
) -> SparkSession:
    """Start the Spark session, or join the running one.

    Without spark-submit it first looks for a Java, and makes Spark's workers use this Python. Delta's extension and
    catalog are enabled if Delta's jars are among ``jars``; ``extra`` is more configuration, which the user's overrides.

    Raises:
        MissingTool: there is no Java that Spark runs on.
        ConfigurationError: Java lacks what it takes to start.
        IsrwatchError: its Java process did not start, or has ended.
    """
    silence_connections()
    # YARN's cluster mode gives the path of the package on another machine first, and its own besides.
    warnings.filterwarnings("ignore", "Failed to add file", RuntimeWarning)
    given, own_options = _given(), tuple[str, ...]()
    if not is_submitted():
        os.environ.update(java_environment())
        check_needs(given.get(JAVA_OPTIONS, ""), given.get("spark.driver.extraJavaOptions", ""))
        if is_local() and not _has_address():
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            own_options = (WITHOUT_HOST_NAME,)
        own_options += class_archive.using(spark_archive())
    unset: dict[str, bool | float | int | str | None] = {**configuration(app_name, given, jars, extra or {})}
    if JAVA_OPTIONS in unset:
        unset[JAVA_OPTIONS] = java_options(str(unset[JAVA_OPTIONS]), own_options)
    output = output or JavaOutput()
    try:
        if not is_submitted():
            _start_java(unset, output)
        spark = SparkSession.builder.config(map=unset).getOrCreate()
    except (Py4JError, PySparkException, ConnectionError) as error:
        output.wait()
        raise IsrwatchError(f"Spark did not start: {_cause_of(error)}; what it printed before says more") from error
    _put_on_path_of_workers(spark, Path(streaming.__file__).parents[1])
    return spark


def silence_connections() -> None:
    """Log no trace of what else is reported, or is no news while everything stops.

    py4j logs that of each error that a batch raises, which the job reports when the query fails; and of each call for
    which Java has ended, which raises an error, too: in the root logger. PySpark's server of accumulators prints its
    own when a signal has ended Java first.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_of_others)
    for server in (AccumulatorTCPServer, AccumulatorUnixServer):
        server.handle_error = _no_trace  # type: ignore[method-assign,assignment]


def _is_of_others(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _start_java(given: Mapping[str, bool | float | int | str | None], output: JavaOutput) -> None:
    """Start Spark's Java process as a session does, but with another stderr than ours."""
    conf = SparkConf()
    for key, value in given.items():
        conf.set(key, str(value))
    with output.opened() as stderr:
        gateway = launch_gateway(conf, {"stderr": stderr})  # type: ignore[no-untyped-call]  # PySpark has no types for it
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - the session takes the Java process that is there


def _has_address() -> bool:
    """Return whether the name of this machine can be resolved, without which Spark does not start."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except (OSError, UnicodeError):
        return False
    return True


def _no_trace(_server: object, _request: object, _address: object) -> None:
    """Print nothing of a request that failed."""


def _cause_of(error: Exception) -> str:
    """Return the line of an error that names its cause: of Java's it is the second one."""
    lines = str(error).splitlines()
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0] if lines else "it ended")


def is_submitted() -> bool:
    """Return whether spark-submit or the user has already started a JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._jvm is not None  # noqa: SLF001 - SparkConf asks the same


def _given() -> dict[str, str]:
    """Return the user's configuration of Spark."""
    if is_submitted():
        SparkContext._ensure_initialized()  # noqa: SLF001 - under spark-submit only its JVM knows the command line
        return named_by_user(dict(SparkConf().getAll()), sys.argv[0])
    return defaults_file() | submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))


def named_by_user(given: Mapping[str, str], program: str) -> dict[str, str]:
    """Return a configuration without the name that spark-submit gives an application that has none: its file's."""
    name = given.get("spark.app.name")
    return {key: value for key, value in given.items() if key != "spark.app.name" or name != Path(program).name}


def is_local() -> bool:
    """Return whether Spark runs, or will run, in local mode."""
    return _given().get("spark.master", measured_configuration()["spark.master"]).startswith(_LOCAL)


def tasks_at_once(spark: SparkSession) -> int | None:
    """Return how many tasks an executor runs at once; None if Spark decides by the cores of its machine."""
    configuration = spark.sparkContext.getConf()
    cores = configuration.get("spark.executor.cores")
    return None if cores is None else int(cores) // int(configuration.get("spark.task.cpus", "1") or 1)


def waits_for_executors(spark: SparkSession) -> bool:
    """Return whether Spark has work but no executor that could do it; in local mode the driver does it."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - PySpark knows of no executors
    if context.isLocal() or not list(context.statusTracker().getActiveJobIds()):
        return False
    return bool(context.getExecutorMemoryStatus().size() <= 1)  # the driver is in it


def end_planners(spark: SparkSession) -> None:
    """End the Python processes in which Spark planned the reading of Python sources, once it has long done so.

    Spark keeps a daemon for each step of planning (to look up, to create, to split), 35 MB each, until it ends itself,
    and starts another one when it plans again. A worker of theirs that Spark still holds would fail the next plan;
    Spark gives it up after a minute (``PythonWorkerFactory.IDLE_WORKER_TIMEOUT_NS``).
    """
    processes = spark.sparkContext._jvm.java.lang.ProcessHandle.current().children().iterator()  # type: ignore[union-attr]  # noqa: SLF001 - Spark offers no other way to Java
    while processes.hasNext():
        process = processes.next()
        command, started = process.info().commandLine().orElse(""), process.info().startInstant().orElse(None)
        is_old = started is not None and time.time() - started.toEpochMilli() / 1000 > SECONDS_TO_KEEP_PLANNERS
        if is_old and _PLANNER in command:
            process.destroy()


@contextmanager
def session_ends(spark: SparkSession) -> Iterator[None]:
    """Stop Spark at the end of the block; its manager is given the exit code of the error that ended the block.

    Without it YARN calls an application in client mode successful however its driver ended.
    """
    code = 1
    try:
        yield
        code = 0
    except IsrwatchError as error:
        code = error.exit_code
        raise
    finally:
        with suppress(Py4JError, ConnectionError):  # it may have been stopped together with this process
            spark.sparkContext._jsc.sc().stop(code)  # noqa: SLF001 - PySpark passes none on
            spark.stop()


def java_options(options: str, more: Sequence[str]) -> str:
    """Add Java options, which may contain blanks, to those of a property of Spark."""
    return " ".join([options, *(f'"{option}"' for option in more)])


def spark_archive() -> Path:
    """Return the path of the archive of Spark's classes, which ``isrwatch jars fetch`` makes and which may not exist.

    Raises:
        MissingTool: there is no Java that Spark runs on.
    """
    return class_archive.archive_path("spark", find_java(), sorted(Path(_find_spark_home(), "jars").glob("*.jar")))


def configuration(
    app_name: str, given: Mapping[str, str], jars: Sequence[Path], extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the configuration to add to the user's."""
    defaults = {**measured_configuration(), "spark.app.name": app_name, **_of_jars(jars), **extra}
    is_local = given.get("spark.master", defaults["spark.master"]).startswith(_LOCAL)
    return {key: value for key, value in defaults.items() if key not in given and (is_local or key not in LOCAL_ONLY)}


def measured_configuration() -> dict[str, str]:
    """Read our reference configuration, which refers to our files for Spark's log and scheduler."""
    log4j2 = f"-Dlog4j2.configurationFile={conf_path('log4j2.properties').as_uri()}"
    return {
        **parse_properties(conf_path("spark-defaults.conf").read_text(encoding="utf-8")),
        "spark.driver.extraJavaOptions": log4j2,
        "spark.scheduler.allocation.file": conf_path("fairscheduler.xml").as_uri(),
    }


def defaults_file() -> dict[str, str]:
    """Read the user's own defaults: spark-defaults.conf in SPARK_CONF_DIR, else in Spark's installation."""
    directory = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    defaults = directory / "spark-defaults.conf"
    return parse_properties(defaults.read_text(encoding="utf-8")) if defaults.is_file() else {}


def submit_arguments(text: str) -> dict[str, str]:
    """Read the configuration in arguments of spark-submit; PySpark takes them from ``PYSPARK_SUBMIT_ARGS``.

    >>> submit_arguments("--master local[1] --conf 'spark.app.name=my job' --verbose pyspark-shell")
    {'spark.master': 'local[1]', 'spark.app.name': 'my job'}
    """
    halves = (word.split("=", maxsplit=1 if word.startswith("--") else 0) for word in shlex.split(text))
    given = {}
    for option, value in pairwise(chain.from_iterable(halves)):
        if option in {"--conf", "-c"}:
            key, _, setting = value.partition("=")
            given[key] = setting
        elif option in OF_SUBMIT:
            given[OF_SUBMIT[option]] = value
    return given


def parse_properties(text: str) -> dict[str, str]:
    r"""Read Spark's properties format: key, blanks or "=" or ":", value; "#" begins a comment line.

    >>> parse_properties("# local\nspark.master   local[2]\nspark.ui.enabled=false")
    {'spark.master': 'local[2]', 'spark.ui.enabled': 'false'}
    """
    lines = (line.strip() for line in text.splitlines())
    matches = (re.match(r"([^\s=:]+)\s*[=:]?\s*(.*)", line) for line in lines if not line.startswith(("#", "!")))
    return {match[1]: match[2] for match in matches if match}


def _put_on_path_of_workers(spark: SparkSession, package: Path) -> None:
    """Let Python workers import our code from the same zip as this process, if it does.

    Workers get the paths of ``--py-files``, but those that plan a stream get them in a folder that Spark never fills
    (``streaming_job``, PythonStreamingSourceRunner), so they would only find isrwatch in the current directory.
    """
    if package.is_file():
        environment = spark.sparkContext.environment
        given = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(package), *([given] if given else [])])


def _of_jars(jars: Sequence[Path]) -> dict[str, str]:
    if not jars:
        return {}
    with_jars = {"spark.jars": ",".join(str(jar.resolve()) for jar in jars)}
    return with_jars | DELTA if any("delta-spark" in jar.name for jar in jars) else with_jars
