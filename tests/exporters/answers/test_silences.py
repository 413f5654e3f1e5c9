"""The link that silences an incident: read back as Alertmanager's page reads it, and matched by Alertmanager itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from exporters.answers.silences import matchers_of, silence_link
from streaming.escapes import json_text

NAMES = (
    "prod",
    "eu.west-1",
    "a b&c=d+e",
    "100%",
    'say "hi"',
    "back\\slash",
    "{a}",
    "x|y",
    "[1]",
    "^$.*?()",
    "é😀",
    "#/?",
)
LINK = "http://alerts.example/am/#/silences/new?"


def parameters(link: str) -> dict[str, str]:
    """Read the parameters as Alertmanager's page does: behind ``?`` in the fragment, percent-decoded, no ``+``."""
    path, _, query = urlsplit(link).fragment.partition("?")
    assert path == "/silences/new"
    return {name: unquote(value) for name, _, value in (each.partition("=") for each in query.split("&"))}


def test_without_the_address_of_alertmanager_there_is_no_link() -> None:
    assert silence_link("", "prod", ["prod-17"]) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_link_carries_the_matchers_and_the_comment_whatever_the_cluster_is_called(name: str) -> None:
    link = silence_link("http://alerts.example/am/", name, [f"{name}-17"], f"{name}: known")
    assert link is not None
    assert link.startswith(LINK)
    assert not set(link.removeprefix(LINK)) & set(" \"'<>{}[]|\\^`+#?")
    assert parameters(link) == {"filter": matchers_of(name, [f"{name}-17"]), "comment": f"{name}: known"}


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "\ud800"])
def test_a_name_that_cannot_be_printed_breaks_no_link(name: str) -> None:
    link = silence_link("http://alerts.example", name, [f"{name}-1"])
    assert link is not None
    assert link.isascii()
    assert link.isprintable()


def _receiver(folder: Path, matchers: str, labels: dict[str, str]) -> str:
    """Route an alert as Alertmanager does, and return the receiver: that of the matchers, or the other one."""
    config = folder / "alertmanager.yml"
    route = {"receiver": "other", "routes": [{"receiver": "silenced", "matchers": [matchers]}]}
    config.write_text(yaml.safe_dump({"route": route, "receivers": [{"name": "other"}, {"name": "silenced"}]}))
    given = [f"{name}={json_text(value)}" for name, value in labels.items()]
    done = subprocess.run(
        ["amtool", "config", "routes", "test", f"--config.file={config}", *given],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.prometheus
def test_alertmanager_matches_the_alerts_of_the_incident_and_of_its_parts_and_no_others(
    name: str, tmp_path: Path
) -> None:
    one, several = (matchers_of(name, [f"{name}-{number}" for number in range(17, last)]) for last in (18, 20))
    labels = {"cluster": name, "short_id": f"{name}-17", "severity": "critical"}
    assert _receiver(tmp_path, one, labels) == "silenced"
    assert _receiver(tmp_path, several, {**labels, "short_id": f"{name}-19"}) == "silenced"
    for other in ({"short_id": f"{name}-170"}, {"short_id": f"{name}x17"}, {"cluster": f"{name}2"}, {"short_id": ""}):
        assert [_receiver(tmp_path, each, {**labels, **other}) for each in (one, several)] == ["other", "other"]


def test_only_what_has_no_other_way_is_written_with_a_backslash() -> None:
    assert "\\" not in matchers_of("a.b+c", ["a.b+c-1", "a.b+c-2"])
    assert json.loads(f"[{matchers_of('a', ['a-1', 'a|b-2']).split('short_id=~')[1].rstrip('}')}]") == ["a-1|a[|]b-2"]
