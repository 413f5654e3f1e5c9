"""Exactly the alerts that must fire, at the times that matter: begin, three hours later, after the end.

The whole set of firing alerts is compared, so each scene also shows which other alerts stay silent, and all of them
together that trouble of one cluster is none of another.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dashboards.alerts import AlertSettings, rule_file
from dashboards.render import as_yaml
from streaming.contracts.observations import SourceKind
from tests.dashboards.alert_cases import PROD, broker, cluster
from tests.dashboards.exposed import Removal
from tests.dashboards.scenes import (
    BROKER_LISTENER,
    CLIENT_CERTIFICATE,
    DAY,
    LISTENER_CERTIFICATE,
    LOG,
    OFFSETS,
    OWN_CERTIFICATE,
    STEPS,
    Scene,
    always,
    from_minute,
    outcomes,
    run,
)

pytestmark = pytest.mark.prometheus

LATE = 200.0  # minutes: more than three hours after the begin


def refused_seconds(topic: str = "orders") -> str:
    return f'partition_under_min_isr_seconds_total{{{PROD}, topic="{topic}", partition="0"}}'


def age(source: str) -> str:
    return f"source_age_seconds{{{PROD}, {source}}}"


def left(cause: str, number: int = 3) -> str:
    return f'broker_isr_departures_total{{{PROD}, broker="{number}", cause="{cause}"}}'


def stopped_data(minute: float) -> dict[str, str]:
    """The state is withdrawn, while ages and counters stay."""
    end = int(minute * 2)
    zeros = ("offline", "under_min_isr", "under_replicated", "unknown_min_isr", "at_min_isr", "reassigning")
    gauges = {cluster(f"{name}_partitions"): f"0x{end - 1} stale" for name in zeros}
    ages = f"2x{end - 3} 2+30x{STEPS - end + 2}"
    return {**gauges, cluster("controller"): f"100x{end - 1} stale", cluster("state_age_seconds"): ages, age(LOG): ages}


def lost_broker(begin: float, until: float | None = None, *, at_min: int = 100) -> dict[str, str]:
    return {
        broker("fenced"): from_minute(begin, 1, until=until),
        broker("missing_from_isr_partitions"): from_minute(begin, 100, until=until),
        broker("missing_at_min_isr_partitions"): from_minute(begin, at_min, until=until),
        cluster("under_replicated_partitions"): from_minute(begin, 100, until=until),
        left("fenced"): from_minute(begin, 100, until=until, after=100),
    }


NOTE = 'info KafkaIsrShrink{broker="3", cause="fenced"}'
LOST = 'page KafkaBrokerLost{broker="3"}'
DOWN = 'ticket KafkaBrokerDown{broker="3"}'
STOPPED = 'ticket KafkaBrokerStopped{broker="3"}'
MISSING = 'ticket KafkaUnderReplicated{broker="3"}'
OFFLINE = "page KafkaOfflinePartitions"
UNDER = "page KafkaUnderMinIsr"
NO_CONTROLLER = "page KafkaNoController"
UNCLEAN = "page KafkaUncleanElection"
MORE = "page KafkaMorePartitionsUnavailable"
LOG_DIR = 'ticket KafkaLogDirOffline{broker="3"}'
UNREADABLE = 'ticket KafkaReplicationTableUnreadable{table="incidents"}'
LAGS = 'info KafkaIsrShrink{broker="3", cause="lag"}'
MISSED = "ticket KafkaReplicationChangesMissed"
STUCK = "ticket KafkaReassignmentStuck"
UNKNOWN = "ticket KafkaMinIsrUnknown"
STALE = "ticket KafkaReplicationMonitorStale"
BLIND = "page KafkaReplicationMonitorBlind"
REFUSED = "ticket KafkaReplicationSourceRefused"
STOPPED_SOURCE = "ticket KafkaReplicationSourceStopped"
EXPIRES = "ticket KafkaReplicationCertificateExpires"

SCENES = {
    "a healthy cluster": Scene({}, {1: set(), LATE: set()}),
    "partitions are offline until they are not": Scene(
        {cluster("offline_partitions"): from_minute(10, 400, until=210)},
        {10.5: set(), 11.5: {OFFLINE}, LATE: {OFFLINE}, 212: set()},
    ),
    "under min ISR for a minute, and for three hours": Scene(
        {cluster("under_min_isr_partitions"): from_minute(10, 3, until=210)},
        {10.5: set(), 11.5: {UNDER}, LATE: {UNDER}, 214: {UNDER}, 217: set()},
    ),
    "under min ISR in every other minute, and then no more": Scene(
        {
            cluster("under_min_isr_partitions"): "0x19 " + "1 1 0 0 " * 100 + f"0x{STEPS - 421}",
            refused_seconds(): f"0x19 0+15x399 5985x{STEPS - 421}",
        },
        {12: set(), 15: {UNDER}, LATE: {UNDER}, 225: set()},
    ),
    "one short refusal": Scene(
        {
            cluster("under_min_isr_partitions"): from_minute(10, 9, until=10.5),
            refused_seconds(): from_minute(10.5, 30, until=200, after=30),
        },
        {11: set(), 12: set(), 30: set()},
    ),
    "trouble that is added to an old one is another page": Scene(
        {cluster("offline_partitions"): from_minute(210, 4001, before=1)},
        {LATE: {OFFLINE}, 212: {OFFLINE, MORE}, 230: {OFFLINE, MORE}},
    ),
    "an unclean election": Scene(
        {cluster("unclean_elections_total"): from_minute(10, 2)}, {9: set(), 10.5: {UNCLEAN}, 60: {UNCLEAN}, 100: set()}
    ),
    "an unclean election beside partitions that stay offline waits, and is not forgotten": Scene(
        {
            cluster("offline_partitions"): from_minute(10, 2, until=40),
            cluster("under_min_isr_partitions"): from_minute(10, 2, until=40),
            cluster("unclean_elections_total"): from_minute(12.5, 2),
        },
        {12: {OFFLINE}, 24: {OFFLINE}, 26: {OFFLINE, UNCLEAN}, 39: {OFFLINE, UNCLEAN}, 60: {UNCLEAN}},
    ),
    "an unclean election that ends what was offline, and writes that are refused for long after it": Scene(
        {
            cluster("offline_partitions"): from_minute(10, 2, until=14),
            cluster("under_min_isr_partitions"): from_minute(10, 2, until=60),
            cluster("unclean_elections_total"): from_minute(14, 2),
        },
        {13: {OFFLINE}, 14: {UNCLEAN}, 28: {UNCLEAN}, 31: {UNCLEAN, UNDER}, 59: {UNCLEAN, UNDER}},
    ),
    "partitions are offline after a page about refused writes, and a broker is lost": Scene(
        lost_broker(10, 210)
        | {
            cluster("under_min_isr_partitions"): from_minute(10, 3, until=210),
            cluster("offline_partitions"): from_minute(12, 400, until=210),
        },
        {
            11.5: {UNDER, NOTE},
            13.5: {UNDER, OFFLINE, NOTE},
            20: {UNDER, OFFLINE, NOTE},
            LATE: {UNDER, OFFLINE, LOST, DOWN, MISSING},
        },
    ),
    "the controllers do not answer, the brokers do": Scene(
        stopped_data(10), {12: {STALE, NO_CONTROLLER}, LATE: {STALE, NO_CONTROLLER}}
    ),
    "the controllers do not answer, the brokers and the poller beside the log do": Scene(
        stopped_data(10)
        | {
            f'source_age_seconds{{{PROD}, channel="replication", source="{source}:c1"}}': always(3)
            for source in ("admin", "quorum", "maintenance")
        },
        {12: {STALE, NO_CONTROLLER}, LATE: {STALE, NO_CONTROLLER}},
    ),
    "the controllers do not answer one of two collectors": Scene(
        {age(LOG): f"2x17 2+30x{STEPS - 18}"}, {12: set(), LATE: {STOPPED_SOURCE}}
    ),
    "the controllers do not answer, and polls take over": Scene(
        {
            age(LOG): f"2x17 2+30x{STEPS - 18}",
            f'source_age_seconds{{{PROD}, channel="replication", source="admin:c1"}}': always(3),
            cluster("controller"): f"100x21 stale _x{STEPS - 23}",
        },
        {10: set(), 13: {NO_CONTROLLER}, LATE: {NO_CONTROLLER, STOPPED_SOURCE}},
    ),
    "the collector is dead": Scene(
        stopped_data(10) | {age(OFFSETS): f"3x17 3+30x{STEPS - 18}"}, {12: {STALE}, LATE: {STALE}}
    ),
    "the query of the replication channel is down": Scene(
        stopped_data(10) | {f"source_query_up{{{PROD}, {LOG}}}": from_minute(10, 0, before=1)},
        {15: {STALE, 'ticket KafkaReplicationJobQueryDown{channel="replication"}'}},
    ),
    "the metadata log is refused for a while": Scene(
        {f'isrwatch_collector_source_up{{{PROD}, source="metadata_log:c1"}}': from_minute(10, 0, 1, until=60, after=1)},
        {19: set(), 21: {REFUSED}, 59: {REFUSED}, 61: set()},
    ),
    "the certificate of a broker expires soon, and is renewed": Scene(
        {f"{LISTENER_CERTIFICATE}{{{PROD}, {BROKER_LISTENER}}}": from_minute(60, 400 * DAY, 14 * DAY + 600)},
        {9: set(), 11: {EXPIRES}, 59: {EXPIRES}, 61: set()},
    ),
    "the certificate of the collector expires": Scene(
        {f"{CLIENT_CERTIFICATE}{{{PROD}, {OWN_CERTIFICATE}}}": always(3600)}, {1: {EXPIRES}, LATE: {EXPIRES}}
    ),
    "the brokers are restarted, and answer nobody for five minutes": Scene(
        {f'isrwatch_collector_source_up{{{PROD}, source="metadata_log:c1"}}': from_minute(10, 0, 1, until=15, after=1)},
        {14: set(), LATE: set()},
    ),
    "the active controller becomes unknown": Scene(
        {cluster("controller"): f"100x19 stale _x{STEPS - 21}"},
        {10.5: set(), 12: {NO_CONTROLLER}, LATE: {NO_CONTROLLER}},
    ),
    "a crashed broker with partitions at min ISR": Scene(
        lost_broker(10, 210), {14: {NOTE}, 16: {NOTE, LOST}, LATE: {LOST, DOWN, MISSING}, 212: set()}
    ),
    "a broker that is down while planned work on it is announced": Scene(
        lost_broker(10, 210) | {broker("maintenance"): from_minute(8, 1, until=230)},
        {12: set(), 16: set(), LATE: set(), 232: set()},
    ),
    "a broker that is not back when the time of its planned work is over": Scene(
        lost_broker(10, 210) | {broker("maintenance"): from_minute(8, 1, until=100)},
        {60: set(), 101: set(), LATE: {LOST, DOWN, MISSING}},
    ),
    "planned work on another broker silences nothing": Scene(
        lost_broker(10, 210) | {broker("maintenance", 2): always(1)}, {16: {NOTE, LOST}, LATE: {LOST, DOWN, MISSING}}
    ),
    "planned work never hides partitions that are offline": Scene(
        lost_broker(10, 210)
        | {broker("maintenance"): always(1), cluster("offline_partitions"): from_minute(10, 4, until=210)},
        {11.5: {OFFLINE}, LATE: {OFFLINE}},
    ),
    "a crashed broker of which nothing is at min ISR": Scene(
        lost_broker(10, 210, at_min=0), {16: {NOTE}, LATE: {DOWN, MISSING}, 212: set()}
    ),
    "a crashed broker that is back within five minutes": Scene(lost_broker(10, 14), {16: {NOTE}, 40: set()}),
    "a broker that is lost while the data becomes stale": Scene(
        lost_broker(10)
        | stopped_data(60)
        | {age(OFFSETS): f"3x117 3+30x{STEPS - 118}"}
        | {broker(name): f"0x19 {value}x99 stale" for name, value in (("fenced", 1), ("shutting_down", 0))}
        | {broker(name): "0x19 100x99 stale" for name in ("missing_from_isr_partitions", "hosted_partitions")}
        | {broker("missing_at_min_isr_partitions"): "0x19 100x99 stale"},
        {LATE: {STALE, LOST, DOWN, MISSING}},
    ),
    "a broker that polls no longer list, until its replicas are moved": Scene(
        Removal(SourceKind.POLL).not_listed(10).moved(150).series(),
        {16: {LOST}, 140: {LOST, DOWN, MISSING}, 152: set(), LATE: set()},
    ),
    "a broker that was decommissioned": Scene(
        Removal().moved(5).stopped(10).unregistered(20).series(), {16: set(), 26: set(), LATE: set()}
    ),
    "a broker that crashed and was removed": Scene(
        Removal().stopped(10, shuts_down=False).moved(60).unregistered(100).series(),
        {16: {LOST}, 40: {LOST, DOWN, MISSING}, 90: {DOWN}, 101: set(), LATE: set()},
    ),
    "a broker that was stopped and unregistered before its replicas were moved": Scene(
        Removal().stopped(10).unregistered(20).moved(150).series(),
        {16: set(), 140: {MISSING, STOPPED}, 152: set(), LATE: set()},
    ),
    "a broker that crashed and was unregistered before its replicas were moved": Scene(
        Removal().stopped(10, shuts_down=False).unregistered(20).moved(150).series(),
        {16: {LOST}, 140: {LOST, DOWN, MISSING}, 152: set(), LATE: set()},
    ),
    "a controlled rolling restart": Scene(
        {
            series: values
            for number, begin in ((1, 10), (2, 20), (3, 30))
            for series, values in (
                (broker("fenced", number), from_minute(begin, 1, until=begin + 6)),
                (broker("shutting_down", number), from_minute(begin, 1, until=begin + 6)),
                (broker("missing_from_isr_partitions", number), from_minute(begin, 100, until=begin + 8)),
                (broker("missing_at_min_isr_partitions", number), from_minute(begin, 100, until=begin + 8)),
                (left("controlled_shutdown", number), from_minute(begin, 100)),
            )
        },
        {16: set(), 26: set(), 37: set(), LATE: set()},
    ),
    "a broker that was stopped on purpose and never returns": Scene(
        {
            broker("fenced"): from_minute(10, 1),
            broker("shutting_down"): from_minute(10, 1),
            broker("missing_from_isr_partitions"): from_minute(10, 100),
            broker("missing_at_min_isr_partitions"): from_minute(10, 100),
            left("controlled_shutdown"): from_minute(10, 100),
        },
        {20: set(), 26: {MISSING}, LATE: {MISSING, STOPPED}},
    ),
    "an ISR that flaps for hours": Scene(
        {left("lag"): f"0x19 0+1x{STEPS - 20}"}, {30: {LAGS}, LATE: {LAGS, 'ticket KafkaIsrFlapping{broker="3"}'}}
    ),
    "a disk fails": Scene(
        {broker("online_log_dirs"): from_minute(10, 1, before=2, until=210, after=2)},
        {9: set(), 11: {LOG_DIR}, LATE: {LOG_DIR}, 212: set()},
    ),
    "reassignments that proceed": Scene(
        {cluster("reassigning_partitions"): f"0x19 900-1x{STEPS - 20}"}, {100: set(), LATE: set()}
    ),
    "reassignments that stand still": Scene(
        {cluster("reassigning_partitions"): from_minute(10, 5, until=210)},
        {100: set(), 140: {STUCK}, LATE: {STUCK}, 212: set()},
    ),
    "min ISR is unknown": Scene(
        {cluster("unknown_min_isr_partitions"): from_minute(10, 40, until=210)},
        {20: set(), 26: {UNKNOWN}, LATE: {UNKNOWN}, 212: set()},
    ),
    "changes of the metadata log are missed": Scene(
        {cluster("missed_changes_total"): from_minute(10, 7)}, {11: {MISSED}, 60: {MISSED}, 100: set()}
    ),
    "changes are missed between polls": Scene(
        {
            cluster("missed_changes_total"): from_minute(10, 7),
            f'cluster_info{{{PROD}, cluster_id="c", primary_source="metadata_log"}}': "",
            f'cluster_info{{{PROD}, cluster_id="c", primary_source="poll"}}': always(1),
        },
        {11: set(), 60: set()},
    ),
    "records are quarantined": Scene(
        {f"quarantined_total{{{PROD}, {LOG}}}": from_minute(10, 7)},
        {11: {"ticket KafkaReplicationRecordsQuarantined"}, 100: set()},
    ),
    "a table cannot be read": Scene(
        {'exporter_table_read_success{table="incidents"}': from_minute(10, 0, before=1, until=210, after=1)},
        {11: set(), 13: {UNREADABLE}, LATE: {UNREADABLE}, 212: set()},
    ),
}


@pytest.fixture(scope="module")
def played(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Play every scene under the rules as they are shipped."""
    return outcomes(tmp_path_factory.mktemp("scenes"), SCENES, files["alerts.yml"])


