"""Scrapes of exporters that speak every dialect, hang, drip, fail or know nothing."""

from __future__ import annotations

import base64
import json
import math
import ssl
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from streaming.commands import doctor_agents
from streaming.commands.doctor_machine import Status
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.liveness import BROKER_STATE, HEARTBEAT_AGE_MS, LOGS_LEFT, REGISTRATION_STATE
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.secret_values import StoredText
from streaming.settings import CollectSettings, Settings
from streaming.sources import broker_metrics
from streaming.sources.agents import Agents, agents_from
from streaming.sources.broker_metrics import (
    FAILED_PARTITIONS,
    HANDLERS_IDLE,
    MAX_LAG,
    METRICS,
    PERCENTILES,
    PRODUCE_MEAN_MS,
    PRODUCE_REQUESTS,
    AppendTimes,
    BrokerMetricsSource,
    client_from,
    normalised,
    parse_exposition,
    scrape,
)
from streaming.sources.polling.view import ClusterView
from streaming.sources.source import monotonic
from tests.blocks import singly
from tests.sources.conftest import answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from http.server import BaseHTTPRequestHandler

    Serve = Callable[..., str]
    SourceOf = Callable[..., BrokerMetricsSource]

PATIENCE_SECONDS = 60.0
MANAGER = "kafka_server_replicamanager"
SHRINKS = f"{MANAGER}_isrshrinks_total"
CONTROLLER, STATS = "kafka_controller_kafkacontroller", "kafka_controller_controllerstats"
LOAD_ERRORS = "kafka_server_broker_metadata_metrics_metadata_load_error_count"
REQUESTS = "kafka_network_requestmetrics"
HEARTBEAT = "TimeSinceLastHeartbeatReceivedMs"
PRODUCE, REPLICA = {"request": "Produce"}, {"clientId": "Replica"}
TOPICS, IDLE = "kafka_server_brokertopicmetrics", "RequestHandlerAvgIdlePercent"
NETWORK_IDLE = "kafka_network_socketserver_networkprocessoravgidlepercent"
FETCH_P99, PRODUCE_P99 = sorted(PERCENTILES)
EXPOSITION = f"""\
# HELP {MANAGER}_underreplicatedpartitions Attribute exposed for management
# TYPE {MANAGER}_underreplicatedpartitions gauge
{MANAGER}_underreplicatedpartitions 3.0
# TYPE {MANAGER}_isrshrinks_total counter
{MANAGER}_isrshrinks_total 17.0
# TYPE {MAX_LAG} gauge
{MAX_LAG}{{clientId="Replica"}} 41.0
# TYPE kafka_cluster_partition_underreplicated gauge
kafka_cluster_partition_underreplicated{{topic="orders",partition="0"}} 1.0
# TYPE jvm_threads_current gauge
jvm_threads_current 9.0
# TYPE {MANAGER}_leadercount gauge
{MANAGER}_leadercount NaN
"""
PAGES = Path(__file__).parents[1] / "fixtures" / "jmx_exporter"
KNOWN = {f"{MANAGER}_underreplicatedpartitions": 3.0, f"{MANAGER}_isrshrinks_total": 17.0, MAX_LAG: 41.0}


