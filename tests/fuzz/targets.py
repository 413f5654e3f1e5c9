"""What reads bytes from outside, and what must be true of whatever it makes of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random
from typing import Final, Protocol
from unittest.mock import patch

from streaming import settings
from streaming.bus import frames
from streaming.changes.fold import fold
from streaming.changes.state import ReplicationState
from streaming.contracts.codec import decode, encode
from streaming.contracts.identifiers import BrokerId, ClusterId, Micros
from streaming.contracts.observations import Channel, Observation, SourceKind
from streaming.contracts.samples import BrokerMetricObserved
from streaming.errors import ConfigurationError, InvalidObservation, NewerFormat
from streaming.sources import broker_metrics
from streaming.sources.simulated import SimulatedSource, load_scenario
from tests.fuzz.mutation import odd_bytes, odd_json
from tests.test_settings import uncommented

ROOT: Final = Path(__file__).parents[2]
LOG: Final = ROOT / "tests" / "fixtures" / "metadata_log"
REFUSED, QUARANTINED, VALUE = "refused", "quarantined", "a value"
EPOCH: Final = 1_700_000_000_000_000


class Target(Protocol):
    """Reads bytes from outside."""

    name: str
    weight: int

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        """Draw valid bytes and damage them; inside, so that lengths and checksums around the damage are right."""

    def outcome(self, data: bytes) -> str:
        """Read bytes, check what is made of them, and return which of the three it is."""


@cache
def observations() -> tuple[Observation, ...]:
    """Return what simulated clusters report under faults, of every kind they report."""
    found: list[Observation] = []
    for scenario in ("broker_loss+reassignment", "network_split", "hanging_transaction"):
        source = SimulatedSource(
            load_scenario(scenario), seed=5, cluster_id=ClusterId("fuzz"), cluster="fuzz", name="metadata_log:a",
            epoch=Micros(EPOCH),
        )  # fmt: skip
        for second in range(0, 60, 2):
            found += source.poll(Micros(EPOCH + second * 1_000_000))
    return tuple(found)


def checked(seen: Iterable[Observation]) -> None:
    """Check that observations survive the bus, and that the fold takes them, in any order and twice."""
    every = list(seen)
    for observed in every:
        assert decode(encode(observed)) == observed
    state = ReplicationState()
    replicated = [observed for observed in every if observed.channel is Channel.REPLICATION]
    for batch in (replicated, replicated[::-1]):
        folded = fold(state, batch)
        state.apply(folded.touched)
    for partition in state.partitions():
        seconds = (partition.offline_seconds, partition.under_replicated_seconds, partition.under_min_isr_seconds)
        assert all(math.isfinite(each) and each >= 0 for each in seconds), partition


class Observations:
    """Records of the bus: JSON."""

    name, weight = "observations", 50

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        payload = encode(dice.choice(observations()))
        if not inside:
            return odd_bytes(dice, payload)
        text = json.dumps(odd_json(dice, json.loads(payload)), separators=(",", ":"), ensure_ascii=dice.random() < 0.5)
        return text.encode(errors="surrogatepass")

    def outcome(self, data: bytes) -> str:
        try:
            observed = decode(data)
        except InvalidObservation:
            return QUARANTINED
        except NewerFormat:
            return REFUSED
        checked([observed])
        return VALUE


class Frames:
    """Pieces of a log of the bus."""

    name, weight = "frames", 20

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        payloads = [encode(dice.choice(observations())) for _ in range(dice.randint(1, 5))]
        if inside:
            at = dice.randrange(len(payloads))
            odd = odd_bytes(dice, payloads[at])
            payloads[at] = odd if frames.MAGIC not in odd else b""
        data = b"".join(map(frames.encode_frame, payloads))
        return data if inside else odd_bytes(dice, data)

    def outcome(self, data: bytes) -> str:
        items, covered = frames.parse(data, 7, closed=True)
        assert covered == len(data)
        position = 7
        for item in items:
            assert item.position == position
            position = item.end
        assert position == len(data) + 7
        cut = len(data) // 2
        first, until = frames.parse(data[:cut], 7, closed=False)
        rest, _ = frames.parse(data[until:], 7 + until, closed=True)
        assert first + rest == items, "the result depends on where a buffer is cut"
        outcome = VALUE
        for item in items:
            if isinstance(item, frames.DamagedRange):
                outcome = QUARANTINED
                continue
            try:
                decode(item.payload)
            except (InvalidObservation, NewerFormat):
                outcome = QUARANTINED
        return outcome


class Pages:
    """Responses of the brokers' metrics exporters."""

    name, weight = "metrics pages", 4
    _client = broker_metrics.client_from({})
    _LINES = (
        "# HELP kafka_server_replicamanager_total_isrshrinkspersec_count x",
        "# TYPE kafka_server_replicamanager_total_isrshrinkspersec_count untyped",
        "kafka_server_replicamanager_total_isrshrinkspersec_count 3.0",
        'kafka_server_replicafetchermanager_value{clientId="Replica",name="MaxLag",} 17.0',
        'kafka_server_replicamanager_value{name="UnderReplicatedPartitions",} 4.0',
        "kafka_server_brokertopicmetrics_total_messagesinpersec_count 1.5E7",
        'kafka_log_logmanager_value{name="OfflineLogDirectoryCount",} 0.0 1700000000000',
    )

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        lines = [dice.choice(self._LINES) for _ in range(dice.randint(1, 9))]
        if inside:
            at = dice.randrange(len(lines))
            lines[at] = odd_bytes(dice, lines[at].encode()).decode(errors="replace")
        text = "\n".join([*lines, ""]).encode()
        return text if inside else odd_bytes(dice, text)

    def outcome(self, data: bytes) -> str:
        with patch.object(broker_metrics, "_body", lambda *_: data.decode("utf-8", errors="replace")):
            try:
                found = broker_metrics.scrape("http://h:1/metrics", 1.0, self._client)
            except ValueError:
                return REFUSED
        for metric, value in (item for metrics in (found.own, *found.of_brokers.values()) for item in metrics.items()):
            checked([
                BrokerMetricObserved(
                    cluster_id=ClusterId("fuzz"), cluster="fuzz", source="metrics:a", occurred_not_before=Micros(EPOCH),
                    occurred_not_after=Micros(EPOCH), collected_at=Micros(EPOCH), broker=BrokerId(1), metric=metric,
                    metric_value=value, source_kind=SourceKind.NONE,
                )
            ])  # fmt: skip
        return VALUE if found.own else QUARANTINED


