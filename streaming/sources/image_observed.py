"""Conversion of effects on the image to observations. Pure; the caller provides the envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streaming.contracts.codec import UNDECODABLE
from streaming.contracts.events import Cause, Evidence
from streaming.contracts.observations import (
    BrokerObserved,
    CauseRevised,
    ConfigObserved,
    ConfigOrigin,
    ControllerObserved,
    Observation,
    PartitionObserved,
    TopicRemoved,
)
from streaming.contracts.records import RECOVERING, LeaderChange, Undecodable
from streaming.sources.image_state import BrokerStep, CauseRevision, ConfigStep, Effect, PartitionStep, TopicDeleted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.sources.causes_context import Explanation


def observed(effect: Effect, envelope: Mapping[str, Any], why: Explanation | None, index: int) -> Observation:
    """Return the observation of one effect; ``index`` counts the effects of one record, ``why`` is for partitions."""
    match effect:
        case PartitionStep():
            return partition_observed(effect, envelope, why, index)
        case BrokerStep():
            return broker_observed(effect, envelope)
        case ConfigStep(topic=topic, key=key, value=value):
            return ConfigObserved(**envelope, topic=topic, key=key, value=value, origin=ConfigOrigin.LOG)
        case CauseRevision():
            return _cause_revised(effect, envelope, index)
        case TopicDeleted(topic=topic, topic_id=topic_id):
            return TopicRemoved(**envelope, topic_id=topic_id, topic=topic)
        case LeaderChange(controller=controller, epoch=epoch):
            return ControllerObserved(**envelope, controller=controller, controller_epoch=epoch)
        case _:
            raise AssertionError(f"no observation for {effect!r}")


def partition_observed(
    step: PartitionStep, envelope: Mapping[str, Any], why: Explanation | None = None, index: int = 0
) -> PartitionObserved:
    """Return the state of one partition, after a step or (without ``why``) in a full report."""
    after = step.after
    return PartitionObserved(
        **envelope,
        metadata_index=index,
        topic_id=after.topic_id,
        topic=step.topic,
        partition=after.partition,
        replicas=after.replicas,
        isr=after.isr,
        elr=after.elr,
        last_known_elr=after.last_known_elr,
        adding_replicas=after.adding_replicas,
        removing_replicas=after.removing_replicas,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        partition_epoch=after.partition_epoch,
        leader_recovering=after.leader_recovery_state == RECOVERING,
        cause=None if why is None else why.cause,
        evidence=None if why is None else why.evidence,
        candidates=() if why is None else why.candidates,
    )


def _cause_revised(revision: CauseRevision, envelope: Mapping[str, Any], index: int) -> CauseRevised:
    return CauseRevised(
        **envelope,
        metadata_index=index,
        topic_id=revision.topic_id,
        topic=revision.topic,
        partition=revision.partition,
        revised_offset=revision.offset,
        broker=revision.broker,
        cause=Cause.CONTROLLED_SHUTDOWN,
        evidence=Evidence.PROVEN,
    )


def broker_observed(step: BrokerStep, envelope: Mapping[str, Any]) -> BrokerObserved:
    """Return the state of one broker; of an unregistered one only that it is unregistered."""
    broker = step.broker
    if not step.registered:
        return BrokerObserved(**envelope, broker=broker.broker, broker_epoch=broker.broker_epoch, registered=False)
    return BrokerObserved(
        **envelope,
        broker=broker.broker,
        broker_epoch=broker.broker_epoch,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        rack=broker.rack,
        log_dirs=broker.log_dirs,
        host=broker.host,
        port=broker.port,
    )


def undecodable(envelope: Mapping[str, Any], record: Undecodable) -> dict[str, Any]:
    """Return what goes to quarantine of a record that cannot be decoded, as JSON values."""
    why = {"reason": record.reason, "raw": record.value.hex()}
    return {"v": Observation.format, "kind": UNDECODABLE, **envelope, **why}