@pytest.mark.parametrize(
    ("sample", "labels", "name"),
    [
        (SHRINKS, {}, SHRINKS),
        (f"{MANAGER}_isrshrinkspersec", {}, SHRINKS),
        (f"{MANAGER}_total_isrshrinkspersec_count", {}, SHRINKS),
        (f"{MANAGER}_isrshrinkspersec_total", {}, SHRINKS),
        ("kafka_server_ReplicaManager_Count", {"name": "IsrShrinksPerSec"}, SHRINKS),
        ("kafka_server_ReplicaManager_OneMinuteRate", {"name": "IsrShrinksPerSec"}, None),
        (f"{MANAGER}_isrshrinkspersec_oneminuterate", {}, None),
        (f"{MANAGER}_total_partitioncount_value", {}, f"{MANAGER}_partitioncount"),
        ("kafka_server_ReplicaManager_Value", {"name": "PartitionCount"}, f"{MANAGER}_partitioncount"),
        (f"{CONTROLLER}_offlinepartitionscount_value", {}, f"{CONTROLLER}_offlinepartitionscount"),
        ("kafka_server_kafkaserver_total_brokerstate_value", {}, "kafka_server_kafkaserver_brokerstate"),
        (f"{STATS}_uncleanleaderelectionspersec", {}, f"{STATS}_uncleanleaderelections_total"),
        ("kafka_log_LogManager_Value", {"name": "remainingLogsToRecover", "dir": '"/data"'}, LOGS_LEFT),
        (LOGS_LEFT, {"dir": "/data"}, LOGS_LEFT),
        (LOGS_LEFT, {}, None),
        (LOGS_LEFT, {"topic": "orders"}, None),
        ("kafka_controller_KafkaController_Value", {"name": HEARTBEAT, "broker": "3"}, HEARTBEAT_AGE_MS),
        (HEARTBEAT_AGE_MS, {"broker": "three"}, None),
        (HEARTBEAT_AGE_MS, {}, None),
        (f"{REQUESTS}_localtimems_count_total", PRODUCE, PRODUCE_REQUESTS),
        (f"{REQUESTS}_localtimems_count", PRODUCE, PRODUCE_REQUESTS),
        (f"{REQUESTS}_localtimems_mean", PRODUCE, PRODUCE_MEAN_MS),
        ("kafka_network_RequestMetrics_Count", {"name": "LocalTimeMs"} | PRODUCE, PRODUCE_REQUESTS),
        ("kafka_network_RequestMetrics_Mean", {"name": "LocalTimeMs"} | PRODUCE, PRODUCE_MEAN_MS),
        ("kafka_network_RequestMetrics_Mean", {"name": "TotalTimeMs"} | PRODUCE, None),
        ("kafka_network_RequestMetrics_Mean", {"name": "LocalTimeMs", "request": "Fetch"}, None),
        (f"{REQUESTS}_localtimems", {"quantile": "0.99"} | PRODUCE, None),
        (f"{REQUESTS}_localtimems", PRODUCE, None),
        (f"{REQUESTS}_totaltimems_99thpercentile", PRODUCE, PRODUCE_P99),
        (f"{REQUESTS}_totaltimems", {"quantile": "0.99"} | PRODUCE, PRODUCE_P99),
        (f"{REQUESTS}_totaltimems", {"quantile": "0.95"} | PRODUCE, None),
        ("kafka_network_RequestMetrics_99thPercentile", {"name": "TotalTimeMs"} | PRODUCE, PRODUCE_P99),
        (f"{REQUESTS}_totaltimems_99thpercentile", {"request": "FetchConsumer"}, FETCH_P99),
        (f"{REQUESTS}_totaltimems_99thpercentile", {"request": "FetchFollower"}, None),
        (f"{REQUESTS}_totaltimems_99thpercentile", PRODUCE | {"version": "9"}, None),
        (f"{TOPICS}_bytesin_total", {}, f"{TOPICS}_bytesin_total"),
        ("kafka_server_BrokerTopicMetrics_Count", {"name": "BytesOutPerSec"}, f"{TOPICS}_bytesout_total"),
        (f"{TOPICS}_bytesin_total", {"topic": "orders"}, None),
        (HANDLERS_IDLE, {}, HANDLERS_IDLE),
        ("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", {}, HANDLERS_IDLE),
        ("kafka_server_KafkaRequestHandlerPool_OneMinuteRate", {"name": IDLE}, HANDLERS_IDLE),
        ("kafka_server_KafkaRequestHandlerPool_Count", {"name": IDLE}, None),
        ("kafka_server_KafkaRequestHandlerPool_MeanRate", {"name": IDLE}, None),
        (NETWORK_IDLE, {}, NETWORK_IDLE),
        ("kafka_network_SocketServer_Value", {"name": "NetworkProcessorAvgIdlePercent"}, NETWORK_IDLE),
        ("kafka_network_socketserver_networkprocessoravgidle_percent", {}, NETWORK_IDLE),
        (MAX_LAG, REPLICA, MAX_LAG),
        (MAX_LAG, {"clientId": "ReplicaAlterLogDirs"}, None),
        (FAILED_PARTITIONS, REPLICA, FAILED_PARTITIONS),
        ("kafka_server_ReplicaFetcherManager_Value", {"name": "FailedPartitionsCount"} | REPLICA, FAILED_PARTITIONS),
        (LOAD_ERRORS, {}, LOAD_ERRORS),
        (f"{MANAGER}_partitioncount", {"topic": "orders"}, None),
        ("kafka_cluster_partition_underreplicated", {"topic": "orders", "partition": "0"}, None),
        ("jvm_threads_current", {}, None),
    ],
)
def test_every_dialect_has_one_name(sample: str, labels: dict[str, str], name: str | None) -> None:
    assert normalised(sample, labels) == name


