"""Findings of samples in, spells of conditions out. Pure; no clock, no IO. Theory: ``contracts.sampled_conditions``."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from streaming.contracts.conditions import HOUR
from streaming.contracts.identifiers import ClusterId, Micros
from streaming.contracts.sampled_conditions import GIVEN_UP, SampledSpell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streaming.contracts.conditions import Condition
    from streaming.contracts.sampled_conditions import Key, SampledFinding


class Answers(NamedTuple):
    """Answers of one round, of at most one of each reporter.

    Attributes:
        findings: by the newest rows, those of rounds before included; of each key one.
        mentioned: what the round itself says of the keys of spells that last, if no finding is about them.
        answered: when reporters answered, by cluster and reporter; "": the newest answer of the cluster.
        forgotten_after: after so long, microseconds, a row goes that no answer has.
        moving: so long, microseconds, a thing may be in no answer while it moves, or is late.
        ended: when an answer said that what it leaves out of a subject is gone, by cluster and subject.
    """

    findings: Iterable[SampledFinding]
    mentioned: Mapping[Key, SampledFinding]
    answered: Mapping[tuple[str, str], int]
    forgotten_after: int
    moving: int = 0
    ended: Mapping[tuple[str, str], int] = MappingProxyType({})

    def of(self, spell: SampledSpell) -> int:
        """Return when the reporter of a spell answered; 0 if it did not."""
        return 0 if spell.reporter is None else self.answered.get((spell.cluster_id, spell.reporter), 0)


class SampledFold:
    """The spells of some clusters; of each key the newest one counts.

    ``changed`` are the spells that have changed since they were taken, by id.
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

    def recall(self, findings: Iterable[SampledFinding]) -> None:
        """Recall from the newest rows when each spell was shown last; of rows that were forgotten it stands in it."""
        for finding in findings:
            spell = self.spells.get(finding.key)
            if spell is not None and spell.ended_at is None and finding.is_wrong is not False:
                self._shown[finding.key] = max(self._shown[finding.key], Micros(finding.at))

    def take_changed(self) -> dict[str, SampledSpell]:
        """Return what has changed since the last time, by id."""
        changed, self.changed = self.changed, {}
        return changed

    def follow(self, conditions: frozenset[Condition], answers: Answers) -> None:
        """Follow one round of the samples that some conditions follow from."""
        left = self.lasting(conditions)
        for finding in answers.findings:
            left.pop(finding.key, None)
            self._find(finding, answers)
        for key, spell in left.items():
            self._miss(spell, answers, answers.mentioned.get(key))

    def _find(self, finding: SampledFinding, answers: Answers) -> None:
        spell, at = self.spells.get(finding.key), Micros(finding.at)
        if spell is not None and spell.ended_at is None:
            answered = at if finding.reporter == spell.reporter else answers.of(spell)
            answered = answered if answered <= at else 0
            spell = self._unless_over(spell, answered, at, answers)
        if spell is None or spell.ended_at is not None:
            if finding.is_wrong and (spell is None or at > (spell.ended_at or 0)):
                self._begin(finding)
        elif finding.is_wrong is not False:
            self._last(spell, finding)
        elif at > spell.began_at:
            self._end(spell, at)

    def _begin(self, finding: SampledFinding) -> None:
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

    def _last(self, spell: SampledSpell, finding: SampledFinding) -> None:
        """Note that a spell lasts; this changes its row once an hour, and if someone else reports it."""
        at = Micros(finding.at)
        if at >= max(self._shown[spell.key], spell.left_out_at or 0):
            self._shown[spell.key] = at
            shown = _shown(at, finding.reporter)
            self._put(spell._replace(reporter=finding.reporter, shown_at=shown, left_out_at=None))

    def _miss(self, spell: SampledSpell, answers: Answers, mentioned: SampledFinding | None) -> None:
        """Look whether a spell of which no row is left is over; a late sample, which is in no row, says it is not."""
        present, answered = answers.answered.get((spell.cluster_id, ""), 0), answers.of(spell)
        spell = self._put(spell._replace(shown_at=Micros(self._shown[spell.key])))
        is_mentioned = mentioned is not None and mentioned.reporter == spell.reporter
        spell = self._unless_over(spell, 0 if is_mentioned else answered, present, answers)
        if spell.ended_at is not None:
            return
        ended_at = answers.ended.get((spell.cluster_id, spell.key.subject), 0)
        if mentioned is None and ended_at > max(self._shown[spell.key], spell.began_at):
            self._end(spell, ended_at)
            return
        if mentioned is not None and is_mentioned:
            if spell.left_out_at is not None and 0 <= mentioned.at - spell.left_out_at <= answers.moving:
                self._put(spell._replace(left_out_at=None))
        elif spell.left_out_at is None and answered > max(self._shown[spell.key], spell.began_at):
            self._put(spell._replace(left_out_at=Micros(answered)))

    def _unless_over(self, spell: SampledSpell, answered: int, present: int, answers: Answers) -> SampledSpell:
        """Return a spell that lasts as a round finds it: ended if it was left out before, or has been given up.

        Its reporter ``answered`` at a time: what an answer before that one left out is over.
        """
        left_out, shown = spell.left_out_at, self._shown[spell.key]
        until = shown + (answers.forgotten_after if spell.reporter is None else GIVEN_UP)
        if left_out is not None and answered > left_out + answers.moving:
            return self._end(spell, left_out)
        return self._end(spell, left_out or until) if present > until else spell

    def _end(self, spell: SampledSpell, at: int) -> SampledSpell:
        shown = self._shown[spell.key]
        return self._put(spell._replace(ended_at=Micros(at), left_out_at=None, shown_at=Micros(shown)))

    def _put(self, spell: SampledSpell) -> SampledSpell:
        if self.spells.get(spell.key) != spell:
            self.spells[spell.key] = self.changed[spell.spell_id] = spell
        return spell


def _shown(at: int, reporter: str | None) -> Micros:
    """Return the begin of the hour, so that a row is written once in it; without a reporter the time itself."""
    return Micros(at if reporter is None else at - at % HOUR)