@pytest.mark.parametrize("name", SCENES)
def test_exactly_these_alerts_fire(name: str, played: dict[str, str]) -> None:
    assert not played[name], played[name]


def test_what_fires_and_is_not_expected_would_be_noticed(files: dict[str, str], tmp_path: Path) -> None:
    offline = Scene({cluster("offline_partitions"): from_minute(2, 4)}, {1: set(), 5: set()})
    beside = Scene({}, {5: set()})
    found = outcomes(tmp_path, {"one": offline, "another": beside}, files["alerts.yml"])
    assert found["one"].startswith("5m:")
    assert "KafkaOfflinePartitions" in found["one"]
    assert found["another"] == ""


def test_where_no_isrwatch_runs_nothing_fires(files: dict[str, str], tmp_path: Path) -> None:
    nothing = Scene({}, {1: set(), LATE: set()}, begin={})
    outcome = run(tmp_path, {".*": nothing}, files["alerts.yml"], every="10m")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


BLIND_SCENES: dict[str, Scene] = {
    "an expected cluster that is fresh": Scene({}, {30: set(), LATE: set()}),
    "an expected cluster becomes stale": Scene(
        stopped_data(10) | {age(OFFSETS): f"3x17 3+30x{STEPS - 18}"},
        {12: {STALE}, 20: {STALE}, 27: {STALE, BLIND}, LATE: {STALE, BLIND}},
    ),
    "an expected cluster that was never there": Scene({}, {10: set(), 20: {BLIND}, LATE: {BLIND}}, begin={}),
}