SUBJECTS = sorted({"_".join(it.split("_")[:3]) for it in METRICS} | {"jvm_threads_current", "kafka_log_log", REQUESTS})
ENDS = st.sampled_from(["", "_value", "_count", "_count_total", "_total", "_mean", "_oneminuterate"])
ATTRIBUTES = sorted({name.split("_", 3)[3] for name in METRICS} | {"isrshrinkspersec", "size", "localtimems"})
LABEL_NAMES = st.sampled_from(["name", "topic", "clientId", "partition", "request"])
LABEL_VALUES = ["IsrShrinksPerSec", "PartitionCount", "LocalTimeMs", "Produce", "Replica", 'a "b" \\ {c} # d', "0"]
LABELS = st.dictionaries(LABEL_NAMES, st.sampled_from(LABEL_VALUES), max_size=2)
VALUES = st.sampled_from(["3.0", "17", "NaN", "+Inf", "1e3 1700000000000"])


@st.composite
def families(draw: st.DrawFn) -> str:
    """Draw the lines of one metric as an exporter writes them, in one group."""
    name = "_".join(
        [draw(st.sampled_from(SUBJECTS)), *draw(st.sampled_from([(), ("total",)])), draw(st.sampled_from(ATTRIBUTES))]
    )
    name = draw(st.sampled_from([name, name.title(), name.upper()])) + draw(ENDS)
    lines = [f"# HELP {name} Attribute of {name}"] * draw(st.booleans())
    lines += draw(st.sampled_from([[], *([f"# TYPE {name} {kind}"] for kind in ("gauge", "counter", "untyped"))]))
    for labels in draw(st.lists(LABELS, min_size=1, max_size=3)):
        quoted = ",".join(f'{key}="{json.dumps(value)[1:-1]}"' for key, value in labels.items())
        lines.append(f"{name}{{{quoted}}} {draw(VALUES)}" if labels else f"{name} {draw(VALUES)}")
    return "\n".join(lines)


@given(st.lists(families() | st.sampled_from(["", "# a remark"]), max_size=8), st.sampled_from(["\n", "\r\n"]))
def test_what_is_kept_of_a_page_is_what_parsing_all_of_it_gives(pages: list[str], end: str) -> None:
    page = "\n".join(pages).replace("\n", end)
    expected = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            name = normalised(sample.name, sample.labels)
            if name is not None and math.isfinite(sample.value):
                expected[name] = float(sample.value)
    assert parse_exposition(page).own == expected


def test_of_a_page_only_the_lines_are_parsed_of_which_something_may_be_kept() -> None:
    others = [f'kafka_log_Log_Size{{topic="orders",partition="{number}",}} not parsed' for number in range(1000)]
    others += [f'{REQUESTS}_localtimems_count{{request="{name}",}} not parsed' for name in ("Fetch", "Metadata")]
    others.append(f"# TYPE {REQUESTS}_localtimems_mean not parsed")
    assert parse_exposition("\n".join([EXPOSITION, *others])).own == KNOWN


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_kept_name_is_its_own_normal_form(name: str) -> None:
    assert normalised(name, {}) == name


