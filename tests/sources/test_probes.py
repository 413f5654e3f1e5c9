"""Names that isrwatch asks for on purpose: denied ten times, they are asked for once per hour, or after a change."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from streaming.contracts.identifiers import BrokerId, Micros
from streaming.errors import ConfigurationError, ConnectionRefused
from streaming.settings import CollectSettings, load
from streaming.sources.permissions import DESCRIBE_CLUSTER, MOST_REFUSALS, SELDOM_MICROS, PermissionDenied, Probe
from streaming.sources.polling import metadata as metadata_module
from streaming.sources.polling.broker import BrokerReply
from streaming.sources.protocol.addresses import Address, Peers
from streaming.sources.samples.groups.described import DescribedGroup, describe_groups
from streaming.sources.samples.kind import BrokerAnswer
from streaming.sources.samples.source import SamplesSource, kinds_of
from streaming.sources.samples.transactions import PROBED, open_transactions
from tests.sources.samples.test_group_encoding import Coordinator as GroupCoordinator
from tests.sources.samples.test_group_encoding import described
from tests.sources.samples.test_transaction_messages import Coordinator as TransactionCoordinator
from tests.sources.test_admin_doubts import NatCluster, polled, started


def asked(probe: Probe, now: int) -> bool:
    is_due = probe.take_due(now)
    if is_due:
        probe.note(now, is_denied=True)
    return is_due


def test_ten_refusals_then_one_per_hour() -> None:
    probe = Probe("n")
    assert sum(asked(probe, second * 1_000_000) for second in range(3_600)) == MOST_REFUSALS
    hours = [second for second in range(3_600, 4 * 3_600) if asked(probe, second * 1_000_000)]
    assert len(hours) == 3
    assert probe.is_denied


def test_another_answer_that_changes_makes_it_due_once_and_one_that_is_no_refusal_begins_again() -> None:
    probe = Probe("n")
    for _ in range(MOST_REFUSALS):
        asked(probe, 0)
    assert not asked(probe, 1)
    probe.expire()
    assert asked(probe, 2)
    assert not asked(probe, 3)
    probe.expire()
    assert probe.take_due(4)
    probe.note(4, is_denied=False)
    assert not probe.is_denied
    assert sum(asked(probe, 5) for _ in range(100)) == MOST_REFUSALS


def test_a_topic_that_is_denied_is_asked_for_ten_times_and_then_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that does not exist, and those that were visible before: a poll asks every second or so."""
    cluster = NatCluster()
    names: list[str] = []
    answer = cluster.answer

    def watched(address: Address, listed_before: Collection[str]) -> BrokerReply:
        names.extend(set(listed_before) - set(cluster.topics))
        return answer(address, listed_before)

    monkeypatch.setattr(cluster, "answer", watched)
    monkeypatch.setattr(metadata_module, "ELSEWHERE_EVERY", Micros(0))
    with started(cluster) as (polls, view):
        cluster.topics.remove("payments")
        cluster.denied = {"payments", metadata_module.NO_TOPIC}
        for _ in range(3 * MOST_REFUSALS):
            polls.elsewhere_due.expire()
            after = polled(polls, view).view
            assert after.topics == view.topics
            assert after.hidden == {"payments"}
        assert names.count("payments") == MOST_REFUSALS
        assert names.count(metadata_module.NO_TOPIC) <= MOST_REFUSALS + 1
        assert "topic payments" in str(polls.refusals[0])
        assert "topics of other names" in str(polls.refusals[1])
        cluster.denied = set()
        cluster.topics.append("payments")
        polled(polls, view)
        assert polls.refusals[0] is None
        polls.elsewhere_due.expire()
        polled(polls, view)
        assert polls.refusals[1] is None  # another topic is visible again: so it is asked for at once


def test_a_group_and_a_transactional_id_are_denied_as_they_were_while_they_are_not_asked_for() -> None:
    groups, probe, asked_for = {"a": DescribedGroup("classic", "Stable")}, Probe("mine-group"), list[bool]()
    for _ in range(MOST_REFUSALS + 5):
        asked_for.append(not probe.is_denied or probe.refusals < MOST_REFUSALS)
        rows = [{"group_id": "a", "group_state": "Stable"}]
        rows += [{"group_id": "mine-group", "error_code": 30, "group_state": ""}] if asked_for[-1] else []
        coordinator: Any = GroupCoordinator({15: 6}, {15: described(6, rows)})
        assert describe_groups(coordinator, groups, probe)[1] == ("mine-group",)
        assert (b"mine-group" in coordinator.sent[15]) is asked_for[-1]
    assert sum(asked_for) == MOST_REFUSALS
    probe = Probe(PROBED)
    for number in range(MOST_REFUSALS + 5):
        opened: Any = TransactionCoordinator({"a": ("Ongoing", 1, 1, 1, 0, {})}, errors={PROBED: 53})
        answered = open_transactions(opened, probe)
        assert (answered.is_denied, answered.is_complete, len(answered.transactions)) == (True, False, 1)
        assert (PROBED.encode() in opened.asked[1]) is (number < MOST_REFUSALS)


def test_a_changed_answer_of_another_kind_of_sample_makes_them_due() -> None:
    def source() -> SamplesSource:
        return SamplesSource(
            [Address("h", 1)],
            lambda *_, **__: None,  # type: ignore[arg-type, return-value]
            lambda: kinds_of(CollectSettings(probe_prefix="mine-"), print),
            cluster="c",
            name="samples:c",
            view_micros=Micros(1),
            peers=Peers(),
        )

    made = source()
    probes = [kind.probe for kind in made.kinds if hasattr(kind, "probe")]
    assert [probe.name for probe in probes] == ["mine-group", "mine-transaction"]
    for probe in probes:
        for _ in range(MOST_REFUSALS):
            asked(probe, SELDOM_MICROS)
    directories = BrokerAnswer("directories", BrokerId(1), Micros(0))

    def due_after(refusal: ConnectionRefused | None) -> list[bool]:
        made._note(directories, refusal)
        return [asked(probe, SELDOM_MICROS + 1) for probe in probes]

    assert due_after(None) == [False, False]
    assert due_after(PermissionDenied(DESCRIBE_CLUSTER)) == [True, True]
    assert due_after(PermissionDenied(DESCRIBE_CLUSTER)) == [False, False]
    assert due_after(None) == [True, True]
    made.close()


@pytest.mark.parametrize("prefix", ["", "two words", "a" * 201])
def test_a_prefix_that_is_none_is_named(prefix: str, tmp_path: Path) -> None:
    file = tmp_path / "isrwatch.toml"
    file.write_text(f'[collect]\nprobe_prefix = "{prefix}"\n')
    with pytest.raises(ConfigurationError, match=r"^collect\.probe_prefix is "):
        load(file)
