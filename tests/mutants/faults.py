"""Small faults, drawn by chance from the rules: each is one module in which one place is changed."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

CHECKOUT: Final = Path(__file__).parents[2]
# Of None and of the members of an enumeration there is one object each.
THE_SAME: Final = ("_Is_Eq", "_Eq_Is", "_IsNot_NotEq", "_NotEq_IsNot")
# The rules, and where their tests are; those of the module's own name run first.
RULES: Final = {
    "streaming/changes/**/*.py": ("tests/changes", "tests/contracts", "tests/delta", "tests/jobs/shards"),
    "streaming/contracts/health.py": ("tests/contracts", "tests/changes"),
    "streaming/delta/**/*.py": ("tests/delta", "tests/jobs/shards", "tests/exporters/read_model"),
    "streaming/sources/**/*.py": ("tests/sources",),
    "exporters/read_model/reader.py": ("tests/exporters",),
}


Candidate = tuple[int, str, int]
"""A line, an operator of cosmic-ray, and which of its places in the module it is."""
Place = tuple[Path, tuple[str, ...], tuple[Candidate, ...]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One change of one module: how it is named, and the module with it."""

    name: str
    module: str
    line: int
    tests: tuple[str, ...]
    code: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a fault.

    Attributes:
        seen_by: the test that failed, or why the tests ended otherwise; empty if nothing was noticed.
        tests: how many could have noticed it.
    """

    fault: Fault
    seen_by: str
    tests: int


def drawn_faults(count: int, chance: random.Random) -> Iterator[Fault]:
    """Give one fault each for so many places of the rules, drawn by chance from all of them."""
    places = [
        place for glob, tests in RULES.items() for path in sorted(CHECKOUT.glob(glob)) for place in _in(path, tests)
    ]
    chance.shuffle(places)
    faults = (fault for path, tests, candidates in places if (fault := _fault(path, tests, chance.choice(candidates))))
    yield from islice(faults, count)


def _in(path: Path, tests: tuple[str, ...]) -> Iterator[Place]:
    nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
    candidates: defaultdict[tuple[int, int], list[Candidate]] = defaultdict(list)
    for name in sorted(operator_names()):
        operator = get_operator(name)
        if not operator.arguments() and not name.endswith(THE_SAME):
            starts = (start for node in nodes for start, _ in operator().mutation_positions(node))
            for occurrence, start in enumerate(starts):
                candidates[start].append((start[0], name, occurrence))
    return ((path, tests, tuple(each)) for _, each in sorted(candidates.items()))


def _fault(path: Path, tests: tuple[str, ...], candidate: Candidate) -> Fault | None:
    line, name, occurrence = candidate
    source = path.read_text(encoding="utf-8")
    code = mutate_code(source, get_operator(name)(), occurrence)
    if code is None or what_runs(code) in {None, what_runs(source)}:
        return None
    module = str(path.relative_to(CHECKOUT))
    return Fault(f"{module}:{line} {name.removeprefix('core/')}", module, line, tests, code)


def what_runs(source: str) -> str | None:
    """Return what of a module is run, without annotations, protocols, slots and frozen; None if it is no Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    return ast.dump(_WithoutAnnotations().visit(tree))


class _WithoutAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(value=None)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST | None:
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):  # slots save memory, and mypy sees who writes to what is frozen
                decorator.keywords = [each for each in decorator.keywords if each.arg not in {"slots", "frozen"}]
        return None if "Protocol" in _names_in(*node.bases) else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if "TYPE_CHECKING" in _names_in(node.test) else self.generic_visit(node)


def _names_in(*expressions: ast.expr) -> set[str]:
    return {node.id for each in expressions for node in ast.walk(each) if isinstance(node, ast.Name)}


def difference(fault: Fault) -> str:
    """Return the lines that a fault changes."""
    before = (CHECKOUT / fault.module).read_text(encoding="utf-8").splitlines()
    pairs = zip(before, fault.code.splitlines(), strict=False)
    return next((f"  - {old.strip()}\n  + {new.strip()}" for old, new in pairs if old != new), "  at its end")
