"""Every alert as a row: see ``alert_cases``.

Of rows whose step is longer than Prometheus' look-back of five minutes nothing is said of blind times: an alert
continues by its own series.
"""

from __future__ import annotations

from typing import Final

from tests.dashboards.alert_cases import (
    COUNT,
    DAY,
    DISK,
    DOWN,
    FLAG,
    LEFT,
    LISTENER,
    LOG,
    NOT_READ,
    OF_BROKER,
    OF_GROUP,
    ON_TOPIC,
    PROD,
    READ,
    UP,
    AlertCase,
    agent,
    broker,
    cluster,
    directory,
    group,
    over,
    removals,
    starts,
    turns,
    under,
)

INCIDENT: Final = 'incident="i1", class="broker_loss", severity="critical", suspects="3"'
PARTITION: Final = f'{{{PROD}, topic="orders", partition="0"}}'

PAGES: Final = (
    AlertCase("page KafkaOfflinePartitions", (cluster("offline_partitions"),), *COUNT, 1),
    AlertCase("page KafkaOfflinePartitions", (f"partition_offline_seconds_total{PARTITION}",), 10, 0,
              ("0x39 0+1x80 80x10", False), after=8, slope=True, goes_on=None),
    AlertCase("page KafkaUnderMinIsr", (cluster("under_min_isr_partitions"),), *COUNT, 1),
    AlertCase("page KafkaUnderMinIsr", (f"partition_under_min_isr_seconds_total{PARTITION}",), 10, 0,
              ("0x39 0+1x80 80x10", False), after=8, slope=True, goes_on=None),
    AlertCase("page KafkaMorePartitionsUnavailable", (cluster("offline_partitions"),), 400, 1, (2, True), 1, calm=1),
    AlertCase("page KafkaUncleanElection", (cluster("unclean_elections_total"),), *COUNT, goes_on=None),
    AlertCase("page KafkaNoController", (f"source_age_seconds{{{PROD}, {LOG}}}", cluster("state_age_seconds")),
              *over(60), 1, goes_on=None,
              beside={f'source_age_seconds{{{PROD}, channel="samples", source="offsets:c1"}}': 3,
                      f"source_query_up{{{PROD}, {LOG}}}": 1, f"source_behind_bytes{{{PROD}, {LOG}}}": 0}),
    AlertCase(f"page KafkaBrokerLost{OF_BROKER}", (broker("missing_at_min_isr_partitions"),), *COUNT, 5,
              beside=UP | {broker("fenced"): 1}),
    AlertCase(f"page KafkaDiskFillsUp{OF_BROKER}", (directory("usable_bytes"),), *under(5), 10, calm=50, beside=DISK),
    AlertCase(f"page KafkaDiskFillsUp{OF_BROKER}", (directory("until_full_seconds"),), *under(7200), 10, calm=9e6,
              beside=DISK | {directory("usable_bytes"): 9}),
    AlertCase(f"page KafkaGroupLosesRecords{OF_GROUP}", (group("lost_records", ON_TOPIC),), *COUNT, 5, beside=READ),
    # Of 100 partitions 43.2 s in each half minute are 1.44 % of the time.
    AlertCase("page KafkaAvailabilityBurnsFast", (cluster("under_min_isr_seconds_total"),), 45, 43, (44, True), 2,
              after=57.5, slope=True, goes_on=None,
              beside={cluster("partitions"): 100, cluster("offline_seconds_total"): 0}),
)  # fmt: skip

BLIND: Final = AlertCase(
    "page KafkaReplicationMonitorBlind", (cluster("state_age_seconds"),), *over(60), 15, calm=2, goes_on=None,
    missing_fires=True,
)  # fmt: skip
"""Of rules with an expected cluster."""

