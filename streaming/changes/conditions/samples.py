"""Findings of samples in, spells of conditions out. Pure; no clock, no IO. Theory: ``contracts.sampled_conditions``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.conditions import HOUR
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.sampled_conditions import GIVEN_UP, SampledSpell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.conditions import Condition
    from streaming.contracts.sampled_conditions import Finding, Key


class Answers(NamedTuple):
    """Answers of one round, in which nobody answers twice.

    Attributes:
        findings: by the newest rows, those of rounds before included; of each key one.
        mentioned: when the round says something of a key, by those of the spells that last.
        answered: when reporters answered, by cluster and reporter; "": the newest answer of the cluster.
        forgotten_after: after so long, microseconds, a row goes that nobody reports.
    """

    findings: Iterable[Finding]
    mentioned: Mapping[Key, int]
    answered: Mapping[tuple[str, str], int]
    forgotten_after: int


class SampledFold:
    """The spells of some clusters; of each key the newest one counts.

    Attributes:
        spells: the newest of each key.
        changed: spells that have changed since they were taken, by id.
    """

    def __init__(self, spells: Iterable[SampledSpell]) -> None:
        """Continue with the spells that last, and those that ended lately, in any order."""
        in_order = sorted(spells, key=lambda spell: (spell.began_at, spell.spell_id))
        self.spells: dict[Key, SampledSpell] = {spell.key: spell for spell in in_order}
        self.changed: dict[str, SampledSpell] = {}
        self._shown = {key: spell.shown_at for key, spell in self.spells.items()}

    def lasting(self, conditions: frozenset[Condition]) -> dict[Key, SampledSpell]:
        """Return the spells of some conditions that last."""
        lasting = self.spells.items()
        return {key: each for key, each in lasting if each.ended_at is None and key.condition in conditions}

    def take_changed(self) -> dict[str, SampledSpell]:
        """Return what has changed since the last time, by id."""
        changed, self.changed = self.changed, {}
        return changed

    def follow(self, conditions: frozenset[Condition], answers: Answers) -> None:
        """Follow one round of the samples that some conditions follow from."""
        left = self.lasting(conditions)
        for finding in answers.findings:
            left.pop(finding.key, None)
            self._find(finding, answers.forgotten_after)
        for key, spell in left.items():
            self._miss(spell, answers, answers.mentioned.get(key))

    def _find(self, finding: Finding, forgotten_after: int) -> None:
        spell, at = self.spells.get(finding.key), Micros(finding.at)
        if spell is not None and spell.ended_at is None:
            spell = self._unless_over(spell, at, forgotten_after)
        if spell is None or spell.ended_at is not None:
            if finding.is_wrong and (spell is None or at > (spell.ended_at or 0)):
                self._begin(finding)
        elif finding.is_wrong is not False:
            self._last(spell, finding)
        elif at > spell.began_at:
            self._end(spell, at)

    def _begin(self, finding: Finding) -> None:
        key, at = finding.key, Micros(finding.at)
        self._put(
            SampledSpell(
                spell_id="/".join((*key, str(at))),
                cluster_id=ClusterId(key.cluster_id),
                cluster=finding.cluster,
                condition=key.condition,
                subject=key.subject,
                part=key.part,
                since=Micros(finding.since),
                began_at=at,
                ended_at=None,
                reporter=finding.reporter,
                shown_at=_shown(at, finding.reporter),
                left_out_at=None,
            )
        )
        self._shown[key] = at

    def _last(self, spell: SampledSpell, finding: Finding) -> None:
        """Note that a spell lasts; this changes its row once an hour, and if someone else reports it."""
        at = Micros(finding.at)
        if at >= self._shown[spell.key]:
            self._shown[spell.key] = at
            shown = max(spell.shown_at, _shown(at, finding.reporter))
            self._put(_in_answer(spell, at)._replace(reporter=finding.reporter, shown_at=shown))

    def _miss(self, spell: SampledSpell, answers: Answers, mentioned: int | None) -> None:
        """Look whether a spell of which no row is left is over; a late sample, which is in no row, says it is not."""
        if mentioned is not None:
            lasts = self._unless_over(spell, mentioned, answers.forgotten_after)
            if lasts.ended_at is None:
                self._put(_in_answer(lasts, mentioned))
            return
        present = answers.answered.get((spell.cluster_id, ""), 0)
        if self._unless_given_up(spell, present, answers.forgotten_after).ended_at is not None:
            return
        reporter = spell.reporter
        answered = 0 if reporter is None else answers.answered.get((spell.cluster_id, reporter), 0)
        if answered > max(self._shown[spell.key], spell.began_at):
            if spell.left_out_at is None:
                self._put(spell._replace(left_out_at=Micros(answered)))
            else:
                self._unless_over(spell, answered, answers.forgotten_after)

    def _unless_over(self, spell: SampledSpell, at: int, forgotten_after: int) -> SampledSpell:
        """Return a spell that lasts as a sample of it, or an answer, finds it: over if left out of an answer before."""
        if spell.left_out_at is not None and at > spell.left_out_at:
            return self._end(spell, spell.left_out_at)
        return self._unless_given_up(spell, at, forgotten_after)

    def _unless_given_up(self, spell: SampledSpell, at: int, forgotten_after: int) -> SampledSpell:
        """Return a spell that lasts as any sample of its cluster finds it: over if nobody has shown it for too long."""
        until = spell.shown_at + (forgotten_after if spell.reporter is None else GIVEN_UP)
        return self._end(spell, spell.left_out_at or until) if at > until else spell

    def _end(self, spell: SampledSpell, at: int) -> SampledSpell:
        ended = spell._replace(ended_at=Micros(at), left_out_at=None)
        self._put(ended)
        return ended

    def _put(self, spell: SampledSpell) -> None:
        if self.spells.get(spell.key) != spell:
            self.spells[spell.key] = self.changed[spell.spell_id] = spell


def _in_answer(spell: SampledSpell, at: int) -> SampledSpell:
    """Return a spell that an answer has which seemed to leave it out: its samples come one by one."""
    return spell._replace(left_out_at=None) if spell.left_out_at == at else spell


def _shown(at: int, reporter: str | None) -> Micros:
    """Return the begin of the hour, so that a row is written once in it; of what nobody takes back the time itself."""
    return Micros(at if reporter is None else at - at % HOUR)
