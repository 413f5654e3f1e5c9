"""A cluster that exists only in the model, as a source; used without a real cluster, and in every test.

- ``fault``          the faults, repairs and administrative actions of a scenario
- ``scenario``       a scenario: brokers, topics, traffic, and faults with their times
- ``scenario_file``  scenarios as TOML files
- ``combine``        several scenarios at once
- ``network``        random latency, ordered links, holds and slow links
- ``agenda``         what is planned, by time
- ``traffic``        anonymous producers that write at a rate
- ``clients``        producers that wait for their responses, and members of consumer groups
- ``faults``         how each fault is applied to the model and its network
- ``stage``          the interface that faults, producers and writers act on
- ``simulation``     a scenario being played: clock, seed, network, faults, traffic
- ``reports``        what simulated brokers and controllers report of themselves
- ``speed``          how fast simulated brokers respond, and which pairs of them are behind
- ``source``         the simulated cluster as a source
- ``truth``          the ground truth: every step of every partition, from the model's state
- ``timeline``       the steps of a simulation as lines
- ``digest``         many steps at one time as one line
"""

from __future__ import annotations

from streaming.sources.simulated.scenario import Scenario
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.source import SimulatedSource
from streaming.sources.simulated.truth import TraceEntry

__all__ = ["Scenario", "SimulatedSource", "TraceEntry", "load_scenario"]
