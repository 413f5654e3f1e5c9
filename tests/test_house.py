"""The house rules that no linter knows."""

from __future__ import annotations

import ast
import builtins
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import is_dataclass
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from deltalake import QueryBuilder

from deploy.release.packages import KAFKA_JARS
from exporters.metrics.catalogue import CATALOGUE
from exporters.metrics.jmx_names import JMX_METRICS
from streaming.commands import load
from streaming.contracts.tables import TABLES
from streaming.delta.log.definitions import create_or_upgrade
from streaming.jobs.application import QUERIES
from streaming.settings import Settings
from streaming.sources.simulated.scenario_file import load_scenario

ROOT = Path(__file__).parents[1]
PACKAGES = ("streaming", "exporters", "dashboards")
ROOMS = (*PACKAGES, "deploy", "docs")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

FUNCTION_LINES = 50
FILE_LINES = 600
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc", "base"}
# Spelled in halves, so that this file does not break its own rule.
REGISTRIES = (
    "pypi" + ".org", "python" + "hosted.org", "repo1." + "maven", "repo.maven" + ".apache", "maven." + "org",
    "registry.npm" + "js", "hub.docker" + ".com", "crates" + ".io", "proxy.golang" + ".org", "conda.anaconda" + ".org",
)  # fmt: skip
BANNED_WORDS = re.compile(r"\.\./shared|\bshared/(?:facts|design|proto)|\bproto" r"types?\b|\bTO" r"DO\b|\bFIX" r"ME\b")
RENAMED = "docs/contributing/renamed.md"
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")))
DEPLOYMENT = ("deploy/README.md",)
# Words that look like metrics: another exporter, a label, and the beginning of a name.
NO_METRICS = {"kafka_exporter", "kafka_cluster", "kafka_replication"}
SCENARIOS = sorted(path.stem for path in (ROOT / "conf" / "scenarios").glob("*.toml"))
QUERYING = (ROOT / "docs" / "querying.md").read_text()
SQL = re.findall(r"^```sql\n(.*?)^```", QUERYING, re.MULTILINE | re.DOTALL)


def tracked() -> list[Path]:
    """Every file of the repository that git knows, without the deleted ones."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of every tracked text file."""
    for path in tracked():
        try:
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py") if "generated" not in path.parts)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_every_function_fits_in_a_glance() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in sources(*ROOMS)
        for node in functions(path)
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    ]
    assert long == []


def test_every_file_can_be_read_in_one_sitting() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources(*ROOMS)}
    assert {name for name, lines in lengths.items() if lines > FILE_LINES} == set()


def test_only_storage_reads_the_files_of_the_tables() -> None:
    files = r"""pyarrow\.(parquet|dataset)|from pyarrow import .*(parquet|dataset)|["/]_delta_log"""
    readers = [path for path in sources(*ROOMS) if re.search(files, path.read_text())]
    log = ROOT / "streaming" / "delta" / "log"
    assert readers == [log / f"{name}.py" for name in ("commit", "storage", "table_log")]
    clients = [path for path in sources(*ROOMS) if re.search(r"\b(obstore|hdfs_native)\b", path.read_text())]
    assert clients == [ROOT / "streaming" / "delta" / "store" / f"{name}.py" for name in ("buckets", "hdfs")]


def test_no_module_has_a_vague_name_or_one_of_the_standard_library() -> None:
    forbidden = VAGUE_NAMES | set(sys.stdlib_module_names)
    # In a package of its own a module may be called as a library is; at the top of a path, or as a script, never.
    named = {str(path.relative_to(ROOT)) for path in sources(*ROOMS) if path.stem in forbidden - {"__main__"}}
    named |= {name for name in ROOMS if name in forbidden}
    assert named == set()


def test_no_file_names_a_package_registry() -> None:
    found = {name: host for name, text in texts() for host in REGISTRIES if host in text}
    assert found == {}


def test_no_file_speaks_of_what_is_not_in_the_repository_or_not_done() -> None:
    found = {name: match[0] for name, text in texts() if (match := BANNED_WORDS.search(text))}
    assert found == {}


