"""An exporter that is asked instead of tables: the same answers, and one sentence for each way to fail."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from typer.testing import CliRunner

from exporters.answers.answer import (
    VERSION_HEADER,
    Answer,
    AnswersRestarted,
    Question,
    ServerRefused,
    ServerUnavailable,
)
from exporters.answers.incidents import IncidentReport, report
from exporters.answers.server import Server, server_of
from exporters.answers.subject import Limits, Tables
from exporters.answers.subjects import ANSWERS
from exporters.metrics.sample_ages import oldest_ages
from exporters.read_model.reader import micros_now
from exporters.terminal.follow import ServerFollower
from exporters.web.server import serving
from streaming.commands import app
from streaming.errors import ConfigurationError, IsrwatchError
from streaming.settings import CollectSettings, ServerSettings
from tests.exporters.conftest import SECOND, Rows, write_live_cluster
from tests.exporters.conftest import Tables as WrittenTables
from tests.exporters.web.test_app import SETTINGS
from tests.exporters.web.test_app import served as plainly_served
from tests.plugins.certificates import make_certificate
from tests.plugins.local_http import wait_until

WRONG = "no such password"
OURS = {VERSION_HEADER: version("isrwatch"), "Content-Type": "application/json"}
NO_ENVIRONMENT: dict[str, str] = {"NETRC": "/nowhere"}
SETTINGS_OF_TEST = replace(SETTINGS, stale_after=3600.0)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    written = WrittenTables(tmp_path_factory.mktemp("live") / "tables")
    now, rows = micros_now(), Rows()
    write_live_cluster(written, now)
    shrink = {"event": "isr_shrink", "event_broker": None, "detail": None}
    state, before = rows.state([1, 2, 3], [1], 1), rows.state([1, 2, 3], [1, 2], 1)
    written.commit(*(
        rows.partition("payments", number, state, now, before=before, events=[{**shrink, "event_id": f"e{number}"}],
                       left_isr=[2],
                       cause="fenced", evidence="proven")
        for number in (0, 1)
    ))  # fmt: skip
    return written.directory


@pytest.fixture(scope="module")
def address(tables: Path) -> Iterator[str]:
    with plainly_served(tables, replace(SETTINGS_OF_TEST, url="https://isrwatch.example/x/")) as address:
        yield address


@pytest.fixture(scope="module")
def server(address: str) -> Server:
    return Server(ServerSettings(url=f"http://{address}"), NO_ENVIRONMENT)


def of_tables(tables: Path) -> Tables:
    limits = Limits(stale_after=3600.0, oldest_ages=oldest_ages(3600.0, CollectSettings()), poll_intervals={})
    return Tables(folder=tables, limits=limits, now=micros_now())


def without_ages(answer: Answer) -> Any:
    """Leave out what depends on the moment at which somebody asks, and whose age incidents know."""
    document = json.loads(answer.to_json())
    rows = [{name: value for name, value in row.items() if not name.endswith("_seconds")} for row in document["rows"]]
    clusters = [{**each, "age": None} for each in document["clusters"]]
    if "incident_id" in document["columns"]:  # of tables it is that of the sources
        clusters = []
    return {**document, "rows": rows, "clusters": clusters, "now": None, "sentences": len(document["sentences"])}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_the_same_from_tables_and_from_a_server(name: str, tables: Path, server: Server) -> None:
    question = Question(everything=ANSWERS[name].has_healthy)
    here = ANSWERS[name].answer(of_tables(tables), question)
    assert without_ages(server.answer(name, question)) == without_ages(here)


def test_conditions_are_chosen_by_name_and_where_they_cannot_be_read_none_is_unknown(
    tables: Path, server: Server
) -> None:
    every = server.answer("conditions", Question()).rows
    chosen = server.answer("conditions", Question(filters={"condition": ("hanging*",)})).rows
    assert ("log_directory_offline", "1:/data-1") in {(row["condition"], row["subject"]) for row in every}
    assert {(row["condition"], row["subject"]) for row in chosen} == {("hanging_transaction", "t")}
    with pytest.raises(ConfigurationError, match="unknown condition"):
        server.answer("conditions", Question(filters={"condition": ("under_max_isr",)}))

    blind = replace(of_tables(tables), unreadable={"conditions": "it is damaged"})
    answer = ANSWERS["conditions"].answer(blind, Question())
    said = [each.text for each in answer.sentences]
    assert answer.unreadable == {"conditions": "it is damaged"}
    assert "more may be wrong: conditions cannot be read" in said
    assert "no condition is raised" not in said


def test_one_incident_is_the_same_from_tables_and_from_a_server(tables: Path, server: Server) -> None:
    here = report(of_tables(tables), "main-3", "https://isrwatch.example/x/")
    there = server.incident("main-3")
    moving = {"now": None, "freshness": None}
    assert json.loads(json.dumps({**here.document(), **moving})) == {**there.document(), **moving}
    assert there.url == "https://isrwatch.example/x/incidents/main-4"
    with pytest.raises(ConfigurationError, match="there is no incident 'main-99'; isrwatch incidents --all lists them"):
        server.incident("main-99")
    with pytest.raises(ValueError, match="no incident"):
        IncidentReport.of_document({"incident": {}})


def test_names_that_may_hold_anything_arrive_as_they_are(server: Server) -> None:
    for odd in ("a/b-1", "..", "a b&c=d", "%2e%2e", "ä?#", "x/changes"):
        with pytest.raises(ConfigurationError, match="there is no incident"):
            server.incident(odd)
        assert server.answer("topics", Question(filters={}, clusters=("main",))).rows
        with pytest.raises(ConfigurationError, match="unknown topic"):
            server.answer("topics", Question(filters={"topic": (odd,)}))


# What stands at the other end may be anything.


@contextmanager
def standing_in(
    status: int = 200,
    headers: dict[str, str] | None = None,
    body: bytes = b"{}",
    respond: Callable[[BaseHTTPRequestHandler], None] | None = None,
) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if respond is not None:
                respond(self)
                return
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests quiet."""

    standing = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=standing.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{standing.server_port}"
    finally:
        standing.shutdown()
        standing.server_close()


