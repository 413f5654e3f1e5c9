"""``isrwatch simulate``: a scenario as a timeline, for people and for machines."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import CliRunner

from streaming.commands import app
from streaming.resources import conf_path

SCENARIOS = sorted(path.stem for path in conf_path("scenarios").glob("*.toml"))


def simulated(*words: str) -> list[str]:
    run = CliRunner().invoke(app, ["simulate", *words])
    assert run.exit_code == 0, run.output
    return run.output.splitlines()


def test_the_timeline_of_a_lost_broker_reads_like_its_story(golden: Callable[[str, str], None]) -> None:
    golden("simulate_broker_loss.txt", "\n".join(simulated("broker_loss")) + "\n")


def test_every_step_has_a_line_of_its_own_on_demand() -> None:
    lines = simulated("broker_loss", "--for", "9s", "--steps")
    assert "    8.750  orders-2         isr 3,4,5 -> 4,5; leader 3 -> 4 (epoch 1)  [fenced]" in lines
    assert sum("[fenced]" in line for line in lines) == 28


def test_programs_get_one_document_with_an_entry_on_each_line() -> None:
    lines = simulated("broker_loss", "--for", "9s", "-o", "json")
    document = json.loads("\n".join(lines))
    assert len(lines) == len(document["entries"]) + 2
    assert document["truth"]["incidents"][0]["suspects"] == [3]
    assert document["entries"][0] == {"at": 3.0, "subject": "fault", "what": "kill broker 3"}
    assert document["partitions"]["orders-0"]["isr"] == [1, 2]
    steps = {entry["subject"]: entry for entry in document["entries"] if "cause" in entry}
    assert {entry["cause"] for entry in steps.values()} == {"fenced"}
    assert steps["orders-0"]["after"]["isr"] == [1, 2]


def test_the_same_seed_tells_the_same_story() -> None:
    words = ("broker_loss", "--seed", "5", "--for", "9s", "-o", "json")
    assert simulated(*words) == simulated(*words)


def test_without_a_scenario_all_are_listed() -> None:
    assert [line.split()[0] for line in simulated()] == SCENARIOS


def test_lost_records_are_reported_with_their_excuse() -> None:
    assert any("acknowledged records lost: unclean_election  [loss]" in line for line in simulated("unclean_election"))


def test_the_invariants_are_checked_on_demand() -> None:
    assert simulated("broker_loss", "--for", "9s", "--check")[-1].endswith(
        "invariants held after every step, 0 did not"
    )


def test_an_unknown_scenario_is_one_sentence() -> None:
    run = CliRunner().invoke(app, ["simulate", "zork"])
    assert (run.exit_code, run.stderr.startswith("there is no scenario zork; use one of broker_loss, ")) == (2, True)


def test_the_promises_to_groups_are_checked_on_demand() -> None:
    last = simulated("consumer_groups", "--for", "20s", "--check")[-1]
    assert last == "9 invariants of groups held each second, 0 did not"


def test_versions_are_compared_in_a_table() -> None:
    heading, *rows = simulated("--presets")
    assert heading.split() == ["kraft-4.x", "kraft-3.9", "zk-3.x", "legacy-2.4", "legacy-0.8"]
    assert "replica_lag_time_max_ms\t30000\t\t\t10000\t10000" in rows
