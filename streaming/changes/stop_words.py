"""What is said of brokers that were stopped, or went down while work on them was announced. Pure.

A clean stop is only claimed where a controlled shutdown is proven, and announced work is named with its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming.contracts.events import Cause
from streaming.contracts.identifiers import Micros
from streaming.contracts.incidents import IncidentClass
from streaming.contracts.moments import utc_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streaming.changes.incident import Incident

_ANNOUNCED_WORK: Final = "announced work"


def brokers_named(brokers: tuple[int, ...]) -> str:
    """Name brokers."""
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    return f"brokers {', '.join(map(str, brokers[:-1]))} and {brokers[-1]}" if brokers else "an unknown broker"


def stopped(incident: Incident, kind: IncidentClass, suspects: tuple[int, ...]) -> str:
    """Say of the brokers of planned work, or of an unsafe stop, who was stopped cleanly, and what others did."""
    crashed = _without_clean_stop(incident, suspects)
    clean = tuple(broker for broker in suspects if broker not in incident.announced)
    lagged = tuple(broker for broker in suspects if broker not in (*clean, *crashed))
    is_rolling, is_unsafe = kind is IncidentClass.ROLLING_RESTART, kind is IncidentClass.UNSAFE_SHUTDOWN
    did = (
        (() if is_rolling else clean, f"{_were(clean)} stopped" + " cleanly" * (not is_unsafe)),
        (crashed, f"went down during {_ANNOUNCED_WORK}"),
        (lagged, f"left ISRs during {_ANNOUNCED_WORK}"),
    )
    each = [f"{brokers_named(brokers)} {what}" for brokers, what in did if brokers]
    said = ", ".join([f"rolling restart of {brokers_named(suspects)}"] * is_rolling + each)
    return _with_reason(incident, f"{said} though partitions had no replica to spare" if is_unsafe else said)


def overdue(incident: Incident, suspects: tuple[int, ...]) -> str:
    """Say how brokers are late that were to come back, and whether the time of announced work is over."""
    is_away = any(incident.down_now(broker) is not None for broker in suspects)
    late = "came back late" if incident.is_recovered else "did not catch up after its return"
    if incident.announced.isdisjoint(suspects):
        said = f"{brokers_named(suspects)} {'did not come back' if is_away else late} from a clean stop"
    else:
        said = f"{brokers_named(suspects)} {_were(suspects)} lost" + f" and {late}" * (not is_away)
    if incident.overran_at:
        said += f", {_its(suspects)} {_ANNOUNCED_WORK} overran at {utc_text(Micros(incident.overran_at))}"
    return _with_reason(incident, said)


def waited_for_leaders(incident: Incident) -> str:
    """Say what a crash costs while work is announced: until it is noticed, clients reach no leader. Empty for none."""
    crashed = _without_clean_stop(incident, incident.announced)
    if not crashed:
        return ""
    led = f"any partition that {brokers_named(crashed)} led had no leader until {_its(crashed)}"
    if incident.causes[Cause.FENCED]:
        return f"{led} session{'s' * (len(crashed) > 1)} expired"
    return f"unless {'it' if len(crashed) == 1 else 'they'} {_were(crashed)} stopped cleanly, {led} end was noticed"


def _without_clean_stop(incident: Incident, brokers: Iterable[int]) -> tuple[int, ...]:
    """Return those that went down while work on them was announced, and of whom no clean stop is proven."""
    return tuple(sorted({down.broker for down in incident.downs} & incident.announced & {*brokers}))


def _with_reason(incident: Incident, said: str) -> str:
    """Add why work was announced, as it was given; it may have been announced without a reason."""
    reasons = "; ".join(sorted(filter(None, incident.work)))
    is_said = _ANNOUNCED_WORK in said
    if not incident.work or (is_said and not reasons):
        return said
    return f"{said} ({reasons if is_said else ': '.join(filter(None, ('announced', reasons)))})"


def _were(brokers: tuple[int, ...]) -> str:
    return "was" if len(brokers) == 1 else "were"


def _its(brokers: tuple[int, ...]) -> str:
    return "its" if len(brokers) == 1 else "their"