class Configurations:
    """Configuration files."""

    name, weight = "configurations", 3

    def __init__(self) -> None:
        self._lines = [line for line in uncommented().splitlines() if line]

    def mutated(self, dice: Random, *, inside: bool) -> bytes:
        lines = list(self._lines)
        if inside:
            at = dice.choice([place for place, line in enumerate(lines) if "=" in line])
            key = lines[at].split("=")[0]
            lines[at] = f"{key}= {dice.choice(self._VALUES)}"
        text = "\n".join(lines).encode()
        return text if inside else odd_bytes(dice, text)

    _VALUES = (
        "-1", "0", "1e400", "nan", "inf", "-inf", '""', "true", "[]", "[1]", '["a"]', "{}", '{a = "b"}', "2023-11-14",
        "99999999999999999999", '"auto"', "0.0", "1_0", "'x'", "07:32:00",
    )  # fmt: skip

    def outcome(self, data: bytes) -> str:
        with patch.object(Path, "read_text", lambda *_, **__: data.decode()):
            try:
                loaded = settings.load(Path("x.toml"))
            except ConfigurationError as error:
                refusal = str(error)
            else:
                assert loaded.collect.poll_interval > 0
                return VALUE
        assert "\n" not in refusal.strip(), "more than one line"
        return REFUSED