def refusal(url: str, error: type[IsrwatchError], **settings: Any) -> str:
    with pytest.raises(error) as refused:
        Server(ServerSettings(url=url, **settings), NO_ENVIRONMENT).answer("brokers", Question())
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.mark.parametrize(
    ("status", "headers", "body", "error", "said"),
    [
        (200, HTML, b"<html>", ServerRefused, "no isrwatch export, or one of an older version: it answers 200 OK with"),
        (404, HTML, b"<html>", ServerRefused, "404 Not Found with text/html; is there a path in front of it?"),
        (200, {"Content-Type": "application/json"}, b"{}", ServerRefused, "is no isrwatch export, or one of an older"),
        (302, {"Location": "https://login.example/?a"}, b"", ServerRefused, "leads to https://login.example/?a; give"),
        (401, HTML, b"", ServerRefused, "asks for a login (401 Unauthorized); set server.user and server.password"),
        (403, HTML, b"", ServerRefused, "asks for a login (403 Forbidden)"),
        (502, HTML, b"<html>", ServerUnavailable, "answers 502 Bad Gateway: isrwatch export does not run behind it"),
        (503, OURS, b'{"error": "there are no tables"}', ServerUnavailable, "cannot answer now: there are no tables"),
        (500, OURS, b'{"error": "a fault"}', ServerUnavailable, "cannot answer now: a fault"),
        (410, OURS, b'{"error": "begin again"}', AnswersRestarted, "begin again"),
        (400, OURS, b'{"error": "at is wrong"}', ConfigurationError, "at is wrong"),
        (404, {**OURS, VERSION_HEADER: "0.0.1"}, b'{"error": "Not Found"}', ConfigurationError,
         f"is isrwatch 0.0.1, and this is {version('isrwatch')}: Not Found"),
        (200, OURS, b'{"rows": [', ServerUnavailable, "was cut off: 10 bytes"),
        (200, OURS, b"[]", ServerRefused, "answers what no isrwatch export answers"),
        (200, OURS, b"{}", ServerRefused, "answers what this version does not understand"),
        (200, {**OURS, "Content-Length": "99"}, b"{}", ServerUnavailable, "was cut off"),
        (200, {**OURS, "Content-Encoding": "gzip"}, b"{}", ServerUnavailable, "was cut off"),
        (400, OURS, b'{"error": "a\\u001b[31mb\\nc"}', ConfigurationError, r"a\x1b[31mb\nc"),
    ],
)  # fmt: skip
def test_whatever_answers_is_told_in_a_sentence(
    status: int, headers: dict[str, str], body: bytes, error: type[IsrwatchError], said: str
) -> None:
    with standing_in(status, headers, body) as url:
        assert said in refusal(url, error)


