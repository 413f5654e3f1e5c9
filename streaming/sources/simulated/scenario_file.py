"""Scenarios as commented TOML files; ``conf/scenarios/*.toml`` show every key.

A wrong key raises ``ConfigurationError`` that names the key and the fix.
"""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.contracts.events import IncidentClass
from streaming.errors import ConfigurationError
from streaming.model.constants import PRESETS, Constants, MetadataMode, Switches, Truncation
from streaming.model.messages.network import CONTROLLER
from streaming.resources import conf_path
from streaming.sources.simulated.scenario import (
    Action,
    Fault,
    GroupPlan,
    Placement,
    ProducerPlan,
    Scenario,
    TopicPlan,
    TrueIncident,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streaming.contracts.identifiers import BrokerId

T = TypeVar("T")


def load_scenario(path_or_name: str | Path) -> Scenario:
    """Read a scenario: a path, or the name of one that comes with the program (``steady``, ``broker_loss``, ...).

    Several names with ``+`` between them are played together on one cluster.

    Raises:
        ConfigurationError: there is no such file, it is not TOML, or a key is wrong.
    """
    if isinstance(path_or_name, str) and "+" in path_or_name and not Path(path_or_name).exists():
        return combined([_load(name) for name in path_or_name.split("+")])
    return _load(path_or_name)


def _load(path_or_name: str | Path) -> Scenario:
    path = _resolve(path_or_name)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read the scenario {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the scenario {path} is not TOML: {error}") from None
    try:
        return scenario_from(path.stem, document)
    except ConfigurationError as error:
        raise ConfigurationError(f"scenario {path.name}: {error}") from None


def _resolve(path_or_name: str | Path) -> Path:
    path = Path(path_or_name)
    if path.suffix == ".toml" or path.is_file():
        return path
    room = conf_path("scenarios")
    if (room / f"{path_or_name}.toml").is_file():
        return room / f"{path_or_name}.toml"
    names = ", ".join(sorted(file.stem for file in room.glob("*.toml")))
    raise ConfigurationError(f"there is no scenario {path_or_name}; use one of {names}, or a .toml file")


def scenario_from(name: str, document: Mapping[str, Any]) -> Scenario:
    """Build a scenario from a decoded TOML document.

    Raises:
        ConfigurationError: a key is missing, unknown, or of the wrong type.
    """
    values = dict(document)
    constants = _constants(values.pop("constants", {}))
    for key, cls in _LISTS.items():
        values[key] = tuple(_build(cls, item, f"{key}.") for item in _tables(values.get(key, []), key))
    values |= {"name": name, "constants": constants, "truth": _truth(values.get("truth", {}))}
    return _build(Scenario, values, "")


def _tables(value: Any, key: str) -> list[dict[str, Any]]:  # noqa: ANN401 - any value of a TOML file
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ConfigurationError(f"{key} must be a list of tables: write [[{key}]]")
    return value


def _truth(values: Any) -> Truth:  # noqa: ANN401 - any value of a TOML file
    if not isinstance(values, dict):
        raise ConfigurationError("truth must be a table: write [truth]")
    incidents = _tables(values.get("incidents", []), "truth.incidents")
    built = tuple(_build(TrueIncident, item, "truth.incidents.") for item in incidents)
    return _build(Truth, values | {"incidents": built}, "truth.")


def _constants(values: Any) -> Constants:  # noqa: ANN401 - any value of a TOML file
    if not isinstance(values, dict):
        raise ConfigurationError("constants must be a table: write [constants]")
    given = dict(values)
    preset = given.pop("preset", "kraft-4.x")
    if preset not in PRESETS:
        raise ConfigurationError(f"constants.preset is {preset!r}; use one of {', '.join(PRESETS)}")
    switches = given.pop("switches", {})
    if not isinstance(switches, dict):
        raise ConfigurationError("constants.switches must be a table: write [constants.switches]")
    usual = PRESETS[preset]
    given["switches"] = _build(Switches, asdict(usual.switches) | switches, "constants.switches.")
    defaults = {item.name: getattr(usual, item.name) for item in fields(usual)}
    return _build(Constants, defaults | given, "constants.")


def _build(cls: type[T], values: Mapping[str, Any], prefix: str) -> T:
    annotations = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(annotations))
    if unknown:
        raise ConfigurationError(f"unknown key {prefix}{unknown[0]}; known here: {', '.join(annotations)}")
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigurationError(f"{prefix}{field.name} is missing")
    return cls(**{name: _value(annotations[name], value, prefix + name) for name, value in values.items()})


def _value(annotation: str, value: Any, key: str) -> Any:  # noqa: ANN401 - any value of a TOML file
    """Check and convert one value: lists become tuples, whole numbers pass for seconds."""
    if annotation in _BUILT:
        return value
    convert, expected = _CONVERSIONS[annotation.removesuffix(" | None")]
    try:
        return convert(value)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{key} is {value!r}; it must be {expected}") from None


def _is(kind: type[T]) -> Callable[[Any], T]:
    def check(value: Any) -> T:  # noqa: ANN401 - any value of a TOML file
        if type(value) is not kind:
            raise TypeError
        return value

    return check


def _seconds(value: Any) -> float:  # noqa: ANN401 - any value of a TOML file
    return _is(float)(float(value) if type(value) is int else value)


def _ids(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - any value of a TOML file
    return tuple(_is(int)(item) for item in _is(list)(value))


def _texts(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - any value of a TOML file
    return tuple(_is(str)(item) for item in _is(list)(value))


def _pairs(value: Any) -> tuple[tuple[int, int], ...]:  # noqa: ANN401 - any value of a TOML file
    return tuple((_is(int)(broker), _is(int)(number)) for broker, number in value)


def _link(value: Any) -> tuple[int, ...]:  # noqa: ANN401 - any value of a TOML file
    sender, receiver = (CONTROLLER if node == "controller" else _is(int)(node) for node in _is(list)(value))
    return sender, receiver


def _assignments(value: Any) -> tuple[tuple[int, ...], ...]:  # noqa: ANN401 - any value of a TOML file
    return tuple(_ids(item) for item in _is(list)(value))


def _racks(value: Any) -> dict[int, str]:  # noqa: ANN401 - any value of a TOML file
    return {int(broker): _is(str)(rack) for broker, rack in _is(dict)(value).items()}


# By annotation: how a TOML value becomes a field, and what to ask for.
_CONVERSIONS: Final[dict[str, tuple[Callable[[Any], Any], str]]] = {
    "str": (_is(str), "text"),
    "int": (_is(int), "a whole number"),
    "float": (_seconds, "a number"),
    "bool": (_is(bool), "true or false"),
    "MetadataMode": (MetadataMode, f"one of {', '.join(MetadataMode)}"),
    "Truncation": (Truncation, f"one of {', '.join(Truncation)}"),
    "IncidentClass": (IncidentClass, f"one of {', '.join(IncidentClass)}"),
    "tuple[str, ...]": (_texts, "a list of texts"),
    "Action": (Action, f"one of {', '.join(Action)}"),
    "Placement": (Placement, f"one of {', '.join(Placement)}"),
    "BrokerId": (_is(int), "a broker id"),
    "dict[BrokerId, str]": (_racks, 'a table of broker ids and names, for example {1 = "a", 2 = "b"}'),
    "tuple[BrokerId, ...]": (_ids, "a list of broker ids, for example [1, 2, 3]"),
    "tuple[tuple[int, int], ...]": (_pairs, "a list of brokers, each with its value, for example [[1, 2], [2, 1]]"),
    "tuple[BrokerId, BrokerId]": (_link, 'two nodes: [sender, receiver], each a broker id or "controller"'),
    "tuple[tuple[BrokerId, ...], ...]": (_assignments, "a list of lists of broker ids"),
}
_LISTS: Final[dict[str, type[Any]]] = {
    "topics": TopicPlan,
    "producers": ProducerPlan,
    "groups": GroupPlan,
    "faults": Fault,
}
_BUILT: Final = frozenset({"Constants", "Switches", "Truth", "tuple[TrueIncident, ...]"}) | {
    f"tuple[{cls.__name__}, ...]" for cls in _LISTS.values()
}


# Several scenarios at once, on one cluster: what one monitor sees when two things go wrong together.


def combined(scenarios: Sequence[Scenario]) -> Scenario:
    """Play scenarios together: all their brokers, topics, clients and faults, for as long as the longest.

    A topic name that several of them use is prefixed by the scenario's name. The constants are those of the first.

    Raises:
        ConfigurationError: two scenarios put one broker into different racks.
    """
    if len(scenarios) == 1:
        return scenarios[0]
    return Scenario(
        name="+".join(scenario.name for scenario in scenarios),
        description="; ".join(scenario.description for scenario in scenarios),
        brokers=tuple(sorted({broker for scenario in scenarios for broker in scenario.brokers})),
        racks=_combined_racks(scenarios),
        placement=scenarios[0].placement,
        duration=max(scenario.duration for scenario in scenarios),
        repeat=all(scenario.repeat for scenario in scenarios),
        constants=scenarios[0].constants,
        topics=tuple(topic for scenario in scenarios for topic in _topics(scenario, scenarios)),
        producers=tuple(plan for scenario in scenarios for plan in _producers(scenario, scenarios)),
        groups=tuple(plan for scenario in scenarios for plan in _groups(scenario, scenarios)),
        faults=tuple(fault for scenario in scenarios for fault in _faults(scenario, scenarios)),
        truth=_combined_truth(scenarios),
    )


def _combined_racks(scenarios: Sequence[Scenario]) -> dict[BrokerId, str]:
    racks: dict[BrokerId, str] = {}
    for scenario in scenarios:
        for broker, rack in scenario.racks.items():
            if racks.setdefault(broker, rack) != rack:
                raise ConfigurationError(
                    f"{scenario.name} has broker {broker} in rack {rack}, another one in {racks[broker]}"
                )
    return racks


def _name(topic: str, of: Scenario, scenarios: Sequence[Scenario]) -> str:
    users = [scenario for scenario in scenarios if any(plan.name == topic for plan in scenario.topics)]
    return topic if users == [of] else f"{of.name}-{topic}"


def _topics(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[TopicPlan]:
    """Give its topics; they stay on its own brokers."""
    for plan in of.topics:
        yield replace(plan, name=_name(plan.name, of, scenarios), brokers=plan.brokers or of.brokers)


def _producers(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[ProducerPlan]:
    for plan in of.producers:
        yield replace(plan, topic=_name(plan.topic, of, scenarios))


def _groups(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[GroupPlan]:
    for plan in of.groups:
        yield replace(plan, topics=tuple(_name(topic, of, scenarios) for topic in plan.topics))


def _faults(of: Scenario, scenarios: Sequence[Scenario]) -> Iterator[Fault]:
    for fault in of.faults:
        yield fault if fault.topic is None else replace(fault, topic=_name(fault.topic, of, scenarios))


def _combined_truth(scenarios: Sequence[Scenario]) -> Truth:
    def union(texts: Iterator[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(texts))

    return Truth(
        causes=union(cause for scenario in scenarios for cause in scenario.truth.causes),
        alerts=union(alert for scenario in scenarios for alert in scenario.truth.alerts),
        incidents=tuple(
            sorted((each for scenario in scenarios for each in scenario.truth.incidents), key=lambda each: each.begin)
        ),
    )
