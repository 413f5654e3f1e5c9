"""A login for pages and the JSON API that metrics and health checks do not need, over real connections."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from starlette.routing import BaseRoute, Mount, Route

from exporters.metrics.exposition import Exposition
from exporters.read_model.reader import TablesReader
from exporters.read_model.refresher import Refresher
from exporters.web.server import Endpoints, application, paths_without_login, serving
from streaming.settings import ExportSettings
from tests.plugins.certificates import make_certificate
from tests.web.test_protection import CLIENTS, USERS, get, is_refused, trusting, write

OPEN = (
    "/metrics",
    "/metrics/jmx",
    "/clusters/a/metrics",
    "/clusters/a%2Fb/metrics",
    "/-/healthy",
    "/healthz",
    "/-/ready",
)
CLOSED = (
    *("/", "/api/v1/health", "/api/v1/openapi.json", "/incidents", "/incidents/prod-1", "/clusters/a", "/runbook"),
    *("/metrics/", "/metrics/x", "/metrics/../api/v1/health", "/metrics/..%2F..%2Fapi/v1/health", "//metrics"),
    *("/api/v1/events?x=/metrics", "/api/v1/health#/metrics", "/-/", "/-/healthy/", "/nothing", "/metrics%00"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web")
    for authority in ("authority", "clients"):
        make_certificate(folder, authority)
    make_certificate(folder, "server", signed_by="authority")
    make_certificate(folder, "client", signed_by="clients")
    return folder


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("users")
    web = str(write(folder, USERS))
    with serving(
        folder / "tables", ExportSettings(listen="127.0.0.1:0", web_config_file=web, metrics_without_login=True)
    ) as at:
        yield f"http://{at}"


def test_prometheus_needs_no_password_and_everything_else_does(address: str) -> None:
    assert {path: get(address + path)[0] for path in OPEN if get(address + path)[0] == 401} == {}
    assert {path: get(address + path)[0] for path in CLOSED} == dict.fromkeys(CLOSED, 401)
    assert get(f"{address}/api/v1/openapi.json", login="me:secret")[0] == 200
    assert get(f"{address}/metrics", login="me:wrong")[0] != 401  # a login that is not needed is not checked


def test_every_route_but_those_of_the_list_needs_the_login(tmp_path: Path) -> None:
    endpoints = Endpoints(Refresher(TablesReader(tmp_path), 1.0, "1"), 60.0, exposition=Exposition(60.0))
    settings = ExportSettings(metrics_without_login=True, telemetry_path="/other")
    needing = [each for each in _paths(application(endpoints).routes) if each not in paths_without_login(settings)]
    assert {"/", "/runbook", "/api/v1/events"} <= {*needing}
    assert "/other" in paths_without_login(settings)
    assert [each for each in needing if each.startswith(("/metrics", "/-/", "/healthz"))] == ["/metrics"]
    assert [each for each in needing if each.endswith("/metrics")] == ["/metrics", "/api/v1/answers/metrics"]
    assert paths_without_login(ExportSettings()) == ()


def _paths(routes: list[BaseRoute], prefix: str = "") -> Iterator[str]:
    for route in routes:
        if isinstance(route, Mount):
            yield from _paths(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            yield prefix + route.path


def test_by_default_everything_needs_the_login(tmp_path: Path) -> None:
    with serving(
        tmp_path / "tables", ExportSettings(listen="127.0.0.1:0", web_config_file=str(write(tmp_path, USERS)))
    ) as at:
        assert {get(f"http://{at}{path}")[0] for path in (*OPEN, *CLOSED)} == {401}


@pytest.mark.parametrize("kind", ["RequireAndVerifyClientCert", "VerifyClientCertIfGiven"])
def test_a_certificate_that_every_client_must_have_is_asked_of_prometheus_too(kind: str, folder: Path) -> None:
    web = str(write(folder, CLIENTS.replace("RequireAndVerifyClientCert", kind) + USERS))
    settings = ExportSettings(listen="127.0.0.1:0", web_config_file=web, metrics_without_login=True)
    with serving(folder / "tables", settings) as at:
        without: ssl.SSLContext = trusting(folder)
        assert is_refused(at, without) is (kind == "RequireAndVerifyClientCert")
        assert get(f"https://{at}/-/healthy", trusting(folder, "client"))[0] == 200
        assert get(f"https://{at}/runbook", trusting(folder, "client"))[0] == 401
        if kind == "VerifyClientCertIfGiven":
            assert get(f"https://{at}/-/healthy", without)[0] == 200
            assert get(f"https://{at}/runbook", without)[0] == 401


def test_only_reading_is_open(address: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=20)
        connection.request(method, "/metrics")
        assert connection.getresponse().status == 401, method
        connection.close()
