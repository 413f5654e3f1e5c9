"""What the tests may cost and depend on: rules for the tests themselves."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.times import ROOT

SHORT_SECONDS = 0.5
# Without a reason yet: more of them are not added, and these become fewer.
SLEEPS = {
    "tests/conformance/test_real_cluster.py": 1,
    "tests/end_to_end/test_jmx_names_real.py": 1,
    "tests/end_to_end/test_real_cluster.py": 2,
    "tests/sources/samples/test_quorum_and_transactions_real.py": 1,
    "tests/sources/test_permissions_real.py": 1,
    "tests/web/test_connections.py": 2,
}
PRIVATE = re.compile(r"_[a-zA-Z]")
MOST_PRIVATE = 40
OF_LIBRARIES = {"_replace", "_asdict", "_fields", "_field_defaults", "_exit", "_jvm", "_jsc", "_gateway", "_processes"}
PARAMETRISED = {"tests/sources/samples/test_slow_broker_real.py": 1}


def files() -> list[Path]:
    """The modules of tests, and those with their fixtures."""
    named = ("test_*.py", "conftest.py", "plugins/*.py")
    return sorted({path for pattern in named for path in (ROOT / "tests").rglob(pattern)})


def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def counted(found: Iterator[Path]) -> Counter[str]:
    return Counter(str(path.relative_to(ROOT)) for path in found)


def test_no_fixture_that_many_tests_share_has_parameters() -> None:
    # Random order within a file would make it again at each change of the parameter.
    assert counted(path for path in files() for _ in shared_with_parameters(path)) - Counter(PARAMETRISED) == Counter()


def shared_with_parameters(path: Path) -> Iterator[ast.Call]:
    for node in nodes_of(path) if "params=" in path.read_text() else ():
        for each in getattr(node, "decorator_list", ()):
            if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("fixture"):
                given = {keyword.arg: keyword.value for keyword in each.keywords}
                if "params" in given and ast.unparse(given.get("scope", ast.Constant("function"))) != "'function'":
                    yield each


def test_a_long_sleep_says_why_it_is_none_that_waits_for_something() -> None:
    assert counted(path for path in files() for _ in long_sleeps(path)) - Counter(SLEEPS) == Counter()


def long_sleeps(path: Path) -> Iterator[ast.Call]:
    """Calls of sleep by a number of seconds, without a comment on their line."""
    text = path.read_text()
    lines = text.splitlines()
    for node in nodes_of(path) if "sleep(" in text else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=int() | float() as seconds)]):
                if seconds > SHORT_SECONDS and "#" not in lines[node.lineno - 1]:
                    yield node
            case _:
                pass


def test_few_tests_reach_for_private_names_of_the_product() -> None:
    found = [(str(path.relative_to(ROOT)), name) for path in (ROOT / "tests").rglob("*.py") for name in privates(path)]
    assert len(found) <= MOST_PRIVATE, found


def privates(path: Path) -> Iterator[str]:
    """Private names that tests read, import or replace and do not define; of the product, not of its libraries."""
    nodes = nodes_of(path) if re.search(r"[.\"' ]_[a-zA-Z]", path.read_text()) else []
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) in {"self", "cls"}
    }
    for node in nodes:
        match node:
            case ast.Attribute(attr=name) | ast.alias(name=name):
                names = [name]
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr"), args=given):
                names = [str(each.value).rpartition(".")[2] for each in given if isinstance(each, ast.Constant)]
            case _:
                names = []
        yield from (name for name in names if PRIVATE.match(name) and name not in {*own, *OF_LIBRARIES})
