"""The words of CONTRIBUTING.md, kept in names; one meaning per class name."""

from __future__ import annotations

import ast
import itertools
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from exporters.metrics.catalogue import CATALOGUE
from streaming.contracts.columns import Column
from streaming.contracts.tables import TABLES

ROOT = Path(__file__).parents[1]
ROOMS = ("streaming", "exporters", "dashboards", "deploy", "docs")

_STORED = "a stored name: it changes only with the table's layout"
_METRIC = "a metric's name or label is an interface: it changes only with a major version"
# Stable names that still carry an old word. Whoever reads or fills such a field spells it the same way.
STABLE_NAMES = {
    "sight_until": _STORED,
    "isr_departures": _STORED,
    "departures": _STORED,
    "counted": _STORED,
    "kafka_replication_broker_isr_departures_total": _METRIC,
}
# Folders in which a word is the standard one.
STANDARD_IN = {
    ("truth", "streaming/sources/simulated"): "the ground truth that a simulation is compared with",
    ("truth", "streaming/model/invariants"): "the same, of the invariants",
    ("page", "exporters/web"): "some of the rows of a JSON API, which a cursor continues",
    ("pages", "exporters/web"): "the pages of the exporter, for people",
    ("page", "exporters/answers"): "the same, which answers link to",
    ("page", "docs"): "a page of the documentation",
    ("pages", "docs"): "the same, of several",
}
# The words that are wrong in prose, too; the others have a standard meaning somewhere ("this page").
IN_PROSE = re.compile(r"sights?|told|tell(?:s|ing)?|departures?|happenings?|upkeep|headroom|accus\w+|hear|heard")
DOCUMENTED = ("docs", "conf", "deploy", "streaming", "exporters")
# Rooms that imitate Kafka's own classes, and have names of their own.
OWN_NAMES = ("streaming/model/", "streaming/sources/simulated/")


class Name(NamedTuple):
    """A name of the code and where it is bound."""

    path: str
    line: int
    kind: str
    name: str


def words_section() -> str:
    """The table of CONTRIBUTING that names the words."""
    return (ROOT / "CONTRIBUTING.md").read_text().split("\n## Words\n")[1].split("\n##")[0]


def banned_words() -> tuple[frozenset[str], frozenset[str]]:
    """Read from CONTRIBUTING what is no part of a name, and what is no whole name."""
    rows = [line for line in words_section().splitlines() if line.startswith("| ") and line.count("|") == 4]
    words = {word for row in rows for word in re.findall(r"`(=?[a-z]+)`", row.split("|")[3])}
    wholes = {word.removeprefix("=") for word in words if word.startswith("=")}
    return frozenset(word for word in words if not word.startswith("=")), frozenset(wholes)


PARTS, WHOLES = banned_words()


def offending(name: str) -> set[str]:
    """The banned words in one name."""
    parts = {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}
    return (parts & PARTS) | ({name.strip("_").lower()} & WHOLES)


def is_allowed(name: str) -> bool:
    return name.strip("_").lower() in STABLE_NAMES


class Parts(NamedTuple):
    """The names that a module binds, its own included; its docstrings, and the texts below its constants, by line."""

    names: list[Name]
    texts: list[tuple[int, str]]


@cache
def parts_of(path: Path) -> Parts:
    where = str(path.relative_to(ROOT))
    own = Name(where, 0, "module", path.stem if path.stem != "__init__" else path.parent.name)
    nodes = list(ast.walk(ast.parse(path.read_text())))
    return Parts([own, *bound_names(nodes, where)], list(texts_of(nodes)))