@pytest.mark.parametrize("lock", ["run.txt", "dev.txt"])
def test_the_lock_names_versions_and_hashes_and_no_address(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    blocks = re.split(r"\n(?=[a-z])", text)
    assert all(re.match(r"[a-z0-9-]+==[^ ]+ ", block) and "--hash=sha256:" in block for block in blocks)
    assert re.findall(r"://|--index|--find-links|@ ", text) == []


def test_the_lock_has_every_package_that_the_project_asks_for() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    asked = {name(line) for lines in extras.values() for line in lines} - {"isrwatch", KAFKA_JARS}
    asked |= {name(line) for line in PROJECT["project"]["dependencies"] + PROJECT["build-system"]["requires"]}
    groups = PROJECT["dependency-groups"]
    development = {name(line) for group in ("dev", "docs") for line in groups[group] if isinstance(line, str)}
    assert asked - locked("run.txt") == set()
    assert (asked | development) - locked("dev.txt") == set()


def name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_-]", requirement)[0].lower().replace("_", "-")


def locked(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))


def test_both_locks_give_one_version_of_everything_they_share() -> None:
    pins = [
        set(re.findall(r"^([a-z0-9-]+==\S+)", (ROOT / "requirements" / lock).read_text(), re.MULTILINE))
        for lock in ("run.txt", "dev.txt")
    ]
    assert pins[0] - pins[1] == set()


def test_the_wheel_holds_our_packages_and_their_configuration_and_nothing_else(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {*PACKAGES, "isrwatch.py"}
    shipped = {"streaming/conf/isrwatch.toml", "streaming/conf/jars.lock", *(f"{room}/py.typed" for room in PACKAGES)}
    assert shipped - set(names) == set()
    modules = {str(path.relative_to(ROOT)) for path in sources(*PACKAGES)}
    assert modules - set(names) == set()


def test_nobody_else_installs_a_package_of_our_names() -> None:
    owners = packages_distributions()
    assert {room: set(owners.get(room, ["isrwatch"])) for room in PACKAGES} == {room: {"isrwatch"} for room in PACKAGES}


def test_every_lint_exception_says_why() -> None:
    ignored = re.search(r"^ignore = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL)
    assert ignored is not None
    lines = ignored[1].splitlines()
    assert [line for line in lines if "#" not in line] == []
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(*ROOMS)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"# noqa(?!: [A-Z0-9, ]+ - \S)", line)
    ]
    assert bare == []


def test_every_make_target_of_the_documentation_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for page in (*PAGES, ".ci/run")
        for target in re.findall(r"\bmake ([a-z-]+)\b", re.sub(r"```mermaid.*?```", "", (ROOT / page).read_text()))
    }
    assert named <= targets
    assert {"demo", "generated", "test", "tools"} <= named


def keys_of(section: Any, prefix: str = "") -> Iterator[str]:
    """Every key of the configuration, tables included."""
    for name, hint in get_type_hints(section).items():
        yield f"{prefix}{name}"
        if is_dataclass(hint):
            yield from keys_of(hint, f"{prefix}{name}.")


KEYS = frozenset(keys_of(Settings))