EXCLUDED = "an excluded topic is in no page and hides nothing"
EXCLUDING_SCENES = {
    EXCLUDED: Scene(
        {
            cluster("offline_partitions"): from_minute(100, 4001, before=1, until=210, after=1),
            f'topic_offline_partitions{{{PROD}, topic="junk-1"}}': always(1),
            f'topic_offline_partitions{{{PROD}, topic="orders"}}': "_x200 4000x219 stale",
            cluster("under_min_isr_partitions"): always(1),
            f'topic_under_min_isr_partitions{{{PROD}, topic="junk-1"}}': always(1),
            refused_seconds("junk-1"): f"0+30x{STEPS}",
        },
        {60: set(), 102: {OFFLINE}, LATE: {OFFLINE}, 215: set()},
    )
}


@pytest.fixture(scope="module")
def played_as_set(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Play the scenes of what users can set, under rules with both settings."""
    settings = AlertSettings(expected_clusters=tuple(BLIND_SCENES), excluded_topics="junk-.*")
    rules = as_yaml(rule_file(settings))
    return outcomes(tmp_path_factory.mktemp("set"), BLIND_SCENES | EXCLUDING_SCENES, rules)


@pytest.mark.parametrize("name", BLIND_SCENES)
def test_an_expected_cluster_without_fresh_data_pages(name: str, played_as_set: dict[str, str]) -> None:
    assert not played_as_set[name], played_as_set[name]


def test_an_excluded_topic_is_in_no_page_and_hides_nothing(played_as_set: dict[str, str]) -> None:
    assert not played_as_set[EXCLUDED], played_as_set[EXCLUDED]


def test_an_election_that_waits_for_another_page_is_still_counted_when_the_wait_is_over() -> None:
    settings = AlertSettings()
    assert settings.election_window == f"{settings.same_trouble // 60}m"


# What a careless change would break: a pattern of the rules, what it becomes, and the scene that must notice.
BROKEN = {
    "a stopped broker counts as lost": (
        "broker_shutting_down) == 1", "broker_shutting_down) == 2",
        "a broker that was stopped on purpose and never returns"),
    "flapping is forgotten": (
        "max_increase30m > 90", "max_increase30m > 9e9", "under min ISR in every other minute, and then no more"),
    "more is no page": ("[6h])) > 0)", "[6h])) > 1e9)", "trouble that is added to an old one is another page"),
    "a lost broker is forgotten while blind": (
        '(ALERTS{alertname="KafkaBrokerLost"', '(ALERTS{alertname="X"',
        "a broker that is lost while the data becomes stale"),
    "a backlog is taken for a lost quorum": (
        'source_query_up{channel="replication"}) == 1', 'source_query_up{channel="replication"}) >= 0',
        "the query of the replication channel is down"),
    "polls count as missed": ('{primary_source="metadata_log"}', "", "changes are missed between polls"),
    "a decommissioned broker is down": (
        "hosted_partitions) > 0", "hosted_partitions) >= 0", "a broker that was decommissioned"),
    "a certificate is noticed too late": (
        "- time() < 1209600", "- time() < 86400", "the certificate of a broker expires soon, and is renewed"),
    "a long reassignment is stuck": ("(changes(", "(0 * changes(", "reassignments that proceed"),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_is_broken_would_be_noticed(name: str, files: dict[str, str], tmp_path: Path) -> None:
    pattern, becomes, scene = BROKEN[name]
    assert pattern in files["alerts.yml"], "this break changes nothing any more: adapt it"
    broken = files["alerts.yml"].replace(pattern, becomes)
    found = outcomes(tmp_path, {scene: SCENES[scene]}, changed_alerts(files["alerts.yml"], broken, SCENES[scene]))
    assert found[scene]


def changed_alerts(rules: str, broken: str, scene: Scene) -> str:
    """Leave of broken rules only what was changed, and what the scene expects: the others take most of the time."""
    before, after = yaml.safe_load(rules), yaml.safe_load(broken)
    expected = {re.split("[ {]", alert)[1] for firing in scene.firing.values() for alert in firing}
    kept = [
        rule
        for old, rule in zip(before["groups"][1]["rules"], after["groups"][1]["rules"], strict=True)
        if old["expr"] != rule["expr"] or rule["alert"] in expected
    ]
    after["groups"][1]["rules"] = kept
    return yaml.safe_dump(after, sort_keys=False)
