"""Runs ``isrwatch job`` and kills it with SIGKILL between two commits of one batch of samples.

    python kill_between.py CONDITION job JOB-ARGUMENTS...

It ends behind the commit of ``sampled_conditions`` that has a new row of a condition, before the one of the rows that
this follows from.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pyarrow.compute as pc
import typer

from streaming.commands.job import job
from streaming.contracts.sample_tables import GROUP_OFFSETS
from streaming.contracts.tables import SAMPLED_CONDITIONS
from streaming.delta.log import writer
from streaming.delta.samples.sampled_spells import SampledSpells

CONDITION = sys.argv[1]
is_begun = is_committed = False
create, changed = writer.create, SampledSpells.changed


def notice(spells: SampledSpells) -> Any:
    global is_begun  # noqa: PLW0603 - a script of one purpose
    tables = changed(spells)
    for table in tables.values():
        lasts = pc.and_(pc.equal(table["condition"], CONDITION), pc.is_null(table["ended_at"]))
        is_begun = is_begun or bool(pc.any(lasts).as_py())
    return tables


def create_or_die(entry: Any, content: bytes) -> bool:
    global is_committed  # noqa: PLW0603 - as above
    if is_committed and GROUP_OFFSETS.name in str(entry):
        os.kill(os.getpid(), signal.SIGKILL)
    is_made = create(entry, content)
    is_committed = is_committed or (is_begun and SAMPLED_CONDITIONS.name in str(entry))
    return is_made


SampledSpells.changed = notice  # type: ignore[method-assign]
writer.create = create_or_die
sys.argv = sys.argv[2:]
typer.run(job)