def texts_of(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass


def bound_names(nodes: list[ast.AST], where: str) -> Iterator[Name]:
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield Name(where, node.lineno, "function", name)
            case ast.ClassDef(name=name):
                yield Name(where, node.lineno, "class", name)
            case ast.arg(arg=name):
                yield Name(where, node.lineno, "parameter", name)
            case ast.Name(id=name, ctx=ast.Store()):
                yield Name(where, node.lineno, "variable", name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield Name(where, node.lineno, "attribute", name)
            case _:
                pass


def modules(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms or ROOMS for path in (ROOT / room).rglob("*.py"))


def is_standard_there(word: str, path: str) -> bool:
    return any(word == standard and path.startswith(folder) for standard, folder in STANDARD_IN)


def findings(path: Path) -> list[str]:
    """What a module binds that the table of words forbids."""
    return [
        f"{name.path}:{name.line} {name.kind} {name.name}"
        for name in parts_of(path).names
        if not is_allowed(name.name)
        and {word for word in offending(name.name) if not is_standard_there(word, name.path)}
    ]


def test_the_table_of_words_is_read() -> None:
    assert {"sight", "told", "authority"} <= PARTS
    assert {"known", "found"} <= WHOLES
    assert offending("_lost_sight") == {"sight"}
    assert offending("HasTold") == {"told"}
    assert offending("last_known_leader") == set()
    assert offending("known") == {"known"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_name_of_the_code_has_a_word_that_we_do_not_say(room: str) -> None:
    found = [finding for path in modules(room) for finding in findings(path)]
    assert found == []


def test_every_exception_is_still_needed() -> None:
    used = {name.name.strip("_").lower() for path in modules() for name in parts_of(path).names}
    used |= {name for name, _ in stored_names()} | {metric.name for metric in CATALOGUE}
    assert set(STABLE_NAMES) - used == set()


def stored_names() -> Iterator[tuple[str, str]]:
    """Every table and column, fields of structs included, and where it stands."""
    for table in TABLES.values():
        yield table.name, "a table"
        yield from ((column.name, table.name) for column in columns_within(table.columns))


def columns_within(columns: tuple[Column, ...]) -> Iterator[Column]:
    """Yield columns, and the fields of those that are structs."""
    for column in columns:
        yield column
        inner = column.type[0] if isinstance(column.type, list) else column.type
        if isinstance(inner, tuple):
            yield from columns_within(inner)


def configuration_keys() -> Iterator[str]:
    """Every table and key of the reference configuration, those that are commented out included."""
    text = re.sub(r"^#(?=[\[\"a-z])", "", (ROOT / "conf" / "isrwatch.toml").read_text(), flags=re.MULTILINE)
    for section, keys in tomllib.loads(text).items():
        yield section
        yield from keys


def test_no_column_metric_label_or_configuration_key_has_a_word_that_we_do_not_say() -> None:
    names = {name for name, _ in stored_names()}
    names |= {word for metric in CATALOGUE for word in (metric.name, *metric.labels)}
    names |= set(configuration_keys())
    assert {name for name in names if offending(name) and not is_allowed(name)} == set()


@cache
def prose() -> tuple[tuple[str, str], ...]:
    """What people read: documentation without its code, comments of the configuration, columns and metrics."""
    return tuple(read_prose())


def read_prose() -> Iterator[tuple[str, str]]:
    pages = ["conf/isrwatch.toml", "deploy/isrwatch.toml", *(path.name for path in ROOT.glob("*.md"))]
    pages += [str(path.relative_to(ROOT)) for folder in DOCUMENTED for path in (ROOT / folder).rglob("*.md")]
    for page in pages:
        text = (ROOT / page).read_text().replace(words_section(), "")
        yield page, re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    for table in TABLES.values():
        yield table.name, " ".join((table.comment, *(column.comment for column in columns_within(table.columns))))
    yield from ((metric.name, metric.help) for metric in CATALOGUE)
    yield from docstrings()


# A docstring starts with the noun or the verb: what these words open is a clause before its subject.
OPENING = re.compile(r"(?:Of|What|Who|Whom|Whose|Whether|How|Where|Which|When|In which)\b")
# Phrases that are a translation: say "again", "the one that", "no broker", "continues", "fix", "next to".
TRANSLATED = re.compile(
    r"\b(?:anew|in vain|whoever|nobody|somebody|anybody|everybody|go(?:es)? on|mend(?:s|ed|ing)?|beside)\b",
    re.IGNORECASE,
)
# Docstrings that still open so, at most, by file: none is added, and these become fewer.
OPENED = {"streaming/contracts/samples.py": 3}


def texts_within(path: Path) -> list[str]:
    """The docstrings of a module, of what it defines, and below its constants."""
    return [text.strip() for _, text in parts_of(path).texts]


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_start_with_the_noun_or_the_verb(room: str) -> None:
    found = {
        str(path.relative_to(ROOT)): sum(bool(OPENING.match(text)) for text in texts_within(path))
        for path in modules(room)
    }
    assert {name: count for name, count in found.items() if count > OPENED.get(name, 0)} == {}


# Comments that still open so, at most, by file.
SECTIONS_LEFT = {"streaming/changes/fold.py": 1}


@pytest.mark.parametrize("room", ROOMS)
def test_comments_that_open_a_section_start_with_the_noun_or_the_verb(room: str) -> None:
    found: dict[str, int] = defaultdict(int)
    for path in modules(room):
        for before, line in itertools.pairwise(["", *path.read_text().splitlines()]):
            if not before.startswith("#") and line.startswith("# ") and OPENING.match(line[2:]):
                found[str(path.relative_to(ROOT))] += 1
    assert {name: count for name, count in found.items() if count > SECTIONS_LEFT.get(name, 0)} == {}


def comments(path: Path) -> Iterator[str]:
    with path.open() as source:
        tokens = tokenize.generate_tokens(source.readline)
        yield from (token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("room", ROOMS)
def test_no_docstring_or_comment_has_a_translated_phrase(room: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in modules(room)
        if TRANSLATED.search(path.read_text())
        for text in (*texts_within(path), *comments(path))
        if TRANSLATED.search(text)
    ]
    assert found == []


# Word orders of another language, or of another century.
INVERTED = re.compile(
    r"\bno (?:\w+ )?but\b|\b[Oo]f (?:an?|the) \w+ its\b|(?:^|[.;:] |- |\| )Of (?:none|those|these|whom|which|an?)\b"
    r"|\b(?:Whom|as ever|thereof|therein|hitherto|lest|ought|befalls?)\b"
)


def test_no_documentation_has_a_translated_phrase() -> None:
    assert {name: match[0] for name, text in prose() if (match := TRANSLATED.search(text))} == {}
    pages = ((name, text) for name, text in prose() if name.endswith((".md", ".toml")))
    assert {name: match[0] for name, text in pages if (match := INVERTED.search(text))} == {}


# What a user reads: no page of it names our files of code, and their words are counted.
USER_PAGES = ("*.md", "docs/*.md", "deploy/**/*.md", "conf/**/*.md", "exporters/web/*.md")
CONTRIBUTORS = {"CONTRIBUTING.md", "docs/quality.md", "CHANGELOG.md"}
GENERATED = "docs/reference/*.md"
# Names that a user types: what is submitted to Spark, the commands that measure, and a Hadoop to try with.
TYPED = re.compile(r"(?:deploy/spark/)?\bmain\.py|\.venv/bin/pytest \S+|-m tests\.yarn|-m tests\.benchmarks(?:\.\w+)?")
OUR_CODE = re.compile(
    r"(?<![\w./-])(?:[\w-]+/)*[\w-]+\.py\b|(?<![\w./-])(?:streaming|exporters|dashboards|tests)(?:\.[a-z_]+)+\b"
)
MOST_WRITTEN, MOST_GENERATED = 21_950, 20_000


UNREAD = re.compile(r"<!--.*?-->|^```\{toctree\}.*?^```", re.MULTILINE | re.DOTALL)
# A block that a command writes into a page, between two comments that name it: people do not write its words.
RENDERED = re.compile(
    r"^<!-- ((\w+)[\w ]*): (?:rendered|written) by `[^`]+` -->$.*?^<!-- end of (?:the )?\2\b[\w ]*-->$",
    re.MULTILINE | re.DOTALL,
)
# Those that a test compares with what their commands write.
COMPARED = {"README.md: cost", "README.md: comparison", "docs/sizing.md: cost of each process"}


def pages_of(*patterns: str) -> dict[str, str]:
    """The text of pages by path, without comments of HTML and lists of pages."""
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    return {name: UNREAD.sub("", text) for name, text in sorted(texts.items())}


def hand_written(text: str) -> str:
    """A page as people write it, without the blocks that commands write into it."""
    return UNREAD.sub("", RENDERED.sub("", text))


def words_of(text: str) -> int:
    """Count the words of a page, and not the bars and rules of its tables."""
    return sum(bool(re.search(r"\w", word)) for word in text.replace("|", " ").split())


def test_words_are_counted_without_the_lines_of_tables() -> None:
    assert words_of("# A page\n\n|`name`|a b|\n|---|---|\n- **c** `d e` -- f") == 9


def test_no_page_for_users_names_a_file_or_module_of_our_code() -> None:
    pages = pages_of(*USER_PAGES, GENERATED)
    for contributors in ("CONTRIBUTING.md", "CHANGELOG.md"):
        del pages[contributors]
    named = {name: sorted({*OUR_CODE.findall(TYPED.sub("", text))}) for name, text in pages.items()}
    assert {name: files for name, files in named.items() if files} == {}


def test_our_code_is_found_in_what_a_page_says() -> None:
    found = "`streaming/contracts/health.py`, `health_of` of exporters.read_model.cluster_health, python -m tests.judge"
    assert OUR_CODE.findall(found) == [
        "streaming/contracts/health.py",
        "exporters.read_model.cluster_health",
        "tests.judge",
    ]
    assert (
        OUR_CODE.findall("spark.sql.streaming.pollingDelay, dashboards/generated/alerts.yml, docs/streaming.md") == []
    )


def test_the_pages_that_people_write_are_short() -> None:
    texts = {name: (ROOT / name).read_text() for name in pages_of(*USER_PAGES) if name not in CONTRIBUTORS}
    counts = {name: words_of(hand_written(text)) for name, text in texts.items()}
    assert sum(counts.values()) <= MOST_WRITTEN, counts


def test_a_block_that_a_command_writes_into_a_page_is_not_counted() -> None:
    block = "<!-- {0}: {1} by `make it` -->\n\n| a | 1 |\n\n<!-- end of {2} -->\n"
    text = "one\n{}two\n{}three\n"
    rendered = [
        block.format("cost", "rendered", "the cost"),
        block.format("polled incidents", "written", "polled incidents"),
    ]
    assert hand_written(text.format(*rendered)).split() == ["one", "two", "three"]
    not_closed = block.format("cost", "rendered", "another")
    by_hand = "<!-- a note -->\nmore\n<!-- end of the note -->\n"
    assert hand_written(text.format(not_closed, by_hand)).split() == ["one", *"|a|1|", "two", "more", "three"]


def test_only_blocks_that_are_compared_with_what_their_commands_write_are_left_out() -> None:
    texts = {name: (ROOT / name).read_text() for name in pages_of(*USER_PAGES) if name not in CONTRIBUTORS}
    left_out = {f"{name}: {match[1]}" for name, text in texts.items() for match in RENDERED.finditer(text)}
    assert {"README.md: cost"} <= left_out <= COMPARED


def test_the_generated_reference_is_short() -> None:
    counts = {name: words_of(text) for name, text in pages_of(GENERATED).items()}
    assert sum(counts.values()) <= MOST_GENERATED, counts


def docstrings() -> Iterator[tuple[str, str]]:
    """The documentation within the code, without the rooms that have names of their own, and without code in it."""
    for path in modules():
        where = str(path.relative_to(ROOT))
        if where.startswith(OWN_NAMES):
            continue
        for line, text in parts_of(path).texts:
            yield f"{where}:{line}", re.sub(r"``[^`]*``|^ +\w+: ", "", text, flags=re.MULTILINE)


def test_no_documentation_has_a_word_that_we_do_not_say() -> None:
    words = filter(IN_PROSE.fullmatch, sorted(PARTS))
    banned = re.compile(rf"\b(?:{'|'.join(words)})\b", re.IGNORECASE)
    found = {name: sorted(set(banned.findall(text))) for name, text in prose() if banned.search(text)}
    assert found == {}


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for name in (name for path in modules() for name in parts_of(path).names):
        if name.kind == "class" and not name.path.startswith(OWN_NAMES):
            places[name.name].append(name.path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
