"""HEALTHCHECK of the images: which programs of a container are asked, where, and what counts as an answer."""

from __future__ import annotations

import importlib.util
import socket
from pathlib import Path
from types import ModuleType

import pytest

from tests.plugins.local_http import serving_exposition

FILE = Path(__file__).parents[2] / "deploy" / "docker" / "health.py"
PYTHON = "/opt/isrwatch/python/bin/python"


@pytest.fixture(scope="module")
def health() -> ModuleType:
    spec = importlib.util.spec_from_file_location("health", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ([PYTHON, "/opt/isrwatch/python/bin/isrwatch", "export", "--config", "a"], ("export", ["--config", "a"])),
        ([PYTHON, "/opt/isrwatch/deploy/docker/entrypoint.py", "job"], ("job", [])),
        ([PYTHON, "-m", "exporters.running.attached", "1", "collect"], ("collect", [])),
        ([PYTHON, "/opt/isrwatch/deploy/spark/main.py", "--config", "a"], ("job", ["--config", "a"])),
        ([PYTHON, "/opt/isrwatch/python/bin/isrwatch", "run", "--data", "export"], None),
        (["java", "-cp", "x", "org.apache.spark.deploy.SparkSubmit"], None),
        (["sh", "-c", "isrwatch export"], None),
        ([], None),
    ],
)
def test_a_program_is_recognised_by_its_command_line(
    health: ModuleType, words: list[str], command: tuple[str, list[str]] | None
) -> None:
    assert health.command_of(words) == command


def test_it_is_asked_where_it_listens_by_its_file_its_variables_and_its_options(
    health: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "isrwatch.toml"
    file.write_text('[export]\nlisten = ":9000"\n[collect]\nlisten = ""\n')
    by_option = ["--config", str(file)]
    assert health.address("export", by_option, {}) == "127.0.0.1:9000"
    assert health.address("export", [f"--config={file}"], {}) == "127.0.0.1:9000"
    assert health.address("export", [], {"ISRWATCH_CONFIG": str(file)}) == "127.0.0.1:9000"
    assert health.address("export", [*by_option, "--web.listen-address", "10.1.2.3:1,:2"], {}) == "10.1.2.3:1"
    assert health.address("job", by_option, {"ISRWATCH_JOB__LISTEN": "0.0.0.0:7"}) == "127.0.0.1:7"
    assert health.address("job", ["--listen", ":8"], {"ISRWATCH_JOB__LISTEN": "0.0.0.0:7"}) == "127.0.0.1:8"
    assert health.address("collect", ["--listen="], {}) == ""
    assert health.address("collect", by_option, {}) == "", "it serves no page"


@pytest.mark.parametrize(("code", "answers"), [(200, True), (401, True), (503, False)])
def test_a_login_is_an_answer_and_503_is_none(health: ModuleType, code: int, answers: bool) -> None:  # noqa: FBT001
    with serving_exposition("") as exposition:
        exposition.status = code
        assert health.answers(exposition.address, "/-/alive") is answers


def test_variables_that_cannot_be_read_are_those_of_the_container(
    health: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "cmdline").write_text("python\0/bin/isrwatch\0export\0")
    monkeypatch.setenv("ISRWATCH_EXPORT__LISTEN", ":9000")
    ((command, options, variables),) = health.programs(tmp_path)
    assert (command, health.address(command, options, variables)) == ("export", "127.0.0.1:9000")
    (tmp_path / "1" / "environ").write_text("ISRWATCH_EXPORT__LISTEN=:9001\0HOME=/tmp\0")
    ((command, options, variables),) = health.programs(tmp_path)
    assert health.address(command, options, variables) == "127.0.0.1:9001"


def test_a_container_without_a_program_is_not_healthy(
    health: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(health, "programs", list)
    assert health.main() == 1
    assert capsys.readouterr().out == "no program that serves a page runs here\n"


def test_nobody_there_is_no_answer(health: ModuleType) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    assert health.answers(f"127.0.0.1:{port}", "/-/alive") is False