ABOUT_BROKERS: Final = (
    AlertCase(f"ticket KafkaUnderReplicated{OF_BROKER}", (broker("missing_from_isr_partitions"),), *COUNT, 15,
              beside=UP),
    AlertCase(f"ticket KafkaBrokerDown{OF_BROKER}", (broker("fenced"),), *FLAG, 15, beside=UP),
    AlertCase(f"ticket KafkaBrokerStopped{OF_BROKER}", (broker("fenced"),), *FLAG, 60,
              beside=UP | {broker("shutting_down"): 1}, step=60),
    AlertCase(f"ticket KafkaIsrFlapping{OF_BROKER}", (LEFT,), removals(9), removals(5), (removals(6), True), after=32,
              goes_on=None),
    AlertCase(f"ticket KafkaBrokerFencedThoughUp{OF_BROKER}", (broker("fenced"),), *FLAG, 5,
              beside=UP | {f"isrwatch_collector_listener_up{{{PROD}, {LISTENER}}}": 1}),
    AlertCase(f"ticket KafkaBrokerRestartLoop{OF_BROKER}", (broker("fenced"),), turns(16), turns(9),
              (turns(10), False), after=9),
    AlertCase(f"ticket KafkaBrokerRestartLoop{OF_BROKER}", (broker("epoch"),), starts(8), starts(4),
              (starts(5), False), after=9),
    AlertCase(f"ticket KafkaBrokerSlow{OF_BROKER}", (broker("slow"),), *FLAG, 10,
              beside=UP | {broker("response_seconds"): 0.3}),
    AlertCase("ticket KafkaBrokersOverloaded", (broker("overloaded"),), *FLAG, 15,
              beside={broker("response_seconds"): 0.3}),
    AlertCase(f"ticket KafkaMaintenanceOverrun{OF_BROKER}", (broker("maintenance_overrun"),), *FLAG, 5),
    AlertCase(f"ticket KafkaLogDirOffline{OF_BROKER}", (broker("online_log_dirs"),), 0, 2, (1, True), calm=2),
    AlertCase(f"ticket KafkaDiskNearlyFull{OF_BROKER}", (directory("usable_bytes"),), *under(15), 30, calm=50,
              beside=DISK),
    AlertCase(f'info KafkaIsrShrink{{{PROD}, broker="3", cause="lag"}}', (LEFT,), *COUNT, goes_on=None),
    AlertCase("info KafkaBrokerGone", (cluster("brokers"),), 1, 3, (2, True), 15, calm=3),
    AlertCase(f"info KafkaBrokerSkewed{OF_BROKER}", (broker("led_partitions"),), *over(200), 60, calm=100, step=60,
              beside={broker("led_partitions", 1): 100, broker("led_partitions", 2): 100,
                      cluster("under_replicated_partitions"): 0}),
    AlertCase(f"info KafkaBrokerManyPartitions{OF_BROKER}", (broker("hosted_partitions"),), *over(4000), 60, step=60),
)  # fmt: skip

ABOUT_CLUSTERS: Final = (
    AlertCase("ticket KafkaReassignmentStuck", (cluster("reassigning_partitions"),), 5, 0, (1, True), after=121,
              step=60),
    AlertCase("ticket KafkaControllersFlap", (cluster("controller_changes_total"),), 9, 4, (5, True), goes_on=None),
    AlertCase("ticket KafkaQuorumVoterBehind", (f'quorum_member_behind_seconds{{{PROD}, node="102"}}',), *over(60), 5,
              beside={f'quorum_member_voter{{{PROD}, node="102"}}': 1, broker("maintenance", 102): 0}),
    AlertCase("ticket KafkaPreferredLeaderImbalance", (cluster("off_preferred_leader_partitions"),), *over(10), 30,
              beside={cluster("partitions"): 100, cluster("under_replicated_partitions"): 0}),
    # Of 100 partitions 180 s in each half hour are a thousandth of the time.
    AlertCase("ticket KafkaAvailabilityBurns", (cluster("under_min_isr_seconds_total"),), 200, 179, (181, True),
              after=73 * 60, slope=True, step=1800, goes_on=None,
              beside={cluster("partitions"): 100, cluster("offline_seconds_total"): 0}),
    AlertCase("ticket KafkaTopicsMisconfigured", (f'cluster_weak_topics{{{PROD}, weakness="not_compacted"}}',),
              *COUNT, 30),
    AlertCase("info KafkaTopicsNotDurable", (f'cluster_weak_topics{{{PROD}, weakness="min_isr_one"}}',), *COUNT, 30),
    AlertCase("ticket KafkaThrottleLeft", (cluster("left_throttles"),), *COUNT, 60, step=60),
    AlertCase("ticket KafkaVersionsMixed", (cluster("older_version_brokers"),), *COUNT, 24 * 60, step=1800,
              goes_on=None),
    AlertCase("info KafkaUpgradeUnfinished", (cluster("unfinished_upgrade"),), *FLAG, 7 * 24 * 60, step=7200,
              goes_on=None),
    AlertCase("ticket KafkaMinIsrUnknown", (cluster("unknown_min_isr_partitions"),), *COUNT, 15),
    AlertCase("ticket KafkaHangingTransaction", (cluster("hanging_transactions"),), *COUNT, 5),
    AlertCase(f'info KafkaIncident{{{PROD}, incident="i1", class="broker_loss"}}',
              (f"incident_opened_timestamp_seconds{{{PROD}, {INCIDENT}}}",), 1.7e9, 0, (1, True)),
    AlertCase(f'info KafkaInternalTopicUnavailable{{{PROD}, topic="__consumer_offsets"}}',
              (f'topic_under_min_isr_partitions{{{PROD}, topic="__consumer_offsets"}}',), *COUNT, 1),
)  # fmt: skip