def test_what_cannot_be_reached_is_named_with_what_to_look_for(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert "does isrwatch export run there?" in refusal(url, ServerUnavailable)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        sentence = f"{url} did not answer within 200ms (server.timeout)"
        assert refusal(url, ServerUnavailable, timeout=0.2) == sentence
    assert "cannot connect to" in refusal("http://nobody.invalid", ServerUnavailable)
    for wrong in ("isrwatch:9308", "ftp://a", "http://a?b", "http://a b", "https://"):
        assert "write an absolute address" in refusal(wrong, ServerRefused)
    sentence = refusal("https://me:secret@127.0.0.1", ServerRefused)
    assert "has a login in it" in sentence
    assert "secret" not in sentence
    with standing_in() as url:
        assert "no TLS with" in refusal(url.replace("http", "https"), ServerRefused)
    assert "server.ca_file is" in refusal("https://a", ServerRefused, ca_file=str(tmp_path / "no.pem"))
    assert "server.certificate_file is" in refusal(
        "https://a", ServerRefused, certificate_file=str(tmp_path / "no.pem")
    )


def test_a_proxy_of_the_environment_is_used_and_a_wrong_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with standing_in(502, HTML) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert "answers 502 Bad Gateway" in refusal("http://isrwatch.example", ServerUnavailable)
    monkeypatch.setenv("HTTP_PROXY", "gopher://x")
    assert "see HTTPS_PROXY" in refusal("http://isrwatch.example", ServerRefused)


def test_a_path_in_front_and_a_slash_at_the_end_are_kept(address: str) -> None:
    asked: list[str] = []

    def forward(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        with urllib.request.urlopen(f"http://{address}{handler.path.removeprefix('/kafka')}", timeout=30) as answer:
            body = answer.read()
            handler.send_response(200)
            handler.send_header(VERSION_HEADER, answer.headers[VERSION_HEADER])
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)

    with standing_in(respond=forward) as url:
        for written in (f"{url}/kafka", f"{url}/kafka/"):
            assert Server(ServerSettings(url=written), NO_ENVIRONMENT).answer("brokers", Question()).rows
        assert Server(ServerSettings(url=f"{url}/kafka"), NO_ENVIRONMENT).incident("main-4")
    assert asked == ["/kafka/api/v1/answers/brokers"] * 2 + ["/kafka/api/v1/incidents/main-4"]


# TLS, certificates of clients, logins.


@pytest.fixture(scope="module")
def protected(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server that asks for a certificate of its clients, and for a login."""
    folder = tmp_path_factory.mktemp("protected")
    for authority in ("authority", "clients"):
        make_certificate(folder, authority)
    make_certificate(folder, "server", signed_by="authority")
    make_certificate(folder, "client", signed_by="clients")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (folder / "web.yml").write_text(
        "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: clients.crt\n"
        f"basic_auth_users:\n  me: {hashed}\n"
    )
    with serving(tables, replace(SETTINGS_OF_TEST, web_config_file=str(folder / "web.yml"))) as address:
        yield f"https://{address}", folder


def test_the_login_the_authority_and_the_certificate_of_the_client_are_those_of_the_settings(
    protected: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = protected
    files = {"certificate_file": str(folder / "client.crt"), "key_file": str(folder / "client.key")}
    trusting = {"ca_file": str(folder / "authority.crt"), **files}
    assert "is not trusted" in refusal(url, ServerRefused, **files)
    assert "set server.ca_file" in refusal(url, ServerRefused, **files)
    refusal(url, IsrwatchError, ca_file=trusting["ca_file"])  # without a certificate of its own
    assert "asks for a login" in refusal(url, ServerRefused, **trusting)
    assert "refuses the login" in refusal(url, ServerRefused, user="me", password=WRONG, **trusting)
    (tmp_path / "password").write_text("secret\n")
    logins = [
        ({"user": "me", "password": f"file:{tmp_path / 'password'}"}, NO_ENVIRONMENT),
        ({"user": "me", "password": "${PASS}"}, {**NO_ENVIRONMENT, "PASS": "secret"}),
    ]
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    logins.append(({}, {"NETRC": str(tmp_path / "netrc")}))
    for login, environment in logins:
        asked = Server(ServerSettings(url=url, **trusting, **login), environment)  # type: ignore[arg-type]
        asked_until_ready(asked)


def asked_until_ready(server: Server) -> None:
    def answered() -> bool:
        try:
            return bool(server.answer("brokers", Question()).rows)
        except ServerUnavailable as error:
            assert "cannot answer now" in str(error)  # noqa: PT017 - it may not have read the tables yet
            return False

    wait_until(answered)


def test_the_login_of_the_configuration_is_not_sent_to_another_server() -> None:
    sent: list[str | None] = []

    def note(handler: BaseHTTPRequestHandler) -> None:
        sent.append(handler.headers.get("Authorization"))
        handler.send_error(404)

    configured = ServerSettings(url="https://isrwatch.example", user="me", password=WRONG)
    with standing_in(respond=note) as url:
        for settings in (configured, replace(configured, url=url), replace(configured, url="")):
            asked = server_of(url, settings, NO_ENVIRONMENT)
            assert asked is not None
            with pytest.raises(ServerRefused):
                asked.answer("brokers", Question())
    assert [each is not None for each in sent] == [False, True, True]
    assert server_of(None, ServerSettings(), {}) is None
    assert server_of(None, ServerSettings(), {"ISRWATCH_SERVER": "http://a"}) is not None


# The commands.


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*arguments], env={"NETRC": "/nowhere"})
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


@pytest.mark.parametrize("arguments", [
    ("events", "--limit", "0"), ("events", "--each", "-o", "csv"), ("events", "--limit", "1"), ("incidents", "--all"),
    ("incidents", "main-4"), ("incidents", "main-4", "--markdown"), ("brokers",),
])  # fmt: skip
def test_a_command_prints_the_same_from_a_laptop_as_from_the_host(
    arguments: tuple[str, ...], tables: Path, address: str
) -> None:
    here, there = (
        run(*arguments, *source) for source in (("--tables", str(tables)), ("--server", f"http://{address}"))
    )
    assert comparable(there) == comparable(here)


def comparable(text: str) -> list[str]:
    """Leave out the page, which only a server knows, and durations until now."""
    lines = [line for line in text.splitlines() if not line.startswith(("page ", "- **Page**")) and " ago" not in line]
    return [re.sub(r"\b\d+(\.\d+)?[smhd](\d+[smh])?\b", "…", line) for line in lines]


def test_health_is_the_same_gate_over_a_server(tables: Path, address: str) -> None:
    url = f"http://{address}"
    assert "unhealthy: cluster main" in run("health", "--server", url, code=1)
    assert "unknown cluster nobody; known: main" in run("health", "--server", url, "--cluster", "nobody", code=2)
    document = json.loads(CliRunner().invoke(app, ["health", "--server", url, "-o", "json"]).stdout)
    here = json.loads(
        CliRunner().invoke(app, ["health", "--tables", str(tables), "--max-age", "1h", "-o", "json"]).stdout
    )
    conditions = [[each["condition"] for each in given["clusters"][0]["reasons"]] for given in (document, here)]
    assert conditions[0] == conditions[1]
    assert "waiting for" in run("health", "--server", url, "--wait", "1s", "--settle", "0.1s", code=3)
    assert "unknown: cannot connect to" in run("health", "--server", "http://127.0.0.1:9", code=3)


def test_two_sources_at_once_are_refused(tables: Path) -> None:
    assert "give one of them" in run("events", "--server", "http://a", "--tables", str(tables), code=2)


def test_a_follower_gives_each_event_once_and_survives_a_server_that_is_away(tmp_path: Path) -> None:
    written = WrittenTables(tmp_path / "tables")
    now = micros_now()
    write_live_cluster(written, now)
    said: list[str] = []
    rows = Rows()

    def commit(number: int) -> None:
        event = {"event_id": f"new-{number}", "event": "isr_shrink", "event_broker": None, "detail": None}
        state = rows.state([1, 2, 3], [1], 1)
        written.commit(rows.partition("orders", 0, state, now + number * SECOND, events=[event], left_isr=[2]))

    with plainly_served(written.directory, SETTINGS_OF_TEST) as address:
        asked = Server(ServerSettings(url=f"http://{address}", timeout=2.0), NO_ENVIRONMENT)
        follower = ServerFollower(asked, Question(), 5, lambda _: asked.answer("events", Question()).rows, said.append)
        before = follower.poll()
        commit(1)
        assert [row["event_id"] for row in follower.poll()] == ["new-1"]
        assert follower.poll() == []
        commit(2)
        commit(3)
        assert [row["event_id"] for row in follower.poll()] == ["new-2", "new-3"]
        assert "new-1" not in {row["event_id"] for row in before}
    assert (follower.poll(), follower.poll(), len(said)) == ([], [], 1), "it says so once"
    assert said[0].endswith("; trying again")


def test_a_follower_notices_tables_that_were_made_again_and_have_grown_past_it(tmp_path: Path) -> None:
    now, rows = micros_now(), Rows()

    def write(folder: Path, commits: int, name: str) -> None:
        written = WrittenTables(folder)
        for number in range(commits):
            event = {"event_id": f"{name}-{number}", "event": "isr_shrink", "event_broker": None, "detail": None}
            state = rows.state([1, 2, 3], [1], 1, change_number=number)
            partition = rows.partition("orders", 0, state, now + number * SECOND, events=[event], left_isr=[2])
            written.commit(rows.cluster_row(now), partition, rows.source(now))

    write(tmp_path / "tables", 2, "old")
    write(tmp_path / "again", 5, "new")
    said: list[str] = []
    with plainly_served(tmp_path / "tables", SETTINGS_OF_TEST) as address:
        asked = Server(ServerSettings(url=f"http://{address}", timeout=5.0), NO_ENVIRONMENT)
        follower = ServerFollower(asked, Question(), 5, lambda _: asked.answer("events", Question()).rows, said.append)
        assert [row["event_id"] for row in follower.poll()] == ["old-0", "old-1"]
        (tmp_path / "tables").rename(tmp_path / "old")
        (tmp_path / "again").rename(tmp_path / "tables")
        assert follower.poll() == []
        assert "was recreated or restored from an older copy; reading the events again" in said[0]
        assert [row["event_id"] for row in follower.poll()] == [f"new-{number}" for number in range(5)]


class OldAndNew:
    """Two exporters behind one address, asked in turn: one does not know what the other one answers."""

    def __init__(self) -> None:
        self.turn = 0

    def answer(self, _: str, question: Question) -> Answer:
        self.turn += 1
        is_old = self.turn % 2 == 0
        if is_old and "of_table" in question.filters:
            raise ServerRefused("http://x refuses: unknown parameter 'of_table'; allowed: after")
        event = {"event_id": str(self.turn)}
        document = Answer(
            columns=(), rows=[event], sentences=[], clusters=[], now=1, version=self.turn, table_id="t"
        ).document()
        if is_old:
            del document["table_id"]
        return Answer.of_document(document)


def test_a_follower_goes_on_while_an_older_exporter_answers_at_the_same_address() -> None:
    asked: Any = OldAndNew()
    follower = ServerFollower(asked, Question(), 5, lambda _: [], lambda _: None)
    follower.poll()
    given = [row["event_id"] for _ in range(6) for row in follower.poll()]
    assert len(given) == len({*given}) == 6
