"""Common claims about Kafka's replication, Kafka's behaviour, and their differences.

Each statement has a rule in this package (``rule``, as ``module:name``) and a test with ``statement_NN`` in its name.
``isrwatch explain`` prints them.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Statement(NamedTuple):
    """One sentence of the popular texts.

    Attributes:
        claim: what people are told.
        does: what Kafka does.
        differs: where the two part; empty where the sentence is simply right.
        rule: where the model says so, ``module:name``.
    """

    claim: str
    does: str
    differs: str
    rule: str


_CONTROLLER: Final = "streaming.model.controller."
_BROKER: Final = "streaming.model.broker."

STATEMENTS: Final[dict[int, Statement]] = {
    1: Statement(
        "A partition has one leader and replication factor minus one followers.",
        "The replica list has as many members as the replication factor, leader included. The leader is one of them.",
        "There may be no leader at all: then the partition is offline and its leader is -1.",
        "streaming.model.messages.registrations:PartitionRegistration",
    ),
    2: Statement(
        "The replication factor is fixed when a topic is created.",
        "It comes from the request or from default.replication.factor, which is 1.",
        "A reassignment can change it later, partition by partition.",
        f"{_CONTROLLER}change:reassign",
    ),
    3: Statement(
        "With a single broker the replication factor must be 1.",
        "A topic that wants more replicas than there are registered brokers is refused: INVALID_REPLICATION_FACTOR.",
        "Fenced brokers count for placement, although they cannot lead.",
        f"{_CONTROLLER}placement:place",
    ),
    4: Statement(
        "Three brokers, replication factor 3, two partitions: two brokers lead, the third only follows.",
        "Replicas are [1,2,3] and [2,3,1]; the first of each list leads. With three partitions every broker leads one.",
        "",
        f"{_CONTROLLER}placement:assign_replicas",
    ),
    5: Statement(
        "The leader handles all reads and writes; followers never serve clients.",
        "All writes, and by default all reads.",
        "With a rack-aware replica selector and client.rack set, consumers read from a follower nearby (KIP-392).",
        f"{_BROKER}consumer_reads:ConsumerReads",
    ),
    6: Statement(
        "Followers pull from their leader continuously.",
        "Each follower keeps one fetch to each leader open; it waits up to 500 ms for data.",
        "One request carries every partition that two brokers share, and only what changed in it (fetch sessions).",
        f"{_BROKER}following:FollowedPartitions",
    ),
    7: Statement(
        "A record is committed once all in-sync replicas have it; consumers read only committed records.",
        "The high watermark is the smallest log end among the ISR; consumers see what lies below.",
        "Since 3.7 it stands still while the ISR is below min.insync.replicas. Readers of committed transactions stop"
        " earlier, at the last stable offset.",
        f"{_BROKER}leader:LeaderPartition",
    ),
    8: Statement(
        "A message is written to all replicas or to none.",
        "It is written to the leader and then fetched by each follower when it comes to it.",
        "Not so: a record may be on some replicas only. If it was not committed, a new leader truncates it.",
        "streaming.model.storage.log:Log",
    ),
    9: Statement(
        "With n replicas, n - 1 failures are tolerated.",
        "As long as one member of the ISR lives, there is a replica that can lead.",
        "That is availability. Records written with acks=all survive min.insync.replicas - 1 losses of data; writes"
        " continue through ISR size - min.insync.replicas failures.",
        "streaming.contracts.health:effective_min_isr",
    ),
    10: Statement(
        "A replica is in sync if its session lives, it fetched lately, and it caught up lately.",
        "The controller fences a broker whose session ends. The leader drops a follower that was not caught up within"
        " replica.lag.time.max.ms.",
        "Not fetching and fetching too slowly are one rule since 0.9, not two timers.",
        f"{_BROKER}leader:is_caught_up",
    ),
    11: Statement(
        "A broker is dead after 6 seconds without a heartbeat.",
        "broker.session.timeout.ms is 9 s with KRaft; zookeeper.session.timeout.ms is 18 s since 2.5.",
        "6 s was ZooKeeper's default until 2.4. With KRaft a broker is fenced up to an eighth of a session later.",
        f"{_CONTROLLER}membership:Sessions",
    ),
    12: Statement(
        "A follower that lags for 10 seconds leaves the ISR.",
        "replica.lag.time.max.ms is 30 s since 2.5, and 10 s before.",
        "The leader looks each half window, so it takes between one window and one and a half.",
        f"{_BROKER}leader:LeaderPartition",
    ),
    13: Statement(
        "A follower that lags by more than replica.lag.max.messages leaves the ISR.",
        "It did until 0.8.",
        "Removed in 0.9, because every burst of writes made healthy followers leave and come back (KAFKA-1546).",
        f"{_BROKER}leader:is_slow",
    ),
    14: Statement(
        "min.insync.replicas is 1 or 2.",
        "1 by default; a topic or the cluster may set it. It counts the leader.",
        "Never more than there are replicas: the effective minimum is the smaller of the two. 2 suits three replicas.",
        "streaming.contracts.health:effective_min_isr",
    ),
    15: Statement(
        "A replica comes back once its session lives again and it has reached the newest message.",
        "Its fetch must have reached the high watermark and the start of the current leader epoch, and it must be"
        " neither fenced nor leaving.",
        "The high watermark, not the newest message.",
        f"{_BROKER}leader:LeaderPartition",
    ),
    16: Statement(
        "A slow in-sync replica delays every commit; once it is dropped, commits are fast but fewer copies exist.",
        "A commit waits for the slowest member of the ISR, up to one and a half windows.",
        "",
        f"{_BROKER}leader:LeaderPartition",
    ),
    17: Statement(
        "When a leader fails, a follower of the ISR takes over and nothing committed is lost.",
        "The controller elects the first live member of the ISR in the order of the replica list.",
        "",
        f"{_CONTROLLER}change:elect",
    ),
    18: Statement(
        "The first follower that registers in ZooKeeper becomes leader.",
        "It did in the first designs.",
        "The order of the replica list decides, not who registered first.",
        "streaming.model.nodes.zookeeper.leader_and_isr:LeadersAndIsrs",
    ),
    19: Statement(
        "ZooKeeper keeps the leader and the ISR of each partition.",
        "Until 3.9: a znode for each partition, and a controller elected among the brokers.",
        "Removed in 4.0.",
        "streaming.model.nodes.zookeeper.ensemble:Znodes",
    ),
    20: Statement(
        "With KRaft the metadata are a log, __cluster_metadata, replicated by Raft.",
        "The active controller appends batches; they count once a majority of controllers has them.",
        "It is Raft with fetches: followers pull, as replicas do.",
        "streaming.model.nodes.quorum.raft:Raft",
    ),
    21: Statement(
        "Replication is synchronous or asynchronous.",
        "acks=all answers after the whole ISR has the record, acks=1 after the leader has it.",
        "The followers pull in the same way in both cases; only the moment of the answer differs.",
        "streaming.model.clients.producer:Producer",
    ),
    22: Statement(
        "acks is 0, 1 or all.",
        "0: no answer. 1: after the leader's own append. all: once the high watermark has passed the record.",
        "Only acks=all looks at min.insync.replicas: below it the write is refused with NOT_ENOUGH_REPLICAS.",
        "streaming.model.clients.producer:Producer",
    ),
    23: Statement(
        "If the leader dies before it answers, the producer sends again to the new one.",
        "It refreshes its metadata and retries until delivery.timeout.ms.",
        "Without idempotence the record may then stand twice in the log.",
        "streaming.model.clients.producer:Producer",
    ),
    24: Statement(
        "An idempotent producer writes exactly once; a transactional one does so across partitions.",
        "Sequence numbers let a leader recognise the last five batches of a producer.",
        "Within one producer session and one partition. Exactly once from end to end needs transactions and readers of"
        " committed records.",
        "streaming.model.storage.producer_state:ProducerState",
    ),
    25: Statement(
        "__consumer_offsets is replicated and read after a rebalance.",
        "50 partitions, replication factor 3, compacted. A commit is a write with acks=all to it.",
        "The coordinator serves offsets from memory; it reads the partition when it becomes its leader.",
        "streaming.model.coordinators.groups:GroupCoordinator",
    ),
    26: Statement(
        "__transaction_state keeps the state of transactions.",
        "50 partitions, replication factor 3, min ISR 2, compacted; unclean election is off whatever the cluster says.",
        "",
        "streaming.model.coordinators.transactions:TransactionCoordinator",
    ),
    27: Statement(
        "Kafka Streams backs its state stores with changelog topics.",
        "One compacted topic for each store, with as many partitions as the source.",
        "Ordinary topics: they are only as safe as their replication.factor, which an application chooses.",
        "streaming.model.coordinators.internal_topics:changelog",
    ),
    28: Statement(
        "Kafka Connect keeps __config, __status and __offsets.",
        "Three compacted topics: one partition for configurations, 5 for states, 25 for offsets.",
        "Their names are configured; connect-configs, connect-status and connect-offsets are the usual ones.",
        "streaming.model.coordinators.internal_topics:connect",
    ),
    29: Statement(
        "Each partition is a set of log segments, which are not duplicated on the same broker.",
        "At most one replica of a partition is on a broker.",
        "While a replica moves between two directories of one broker, a second copy exists for a time.",
        "streaming.model.storage.disk:Disk",
    ),
    30: Statement(
        "A partition lies on one disk, which is online or offline.",
        "One log directory holds a whole replica. If it fails, that replica is offline; the broker continues.",
        "",
        "streaming.model.storage.disk:Disk",
    ),
    31: Statement(
        "Without a key records go round robin; with a key, by its hash.",
        "With a key: murmur2 of it, modulo the number of partitions.",
        "Without one: sticky batches since 2.4, which since 3.3 favour fast brokers. Round robin is history.",
        "streaming.model.clients.partitioner:partition_for_key",
    ),
    32: Statement(
        "Each partition is read by one consumer of a group; when it fails, the group rebalances.",
        "The coordinator gives each partition to one member for one generation.",
        "",
        "streaming.model.coordinators.groups:GroupCoordinator",
    ),
    33: Statement(
        "If a broker fails, Kafka reassigns its partitions.",
        "Leaders and ISRs change.",
        "Replica lists do not: they stay until an operator reassigns them.",
        f"{_CONTROLLER}change:build",
    ),
    34: Statement(
        "Replication factor 3 on three brokers survives two failures.",
        "With min.insync.replicas 1, reads and writes continue with one broker left.",
        "With 2, writes with acks=all stop after the second failure; with 1 they continue, but on one copy.",
        f"{_BROKER}leader:LeaderPartition",
    ),
    35: Statement(
        "Who watches ISR shrinks sees lag.",
        "Shrinks have many causes: lag, a fenced broker, a clean stop, a failed disk, a stalled leader.",
        "The brokers' own counters see only those a leader asked for. Count by cause, from the metadata log.",
        "streaming.contracts.events:Cause",
    ),
    36: Statement(
        "A partition is an ordered, immutable sequence; each record has its offset in it.",
        "Offsets grow within a partition and are never used twice for committed records.",
        "There is no order across partitions. Compaction leaves gaps, and markers of transactions take offsets.",
        "streaming.model.storage.log:Log",
    ),
    37: Statement(
        "Each replica keeps its log on disk and syncs it from time to time.",
        "By default nothing forces a sync: the operating system writes when it likes.",
        "Replication makes records durable, not the disk. A power loss may take what was not synced.",
        "streaming.model.storage.disk:Disk",
    ),
    38: Statement(
        "Consumers scale by adding partitions.",
        "A group has at most one member for each partition.",
        "Members beyond that stay idle. Share groups (4.x) lift the limit.",
        "streaming.model.coordinators.assignors:round_robin",
    ),
    39: Statement(
        "Three brokers, replication factor 3, two partitions: if a leader fails, broker 3 becomes leader.",
        "The next live member of the ISR in the order of the replica list: 2 for [1,2,3], 3 for [2,3,1].",
        "True for one of the two partitions only.",
        f"{_CONTROLLER}change:elect",
    ),
}
