"""The message schemas of two versions of Kafka, jar against jar, and what of the difference concerns isrwatch."""

from __future__ import annotations

import ast
import importlib
import json
import re
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deploy.sandbox.plan import VERSIONS
from deploy.sandbox.schemas import ASKED, differences, read_schemas
from streaming.commands import app
from streaming.runtime.jars import jar_paths
from streaming.sources.evidence import POLLED_EVIDENCE
from streaming.sources.metadata_log.decoding import SCHEMAS, SKIPPED

ROOT = Path(__file__).parents[2]
COMMENT = "// Licensed to the Apache Software Foundation\n"


def jar(folder: Path, *documents: dict[str, object]) -> Path:
    """Write a jar as Kafka's, whose schemas begin with a comment."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "kafka-clients-9.9.9.jar", "w") as content:
        for each in documents:
            content.writestr(f"common/message/{each['name']}.json", COMMENT + json.dumps(each))
    return folder


def message(name: str, key: int, versions: str, kind: str = "request", **fields: str) -> dict[str, object]:
    described = [{"name": field, "type": "int32", "versions": since, "about": "x"} for field, since in fields.items()]
    return {"apiKey": key, "type": kind, "name": name, "validVersions": versions, "fields": described}


def test_what_4_4_changed_of_what_isrwatch_asks_and_reads() -> None:
    before, after = (read_schemas(jar_paths(VERSIONS[version])) for version in ("4.3", "4.4"))
    found = differences(before, after)
    concerned = [each.name for each in found if each.is_read is not None]
    assert concerned == [
        *("ApiVersionsRequest", "ApiVersionsResponse", "StreamsGroupDescribeRequest", "StreamsGroupDescribeResponse"),
        "UnregisterControllerRecord",
    ]
    assert all(each.is_read for each in found if each.is_read is not None)
    assert {"UnregisterControllerRequest", "DeleteGroupsRequest"} <= {each.name for each in found}
    lines = "\n".join(line for each in found for line in each.lines())
    assert "UnregisterControllerRecord (29): versions none -> 0; isrwatch reads version 0\n  new ControllerId:" in lines
    assert "new NodeId: default -1, ignorable True, type int32, versions 5+" in lines


@pytest.mark.parametrize("version", ["3.6", "3.9", "4.3", "4.4"])
def test_each_row_of_the_evidence_of_polling_is_in_the_releases_that_it_names_and_in_no_older_one(version: str) -> None:
    schemas = read_schemas(jar_paths(VERSIONS[version]))
    newest = {each.key: each.bounds[1] for each in schemas.values() if each.kind == "request"}
    release = tuple(map(int, version.split(".")))
    for each in POLLED_EVIDENCE:
        has_request = newest.get(each.api_key, -1) >= each.version
        assert has_request is (release >= tuple(map(int, each.since.split(".")))), each.name


def test_the_records_that_are_decoded_are_those_of_the_newest_kafka_field_by_field() -> None:
    schemas = read_schemas(jar_paths(VERSIONS["4.4"]))
    of_kafka = {each.key: each for each in schemas.values() if each.kind == "metadata"}
    assert {key for key in of_kafka if key is not None} == {*SCHEMAS, *SKIPPED}
    for key, known in SCHEMAS.items():
        assert of_kafka[key].bounds[1] == known.newest, known.name
        ours = {row[0] for row in known.fields} | {name for name, _ in known.tags.values()}
        kafkas = {re.sub("(?<!^)(?=[A-Z])", "_", path).lower() for path in of_kafka[key].fields if "." not in path}
        assert ours == kafkas, known.name


def test_a_version_that_isrwatch_does_not_speak_or_read_is_named_and_fails_the_command(tmp_path: Path) -> None:
    before = jar(
        tmp_path / "old",
        message("MetadataRequest", 3, "0-12", Topics="0+"),
        message("PartitionRecord", 3, "0-2", "metadata"),
        message("OtherRequest", 99, "0"),
    )
    after = jar(
        tmp_path / "new",
        message("MetadataRequest", 3, "13-14", Topics="0+", Cluster="13+"),
        message("PartitionRecord", 3, "0-3", "metadata", Tier="3+"),
        message("TierRecord", 30, "0", "metadata", Tier="0+"),
        message("OtherRequest", 99, "0-1"),
    )
    ended = CliRunner().invoke(app, ["sandbox", "compare-schemas", str(before), str(after)], prog_name="isrwatch")
    assert ended.exit_code == 1
    assert ended.output.splitlines()[1:] == [
        "MetadataRequest (3): versions 0-12 -> 13-14; isrwatch speaks 12 only: CHANGE IT",
        "  new Cluster: type int32, versions 13+",
        "PartitionRecord (3): versions 0-2 -> 0-3; isrwatch reads up to version 2: ADD IT",
        "  new Tier: type int32, versions 3+",
        "TierRecord (30): versions none -> 0; UNKNOWN to isrwatch, whose quarantine gets it: ADD IT",
        "  new Tier: type int32, versions 0+",
        "not asked by isrwatch: OtherRequest",
    ]
    same = CliRunner().invoke(app, ["sandbox", "compare-schemas", str(after), str(after)], prog_name="isrwatch")
    assert (same.exit_code, same.output.splitlines()[1]) == (0, "not asked by isrwatch: none")
    none = CliRunner().invoke(app, ["sandbox", "compare-schemas", "4.3", str(tmp_path / "no")], prog_name="isrwatch")
    assert "is neither of 4.4, 4.3, 3.9, 3.6, 1.0 nor a folder with jars of Kafka" in none.output


def asked_in(file: Path) -> dict[str, int]:
    """Give the keys with which the code asks for the newest version that both sides speak."""
    module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    versions = [each for each in calls if isinstance(each.func, ast.Attribute) and each.func.attr == "newest"]
    keys = [ast.unparse(each.args[0]) for each in versions if len(each.args) == 2]
    return {key: eval(key, vars(module)) for key in keys if key != "api.key"}  # noqa: S307 - our own code


def test_every_request_that_the_code_asks_for_is_compared() -> None:
    files = [file for file in sorted((ROOT / "streaming" / "sources").rglob("*.py")) if ".newest(" in file.read_text()]
    keys = {key for file in files for key in asked_in(file).values()}
    assert len(keys) > 12
    assert keys - set(ASKED) == set()


@pytest.mark.parametrize("version", ["4.4", "4.3"])
def test_every_version_that_is_asked_for_is_spoken_by_brokers(version: str) -> None:
    requests = {
        each.key: each for each in read_schemas(jar_paths(VERSIONS[version])).values() if each.kind == "request"
    }
    assert {key for key, spoken in ASKED.items() if not requests[key].bounds[0] <= spoken} == set()
