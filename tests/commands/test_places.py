"""A place with a scheme is refused in one sentence, whichever setting, option or argument names it.

Only tables can lie in a store, and only in those that there is a client of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from streaming.commands import COMMANDS, app, load, takes_place, with_subcommands
from streaming.delta.store.buckets import Bucket
from streaming.delta.store.place import PATIENCE, Place, StoreError, Url, options_of, place_of, tables_place
from streaming.errors import ConfigurationError
from streaming.runtime.folders import cache_folder
from streaming.settings import Settings, check_place, places_of, settings_of

MOUNT = "mount the place on this machine, and write the path of its folder"
CHECKPOINTS = {"collect": {"spark_checkpoints": {"delta": "/mnt/checkpoints/delta"}}}


def words_of(command: Any, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command that can be run, with the words that call it."""
    below = getattr(command, "commands", {})
    if not below:
        yield above, command
    for name, each in below.items():
        yield from words_of(each, (*above, name))


PLACES = [
    (*words, parameter.opts[0])
    for name in COMMANDS
    for words, command in words_of(load(name), (name,))
    for parameter in command.params
    if takes_place(parameter)
]
KEYS = [key for key, _ in places_of(settings_of(CHECKPOINTS))]


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return " ".join(done.stderr.split())


@pytest.mark.parametrize("words", PLACES, ids=" ".join)
def test_every_option_and_argument_that_is_a_place_refuses_a_scheme(words: tuple[str, ...], tmp_path: Path) -> None:
    *command, name = words
    given = (name,) if name.startswith("-") else ()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        sentence = refused(*command, *given, "s3://bucket/x")
    assert sentence == f"{name} begins with s3:/, but it must be a path of this machine: {MOUNT}"
    assert list(tmp_path.iterdir()) == []


def test_options_that_are_named_like_places_are_places() -> None:
    endings = ("config", "file", "directory", "folder", "root", "output", "tables", "bus", "checkpoint")
    parameters = [each for name in COMMANDS for below in with_subcommands(load(name)) for each in below.params]
    like_places = {each.opts[0] for each in parameters if each.opts[0].endswith(endings)}
    assert {"--tables", "--bus", "--checkpoint", "--directory", "--root", "--web.config.file"} <= like_places
    assert like_places - {"--tables"} <= {words[-1] for words in PLACES}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("place", ["s3://bucket/x", "hdfs://namenode:9000/x", "abfss://c@account/x", "dbfs:/x"])
def test_every_setting_that_is_a_place_refuses_a_scheme(key: str, place: str) -> None:
    document: Any = place
    for name in reversed(key.split(".")):
        document = {name: document}
    with pytest.raises(ConfigurationError) as error:
        settings_of(document)
    scheme = place.partition(":")[0]
    assert str(error.value) == f"{key} begins with {scheme}:/, but it must be a path of this machine: {MOUNT}"


