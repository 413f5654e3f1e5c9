"""The model's own log before the checker: the records alone must tell what the model knows."""

from __future__ import annotations

from streaming.contracts.identifiers import TopicPartition
from streaming.model.controller.metadata_writer import Commit
from tests.conformance.actions import Action
from tests.conformance.checker import Checker


def actions_of(checker: Checker, commit: Commit) -> tuple[Action, ...]:
    """Give the actions behind a commit; none may deviate, and each step's true cause must be among those found."""
    found = checker.explain(commit.batch)
    assert not found.deviations, "\n".join(map(str, found.deviations))
    told: dict[TopicPartition, list[Action]] = {}  # joined operations may take several steps of one partition
    for action in found.actions:
        if action.step is not None:
            told.setdefault(action.step.topic_partition, []).append(action)
    for true in commit.transitions:
        if told.get(true.topic_partition):
            action = told[true.topic_partition].pop(0)
            assert action.step is not None
            assert (action.step.before, action.step.after) == (true.before, true.after), action
            assert true.cause in action.causes, f"{action}, in truth {true.cause}"
    return found.actions
