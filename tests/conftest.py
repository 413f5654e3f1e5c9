"""Fixtures that several rooms use, each kind in its own plugin.

Those that import much are named by the rooms and modules that use them, so that a test of a rule starts at once.
"""

import atexit
import gc
import logging
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import Phase, settings

from tests.examples import examples

# How long an example takes depends on what else the machine does; the seed of a failure is printed.
settings.register_profile("isrwatch", deadline=None, print_blob=True, max_examples=examples(20))
settings.register_profile(
    "first-failure", settings.get_profile("isrwatch"), phases=set(Phase) - {Phase.shrink, Phase.explain}
)
settings.load_profile("isrwatch")

# A shell that starts the tests in the background lets them, and every program they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite(
    "tests.plugins.laboratory",
    "tests.plugins.pipeline",
    "tests.plugins.played",
    "tests.plugins.real_collector",
    "tests.plugins.spark_cluster",
    "tests.plugins.transcript",
)

pytest_plugins = [
    "tests.plugins.golden",
    "tests.plugins.order",
    "tests.plugins.prometheus",
    "tests.plugins.recordings",
    "tests.plugins.sandbox",
    "tests.plugins.shared_plays",
    "tests.plugins.spark",
    "tests.plugins.times",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run what is marked long, and nothing else")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes too long for `make test`; runs in `make test-long` (--long)")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector never walk over the modules and the tests: that took a third of their collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # what is not freed at the end, libraries report as leaked


@pytest.hookimpl(tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_keep_long_ones_or_none(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked long, or with ``--long`` everything else; pytest sees names with its prefix only."""
    wanted = config.getoption("long")
    left_out = [item for item in items if bool(item.get_closest_marker("long")) != wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if bool(item.get_closest_marker("long")) == wanted]


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Let no test inherit the log of a command that another one called: it goes to a stream that is closed by then."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if handler not in before and type(handler).__module__ == "streaming.terminal":
            root.removeHandler(handler)
    root.setLevel(level)