def captured(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text(encoding="utf-8")


def test_a_broker_that_recovers_says_how_many_logs_are_left_in_all_its_directories() -> None:
    page = parse_exposition(captured("recovering_broker"))
    assert (page.own[LOGS_LEFT], page.own[BROKER_STATE], page.of_brokers) == (138.0, 1.0, {})
    of_another = f'{LOGS_LEFT}{{dir="/other"}} 7.0\n{LOGS_LEFT}{{dir="/third"}} 5.0\n'
    assert parse_exposition(captured("recovering_broker") + of_another).own[LOGS_LEFT] == 150.0


def test_the_active_controller_says_of_every_broker_how_old_its_last_heartbeat_is() -> None:
    """Of a dead one as old as the session timeout, 4 s there; of one that recovers its logs a few milliseconds."""
    of_dead = parse_exposition(captured("controller_of_a_dead_broker"))
    of_recovering = parse_exposition(captured("controller_of_a_recovering_broker"))
    assert of_dead.of_brokers[BrokerId(2)] == {HEARTBEAT_AGE_MS: 4000.0, REGISTRATION_STATE: 10.0}
    assert of_recovering.of_brokers[BrokerId(2)][HEARTBEAT_AGE_MS] < 100
    assert of_recovering.of_brokers[BrokerId(1)][REGISTRATION_STATE] == 30.0
    assert HEARTBEAT_AGE_MS not in of_dead.own


def test_what_a_standby_controller_says_of_brokers_is_not_taken() -> None:
    page = captured("controller_of_a_dead_broker")
    active = "kafka_controller_kafkacontroller_activecontrollercount"
    assert f"\n{active} 1.0\n" in page
    assert parse_exposition(page.replace(f"\n{active} 1.0\n", f"\n{active} 0.0\n")).of_brokers == {}


@pytest.fixture
def source_of() -> Iterator[SourceOf]:
    with ExitStack() as stack:

        def make(endpoints: dict[int, str], client: Mapping[str, str] = {}, **settings: Any) -> BrokerMetricsSource:
            known = {"cluster_id": lambda: ClusterId("C"), "cluster": "test", "name": "broker_metrics:test"}
            limits = {"period_micros": Micros(100_000), "timeout_seconds": 5.0, "block_seconds": 0.2}
            given = {"agents": Agents({BrokerId(broker): url for broker, url in endpoints.items()})}
            source = BrokerMetricsSource(client=client_from(client), **{**given, **known, **limits, **settings})
            return stack.enter_context(closing(source))

        yield make


def polled(source: BrokerMetricsSource) -> list[BrokerMetricObserved]:
    found = source.poll(Micros(time.time_ns() // 1000))
    return [item for item in singly(found) if isinstance(item, BrokerMetricObserved)]


def until(source: BrokerMetricsSource, number: int) -> list[BrokerMetricObserved]:
    found: list[BrokerMetricObserved] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < number:
        assert time.monotonic() < deadline
        found += polled(source)
    return found


def polled_with_refusals(
    source: BrokerMetricsSource, enough: Callable[[int, int, int], object]
) -> tuple[list[BrokerMetricObserved], list[str]]:
    """Poll until there were enough polls, samples and refusals."""
    polls, found, refused, began = 0, list[BrokerMetricObserved](), list[str](), time.monotonic()
    while not enough(polls, len(found), len(refused)):
        assert time.monotonic() - began < PATIENCE_SECONDS
        polls += 1
        try:
            found += polled(source)
        except ConnectionRefused as refusal:
            refused.append(str(refusal))
    return found, refused


def test_known_aggregates_are_reported_and_nothing_else(serve: Serve, source_of: SourceOf) -> None:
    found = until(source_of({7: serve(answer(EXPOSITION))}), 3)[:3]
    assert {item.metric: item.metric_value for item in found} == KNOWN
    assert {7} == {item.broker for item in found}
    assert all(item.occurred_not_before <= item.occurred_not_after for item in found)


def test_what_a_controller_says_of_a_broker_is_a_sample_of_that_broker(serve: Serve, source_of: SourceOf) -> None:
    found = until(source_of({1: serve(answer(captured("controller_of_a_dead_broker")))}), 20)
    assert {item.broker: item.metric_value for item in found if item.metric == REGISTRATION_STATE} == {1: 30.0, 2: 10.0}
    assert {item.metric for item in found if item.broker == 2} == {HEARTBEAT_AGE_MS, REGISTRATION_STATE}


def test_a_sample_is_no_older_than_the_poll_that_has_waited_for_it(serve: Serve, source_of: SourceOf) -> None:
    asked = threading.Event()

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.wait(PATIENCE_SECONDS)
        answer(EXPOSITION)(request)

    source = source_of({1: serve(handle)}, block_seconds=PATIENCE_SECONDS)
    threading.Timer(0.1, asked.set).start()
    now = Micros(time.time_ns() // 1000)
    (block,) = source.poll(now)
    assert now <= block.occurred_not_before < block.occurred_not_after == block.collected_at


def test_scrapes_come_once_a_period(serve: Serve, source_of: SourceOf) -> None:
    asked: list[float] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append(time.monotonic())
        answer(EXPOSITION)(request)

    began = time.monotonic()  # not the first request, which may be late
    until(source_of({1: serve(handle)}, period_micros=200_000), 12)
    assert len(asked) == 4
    assert asked[-1] - began > 0.5


def test_a_hung_and_a_dead_broker_delay_nobody(serve: Serve, source_of: SourceOf) -> None:
    gate = threading.Event()

    def hang(_: BaseHTTPRequestHandler) -> None:
        gate.wait(PATIENCE_SECONDS)

    ends = [serve(answer(EXPOSITION)), serve(hang), "http://127.0.0.1:1/m"]
    source = source_of(dict(enumerate(ends, start=1)), timeout_seconds=PATIENCE_SECONDS)
    found, (sentence,) = polled_with_refusals(source, lambda _, samples, refused: samples >= 15 and refused)
    gate.set()
    assert {1} == {item.broker for item in found}
    assert "http://127.0.0.1:1/m of broker 3 does not respond" in sentence
    assert "check the URL in collect.broker_metrics" in sentence


def test_a_broker_that_stops_answering_is_absent_and_reported_once(serve: Serve, source_of: SourceOf) -> None:
    broken = threading.Event()

    def handle(request: BaseHTTPRequestHandler) -> None:
        answer("", status=503)(request) if broken.is_set() else answer(EXPOSITION)(request)

    source = source_of({1: serve(handle)})
    until(source, 3)
    broken.set()
    found, (sentence,) = polled_with_refusals(source, lambda polls, *_: polls == 12)
    assert found == []
    assert "of broker 1, which has worked before, does not respond: Service Unavailable" in sentence
    broken.clear()
    assert until(source, 3)


def test_the_login_in_an_address_is_sent_and_never_shown(serve: Serve, source_of: SourceOf) -> None:
    asked: list[str | None] = []

    def handle(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.headers["Authorization"])
        answer(EXPOSITION if len(asked) > 1 else "", 200 if len(asked) > 1 else 401)(request)

    source = source_of({1: serve(handle).replace("//", "//reader:p%40ss@")})
    with pytest.raises(ConnectionRefused) as refusal:
        until(source, 3)
    assert until(source, 3)
    assert asked[0] == "Basic " + base64.b64encode(b"reader:p@ss").decode()
    assert "p%40ss" not in str(refusal.value)
    with pytest.raises(ConfigurationError) as wrong:
        agents_from({"1": "ftp://reader:hunter2@a:1"})
    assert "hunter2" not in str(wrong.value)


CERTIFICATE = Path(__file__).parents[1] / "fixtures" / "metadata_log" / "tls" / "certificate.pem"
KEY = CERTIFICATE.with_name("key.pem")


def secured() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def test_an_exporter_with_tls_is_scraped_with_configured_authorities_only(serve: Serve, source_of: SourceOf) -> None:
    url = serve(answer(EXPOSITION), secured())
    assert until(source_of({1: url}, client={"ssl.ca.location": str(CERTIFICATE)}), 3)
    assert until(source_of({1: url}, client={"enable.ssl.certificate.verification": "false"}), 3)
    sentence = r"verify failed.*; check the ssl keys of collect\.broker_metrics_client"
    with pytest.raises(ConnectionRefused, match=sentence):
        until(source_of({1: url}), 3)


def test_an_exporter_that_wants_a_certificate_gets_it_and_files_that_are_renewed_are_used(
    serve: Serve, source_of: SourceOf, tmp_path: Path
) -> None:
    context = secured()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(CERTIFICATE)
    authorities = tmp_path / "ca.pem"
    authorities.write_text(CERTIFICATE.read_text())
    client = {
        "ssl.ca.location": str(authorities),
        "ssl.certificate.location": str(CERTIFICATE),
        "ssl.key.location": str(KEY),
    }
    url = serve(answer(EXPOSITION), context)
    source = source_of({1: url}, client=client)
    assert until(source, 3)
    authorities.write_text("being replaced")
    with pytest.raises(ConnectionRefused, match=r"ssl\.ca\.location cannot be used: .*ca\.pem"):
        until(source, 30_000)
    authorities.write_text(CERTIFICATE.read_text())
    assert until(source, 3)
    with pytest.raises(ConnectionRefused):
        until(source_of({1: url}, client={"ssl.ca.location": str(CERTIFICATE)}), 3)


def test_the_login_of_the_table_goes_to_addresses_without_one_alone(serve: Serve, source_of: SourceOf) -> None:
    asked: dict[str, str | None] = {}

    def note(name: str) -> Callable[[BaseHTTPRequestHandler], None]:
        def handle(request: BaseHTTPRequestHandler) -> None:
            asked[name] = request.headers["Authorization"]
            answer(EXPOSITION)(request)

        return handle

    elsewhere = serve(note("elsewhere"))

    def redirect(request: BaseHTTPRequestHandler) -> None:
        asked["redirected"] = request.headers["Authorization"]
        request.send_response(302)
        request.send_header("Location", elsewhere)
        request.end_headers()

    own = serve(note("own")).replace("//", "//admin:secret@")
    client = {"basic.auth.user.info": "reader:p%40ss:word"}
    until(source_of({1: serve(note("none")), 2: own, 3: serve(redirect)}, client=client, period_micros=10**9), 9)

    table = "Basic " + base64.b64encode(b"reader:p%40ss:word").decode()
    assert asked == {
        "none": table,
        "own": "Basic " + base64.b64encode(b"admin:secret").decode(),
        "redirected": table,
        "elsewhere": None,
    }
    assert "p%40ss" not in repr(client_from(client))


def test_a_login_that_changes_in_its_file_is_used_from_then_on(serve: Serve, source_of: SourceOf) -> None:
    logins = iter(["a:old", "a:new"])
    right = "Basic " + base64.b64encode(b"a:new").decode()

    def handle(request: BaseHTTPRequestHandler) -> None:
        is_right = request.headers["Authorization"] == right
        answer(EXPOSITION if is_right else "", 200 if is_right else 401)(request)

    login = StoredText(lambda: next(logins, "a:new"))
    assert login == "a:old"
    assert until(source_of({1: serve(handle)}, client={"basic.auth.user.info": login}), 3)


def test_a_refused_login_names_the_key_and_no_password(serve: Serve, source_of: SourceOf) -> None:
    source = source_of({1: serve(answer("", status=401))}, client={"basic.auth.user.info": "reader:hunter2"})
    sentence = r"check basic\.auth\.user\.info of collect\.broker_metrics_"
    with pytest.raises(ConnectionRefused, match=sentence) as refusal:
        until(source, 3)
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("client", "sentence"),
    [
        ({"sasl.password": "hunter2"}, "broker_metrics_client has no sasl.password; it has basic.auth.user.info, "),
        ({"basic.auth.user.info": "hunter2"}, 'basic.auth.user.info has no colon; write "user:password"'),
        ({"ssl.ca.location": "/nowhere"}, "collect.broker_metrics_client ssl.ca.location cannot be used: /nowhere"),
    ],
)
def test_a_wrong_property_for_exporters_is_named_without_its_value(client: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        client_from(client)
    assert sentence in str(refusal.value)
    assert "hunter2" not in str(refusal.value)


def test_an_exporter_with_other_rules_is_told_apart(serve: Serve, source_of: SourceOf) -> None:
    with pytest.raises(ConnectionRefused, match=r"broker 1 has no known metric; .*conf/jmx-exporter.yml"):
        until(source_of({1: serve(answer("jvm_threads_current 9.0\n"))}), 1)


def test_an_answer_that_drips_is_cut_off(serve: Serve) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        with ExitStack() as gone:
            gone.push(lambda *_: True)  # the client hangs up
            while True:
                request.wfile.write(b"#\n")
                time.sleep(0.05)

    with pytest.raises(TimeoutError, match=r"no complete response within 0.2 s"):
        scrape(serve(drip), 0.2, client_from({}))


def test_a_page_without_end_is_cut_off(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_metrics, "_MAX_BODY_BYTES", len(EXPOSITION) - 1)
    with pytest.raises(TimeoutError, match=r"no complete response"):
        scrape(serve(answer(EXPOSITION)), PATIENCE_SECONDS, client_from({}))


def test_a_response_that_breaks_off_is_reported(serve: Serve, source_of: SourceOf) -> None:
    def break_off(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"ff\r\nhalf")

    with pytest.raises(ConnectionRefused, match="of broker 1 does not respond"):
        until(source_of({1: serve(break_off)}), 1)


def test_what_is_no_exposition_is_refused(serve: Serve) -> None:
    with pytest.raises(ValueError, match=r"."):
        scrape(serve(answer("<html>{{</html>\n")), 5.0, client_from({}))


@pytest.mark.parametrize(
    ("broker", "url", "sentence"),
    [
        ("one", "http://a:1", "'one' is no broker id"),
        *(("1", url, "of broker 1 is no http") for url in ("file:///etc/passwd", "a:1")),
        ("*", "http://agent:1/metrics", r'the address of "\*" needs \{host\}, the host of each broker'),
        ("*", "http://{host}:{port}/", r'the address of "\*" needs \{host\}'),
    ],
)
def test_settings_give_endpoints_and_wrong_ones_name_the_key(broker: str, url: str, sentence: str) -> None:
    assert agents_from({"2": "https://b:7071/metrics"}) == ({2: "https://b:7071/metrics"}, "")
    with pytest.raises(ConfigurationError, match=f"collect.broker_metrics: .*{sentence}"):
        agents_from({broker: url})


def test_a_pattern_gives_each_broker_an_address_and_an_explicit_one_wins() -> None:
    agents = agents_from({"*": "http://{host}:9404/b/{broker}", "2": "http://other:1/"})
    hosts = {BrokerId(1): "b-1", BrokerId(2): "b-2", BrokerId(3): "::1"}
    assert agents.urls(hosts) == {1: "http://b-1:9404/b/1", 2: "http://other:1/", 3: "http://[::1]:9404/b/3"}
    assert agents_from({"2": "http://other:1/"}).urls(hosts) == {2: "http://other:1/"}


def test_brokers_of_a_pattern_are_followed_as_they_come_move_and_go(
    serve: Serve, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = urlsplit(serve(answer(EXPOSITION))).port
    hosts: dict[BrokerId, str] = {}

    def view() -> ClusterView:
        return ClusterView(ClusterId("C"), 1, {broker: (host, 9092) for broker, host in hosts.items()}, {})

    times = AppendTimes((), 10)
    agents = agents_from({"*": f"http://{{host}}:{port}/metrics"})
    source = source_of({}, agents=agents, view=view, append_times=times)
    assert polled(source) == []
    hosts[BrokerId(1)] = "127.0.0.1"
    assert {item.broker for item in until(source, 3)} == {1}
    hosts |= {BrokerId(1): "localhost", BrokerId(7): "127.0.0.1"}
    seen: set[int] = set()
    while seen != {1, 7}:
        seen |= {item.broker for item in until(source, 3)}
    assert source.urls == {1: f"http://localhost:{port}/metrics", 7: f"http://127.0.0.1:{port}/metrics"}
    del hosts[BrokerId(1)]
    polled(source)
    assert source.urls.keys() == {1, 7}, "its agent may say that it recovers"
    at = monotonic()
    monkeypatch.setattr(broker_metrics, "monotonic", lambda: Micros(at + 3_601_000_000))
    polled(source)
    assert source.urls.keys() == {7}


def test_wrong_and_missing_agents_are_named_once_and_not_recorded_and_doctor_names_them(
    serve: Serve, source_of: SourceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three agents the first is that of broker 2, and broker 4 has none."""

    def handle(request: BaseHTTPRequestHandler) -> None:
        node = {"1": 2}.get(request.path[-1], int(request.path[-1]))
        answer(f'{EXPOSITION}kafka_server_app_info_starttimems{{id="{node}"}} 1.79E12\n')(request)

    url = serve(handle)
    urls = {str(broker): f"{url}?{broker}" for broker in (1, 2, 3)}
    brokers = {BrokerId(broker): ("h", 9092) for broker in range(1, 5)}
    view = ClusterView(ClusterId("C"), 1, brokers, {})
    source = source_of({}, agents=agents_from(urls), view=lambda: view)
    found, refused = polled_with_refusals(source, lambda polls, samples, _: polls > 9 and samples > 9)
    assert {item.broker for item in found} == {2, 3}
    missing = 'collect.broker_metrics has no agent of broker 4: add "4" = "http://...", or "*" for all'
    wrong = (
        f"the agent of broker 1 in collect.broker_metrics, {url}?1, is that of broker 2, so nothing of it is recorded: "
        "correct the address"
    )
    assert refused == [missing, wrong]
    monkeypatch.setattr(doctor_agents, "view_of", lambda _: view)
    findings = doctor_agents.broker_metrics(Settings(collect=CollectSettings(broker_metrics=urls)))
    assert [sentence for status, sentence in findings if status is Status.WARNING] == [missing, wrong]


def test_our_exporter_configuration_asks_for_no_mbean_of_a_partition() -> None:
    config = yaml.safe_load((Path(__file__).parents[2] / "conf" / "jmx-exporter.yml").read_text(encoding="utf-8"))
    assert config["lowercaseOutputName"] is True
    assert len(config["includeObjectNames"]) == 19
    assert not [name for name in config["includeObjectNames"] if "type=Partition" in name or name.endswith(":*")]
    assert all(rule["type"] in {"COUNTER", "GAUGE"} for rule in config["rules"])


def test_samples_are_of_the_cluster_that_is_at_the_address_now_and_none_are_taken_before_that_is_clear(
    serve: Serve, source_of: SourceOf
) -> None:
    now: list[ClusterId | None] = [None]
    source = source_of({1: serve(answer(EXPOSITION))}, cluster_id=lambda: now[0])
    assert polled(source) == []
    for cluster_id in (ClusterId("C"), ClusterId("rebuilt")):
        now[0] = cluster_id
        assert {item.cluster_id for item in until(source, 3)} == {cluster_id}