ABOUT_AGENTS: Final = (
    AlertCase(f"ticket KafkaReplicaFetcherFailed{OF_BROKER}",
              (agent("server_replicafetchermanager_failedpartitionscount"),), *COUNT, 5),
    *(
        AlertCase(f"ticket KafkaMetadataErrors{OF_BROKER}", (agent(name),), *COUNT, goes_on=goes_on)
        for name, goes_on in (
            ("server_broker_metadata_metrics_metadata_load_error_count", True),
            ("server_broker_metadata_metrics_metadata_apply_error_count", None),
            ("controller_kafkacontroller_metadataerrorcount", None),
        )
    ),
    AlertCase(f"info KafkaBrokerRecovering{OF_BROKER}", (agent("log_logmanager_remaininglogstorecover"),), *COUNT, 1,
              goes_on=False),
)  # fmt: skip

ABOUT_GROUPS: Final = (
    AlertCase(f"ticket KafkaGroupStuck{OF_GROUP}", (group("lag_at_least_seconds", ON_TOPIC),), 30, 28, (28.5, True),
              after=15, slope=True, beside=READ),
    AlertCase(f"ticket KafkaGroupLagGrows{OF_GROUP}", (group("lag_at_least_seconds", ON_TOPIC),), 5, 1.9, (2, False),
              15, after=6.5, calm=400, slope=True, beside=READ),
    AlertCase(f"ticket KafkaGroupNearRetention{OF_GROUP}", (group("retention_used_ratio", ON_TOPIC),), 0.81, 0.79,
              (0.8, False), 30, calm=0.5, beside={**READ, group("lost_records", ON_TOPIC): 0}),
    AlertCase(f"ticket KafkaStoppedGroupLosesRecords{OF_GROUP}", (group("lost_records", ON_TOPIC),), *COUNT, 15,
              beside=NOT_READ),
)  # fmt: skip

ABOUT_THE_MONITOR: Final = (
    AlertCase("ticket KafkaReplicationChangesMissed", (cluster("missed_changes_total"),), *COUNT, goes_on=None,
              beside={f'cluster_info{{{PROD}, cluster_id="c", primary_source="metadata_log"}}': 1}),
    AlertCase("ticket KafkaReplicationRecordsQuarantined", (f"quarantined_total{{{PROD}, {LOG}}}",), *COUNT,
              goes_on=None),
    AlertCase("ticket KafkaReplicationMonitorStale", (cluster("state_age_seconds"),), *over(60), 1, calm=2,
              goes_on=None),
    AlertCase(f'ticket KafkaReplicationJobQueryDown{{{PROD}, channel="replication"}}',
              (f"source_report_age_seconds{{{PROD}, {LOG}}}",), *over(60), 2, goes_on=None),
    AlertCase('ticket KafkaReplicationTableUnreadable{table="incidents"}',
              ('exporter_table_read_success{table="incidents"}',), *DOWN, 2, calm=1, goes_on=None),
    AlertCase(f'ticket KafkaReplicationSourceRefused{{{PROD}, source="metadata_log:c1"}}',
              (f'isrwatch_collector_source_up{{{PROD}, source="metadata_log:c1"}}',), *DOWN, 10, calm=1,
              goes_on=None),
    # Scenes begin at the epoch; the boundary is reached at the last step.
    AlertCase("ticket KafkaReplicationCertificateExpires",
              (f"isrwatch_collector_listener_certificate_expiry_timestamp_seconds{{{PROD}, {LISTENER}}}",), 14 * DAY,
              14 * DAY + 3600, (14 * DAY + 44 * 30, False), calm=90 * DAY, goes_on=None),
    AlertCase("ticket KafkaReplicationSamplesStale", (f'newest_sample_age_seconds{{{PROD}, table="groups"}}',),
              *over(900), 5, goes_on=None),
    AlertCase("ticket KafkaReplicationSourceStopped", (f"source_age_seconds{{{PROD}, {LOG}}}",), *over(300), 5,
              goes_on=None),
    AlertCase('ticket KafkaReplicationProgramDown{job="isrwatch-job", instance="job:9309"}',
              ('up{job="isrwatch-job", instance="job:9309"}',), *DOWN, 15, calm=1, goes_on=None),
    AlertCase('ticket KafkaReplicationIncidentsQueryDown{query="incidents"}',
              ('isrwatch_job_query_up{query="incidents"}',), *DOWN, 2, calm=1, goes_on=None),
    AlertCase("ticket KafkaReplicationSeriesNearLimit{}", ("exporter_series",), *over(400_000), 15, goes_on=None),
)  # fmt: skip

ROWS: Final = (*PAGES, *ABOUT_BROKERS, *ABOUT_CLUSTERS, *ABOUT_AGENTS, *ABOUT_GROUPS, *ABOUT_THE_MONITOR)
