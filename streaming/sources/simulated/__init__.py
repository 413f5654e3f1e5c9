"""A cluster that exists only in the model, as a source; used without a real cluster, and in every test."""

from __future__ import annotations

from streaming.sources.simulated.scenario import Scenario
from streaming.sources.simulated.scenario_file import load_scenario
from streaming.sources.simulated.source import SimulatedSource, TraceEntry

__all__ = ["Scenario", "SimulatedSource", "TraceEntry", "load_scenario"]