def texts_of(section: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every setting that is a text, with its default."""
    for item in fields(section):
        value = getattr(section, item.name)
        if is_dataclass(value):
            yield from texts_of(value, f"{prefix}{item.name}.")
        elif isinstance(value, str):
            yield f"{prefix}{item.name}", value


def test_settings_that_look_like_places_are_all_of_them() -> None:
    """What is called a file, or has a path as its default, but for the path of a URL."""
    like_places = {key for key, default in texts_of(Settings()) if key.endswith("_file") or "/" in default}
    assert like_places - {"export.telemetry_path", "tables.directory"} == {
        key for key in KEYS if not key.startswith("collect.spark_")
    }
    assert [key for key in KEYS if key.startswith("collect.spark_")] == ["collect.spark_checkpoints.delta"]


def test_a_place_of_this_machine_is_to_be_written_without_its_scheme() -> None:
    with pytest.raises(ConfigurationError, match=r"^--tables begins with file:/, but .*: write the path alone$"):
        check_place("--tables", "file:///srv/tables")


@pytest.mark.parametrize("place", ["", "x", "./a:b", "/srv/s3:/x", "../s3", "~/tables", "a:b", ".isrwatch/bus", "1:/x"])
def test_a_path_is_no_scheme(place: str) -> None:
    check_place("tables.directory", place)


def test_the_cache_is_a_place_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISRWATCH_CACHE", "s3://bucket/cache")
    with pytest.raises(ConfigurationError, match=r"^ISRWATCH_CACHE begins with s3:/"):
        cache_folder()


TAKES_TABLES = [
    words
    for name in COMMANDS
    for words, command in words_of(load(name), (name,))
    if any(parameter.opts[0] == "--tables" for parameter in command.params)
]


@pytest.mark.parametrize("words", TAKES_TABLES, ids=" ".join)
def test_every_command_refuses_tables_where_none_can_lie(words: tuple[str, ...], tmp_path: Path) -> None:
    required = {"sql": ["SELECT 1"], "backtest": ["rules.yml"], "incident": ["x"], "backup": ["y"], "restore": ["y"]}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        (tmp_path / "rules.yml").write_text("groups: []")
        sentence = refused(*words, *required.get(words[-1], []), "--tables", "dbfs:/x")
        left = {path.name for path in tmp_path.iterdir()}
    assert sentence == (
        "tables.directory (--tables) begins with dbfs:/, where no tables can lie: write the path of a folder, or a URL "
        "that begins with abfss://, az://, gs://, hdfs://, s3://"
    )
    assert left == {"rules.yml"}


@pytest.mark.parametrize(("url", "ours"), [("s3a://b/x", "s3"), ("abfs://c@a/x", "abfss"), ("gcs://b/x", "gs")])
def test_the_scheme_of_another_client_is_refused_with_the_one_of_its_store(url: str, ours: str) -> None:
    scheme = url.partition(":")[0]
    with pytest.raises(ConfigurationError, match=rf"begins with {scheme}://: write {ours}:// in its place$"):
        place_of(url)


REGION = (("aws_region", "x"),)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/srv/tables", Path("/srv/tables")),
        ("file:///srv/my%20tables", Path("/srv/my tables")),
        ("s3://bucket/a/b/", Url("s3://bucket/a/b", (("aws_region", "x"),))),
        (
            "abfss://c@account.dfs.core.windows.net/x",
            Url("abfss://c@account.dfs.core.windows.net/x", (("aws_region", "x"),)),
        ),
    ],
)
def test_tables_lie_in_a_folder_or_in_a_store(text: str, place: Place) -> None:
    assert place_of(text, {"aws_region": "x"}) == place
    assert str(place / "replica_offsets").endswith("/replica_offsets")
    assert (place / "replica_offsets").parent == place


def test_a_url_names_a_bucket_and_keeps_its_secrets() -> None:
    with pytest.raises(ConfigurationError, match=r"is s3:///x, which names no bucket: write s3://BUCKET/FOLDER$"):
        place_of("s3:///x")
    storage = {"aws_secret_access_key": "${KEY}"}
    settings = settings_of({"tables": {"directory": "s3://bucket/x", "storage": storage}})
    with pytest.raises(ConfigurationError, match=r"tables\.storage aws_secret_access_key refers to \$\{KEY\}"):
        tables_place(settings)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KEY", "s3cret")
        place = tables_place(settings)
    assert options_of(place) == {**PATIENCE, "aws_secret_access_key": "s3cret"}
    assert "s3cret" not in f"{place} {place!r}"


STORES = ["s3://b/x", "gs://b/x", "abfss://c@account.dfs.core.windows.net/x"]


@pytest.mark.parametrize("url", STORES)
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nonsense": "1"}, r"^tables\.storage: .*'nonsense' is not valid"),
        ({"retry_timeout": "soon"}, r"'soon' is not a duration such as 20s; see tables\.storage$"),
    ],
)
def test_an_option_that_a_store_does_not_have_is_refused(url: str, options: dict[str, str], sentence: str) -> None:
    place = place_of(url, options)
    assert isinstance(place, Url)
    with pytest.raises(ConfigurationError, match=sentence):
        Bucket(place.root)


@pytest.mark.parametrize("url", STORES)
def test_a_store_is_opened_by_its_url_with_the_patience_of_its_options(url: str) -> None:
    place = place_of(url, {"timeout": "1s", "retry_timeout": "500ms", "max_retries": "0"})
    assert isinstance(place, Url)
    Bucket(place.root)


def test_an_endpoint_without_tls_says_which_option_permits_it() -> None:
    login = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    place = place_of("s3://b/x", {"aws_endpoint": "http://127.0.0.1:9", "max_retries": "0", **login})
    assert isinstance(place, Url)
    with pytest.raises(StoreError, match=r'endpoint is http:// .* write https://, or "aws_allow_http" = "true" into '):
        Bucket(place.root).head("x")