def test_what_the_page_of_renamed_keys_calls_old_is_gone_and_what_it_calls_new_exists() -> None:
    text = (ROOT / RENAMED).read_text().partition("## Keys\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    before, now = ({key for row in rows for key in re.findall(r"`((?:\w+\.)+\w+)", row[side])} for side in (0, 1))
    assert (before & KEYS, now - KEYS) == (set(), set())
    assert len(rows) > 5


@pytest.mark.parametrize("page", sorted({*PAGES, *DEPLOYMENT} - {RENAMED}))
def test_every_configuration_key_of_the_documentation_exists(page: str) -> None:
    sections = "|".join(get_type_hints(Settings))
    named = re.findall(rf"`((?:{sections})\.[a-z_]+)\b[^/`(]*`", (ROOT / page).read_text())
    assert {name for name in named if not name.endswith((".py", ".md", ".toml", ".yaml"))} - KEYS == set()


def folder_map() -> list[str]:
    """The paths of the list of folders."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    (listed,) = re.findall(r"^## Folders\n+```\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    paths: list[str] = []
    for line in listed.splitlines():
        indent, names = re.match(r"( *)((?:\S+, )*\S+)", line).groups()  # type: ignore[union-attr]
        parent = paths_parent(paths, len(indent))
        paths += [f"{parent}{name}" for name in names.split(", ")]
    return paths


def test_the_folders_of_the_list_are_all_there_are() -> None:
    relative = [path.relative_to(ROOT) for path in tracked()]
    there = {f"{path.parts[0]}/" for path in relative if len(path.parts) > 1 and not path.parts[0].startswith(".")}
    packages = [path for path in relative if path.parts[0] in {"streaming", "exporters"} and path.suffix == ".py"]
    there |= {f"{path.parts[0]}/{path.parts[1]}/" for path in packages if len(path.parts) > 2}
    there |= {str(path) for path in packages if len(path.parts) == 2 and path.name != "__init__.py"}
    assert sorted(folder_map()) == sorted(there)


def paths_parent(paths: list[str], indent: int) -> str:
    """The folder that an indented line of the map lies in: the last line without indentation."""
    return "" if indent == 0 else next(path for path in reversed(paths) if path.count("/") == 1 and path.endswith("/"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_loadable_and_says_what_happens(scenario: str) -> None:
    assert load_scenario(scenario).description


@pytest.mark.parametrize("query", SQL)
def test_every_query_of_the_documentation_runs_on_the_tables_as_they_are_defined(query: str, tmp_path: Path) -> None:
    engine = QueryBuilder()
    for table in TABLES.values():
        engine.register(table.name, create_or_upgrade(tmp_path, table))
    assert engine.execute(query).read_all() is not None


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_that_the_documentation_names_exists(page: str) -> None:
    metrics = set(re.findall(r"\bkafka_[a-z_]+[a-z]\b(?!_?\.\.\.)", (ROOT / page).read_text()))
    known = {metric.name for metric in (*CATALOGUE, *(each.metric for each in JMX_METRICS))}
    assert metrics - known - NO_METRICS == set()


def test_every_query_has_a_scheduler_pool_and_stands_in_the_reference_configuration() -> None:
    pools = re.findall(r'<pool name="([a-z_]+)">', (ROOT / "conf" / "fairscheduler.xml").read_text())
    (listed,) = re.findall(r"^#queries = \[(.*)\]", (ROOT / "conf" / "isrwatch.toml").read_text(), re.MULTILINE)
    assert pools == [name for name, query in QUERIES.items() if query.stream is not None]
    assert re.findall(r"[a-z_]+", listed) == list(QUERIES)


def test_the_help_of_the_job_suggests_a_port_that_no_other_program_has_and_our_configuration_of_sparks_log() -> None:
    text = load("job").help or ""
    taken = re.findall(r'^#?listen = "127\.0\.0\.1:(\d+)"', (ROOT / "conf" / "isrwatch.toml").read_text(), re.MULTILINE)
    assert len(taken) == 3
    assert set(re.findall(r"--listen 127\.0\.0\.1:(\d+)", text)) - set(taken) == {"9311"}
    (submit,) = re.findall(r"spark-submit\s+--[^:]*?main\.py", text)
    assert "-Dlog4j2.configurationFile=conf/log4j2.properties" in submit


def test_docstrings_name_errors_and_code_that_exist() -> None:
    trees = {path: ast.parse(path.read_text()) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    exist = {*dir(builtins), *(part for path in trees for part in path.with_suffix("").relative_to(ROOT).parts)}
    named = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.Name(id=name) | ast.arg(arg=name):
                    exist.add(name)
                case ast.Attribute(attr=name) | ast.alias(name=name):
                    exist.add(name)
                case ast.Expr(value=ast.Constant(value=str(text))):
                    raises = re.search(r"^ *Raises:\n((?: +.*\n)+)", text, re.MULTILINE)
                    found = re.findall(r"^ +([A-Z]\w+): ", raises[1], re.MULTILINE) if raises else []
                    found += re.findall(r":(?:class|func|meth|mod|data):`~?(?:[\w.]*\.)?(\w+)`", text)
                    named += [(str(path.relative_to(ROOT)), name) for name in found]
                case _:
                    pass
    assert named
    assert [(path, name) for path, name in named if name not in exist] == []
