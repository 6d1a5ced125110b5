"""What is said about a booster: conditions, and the replicas of its backends; pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.differences import holds
from inferno_operator.controllers.boosters.retention import is_foreign
from inferno_operator.resources.conditions import Verdict, merge_conditions
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Manifest

INITIALIZED = "Initialized"
ACTIVE = "Active"
FAILED = "Failed"
VALID = "Valid"

COMING = "ModelScaling"
"""Reason of a booster that is active while a backend comes up from no replica."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What came of a pass."""

    failures: Sequence[str] = ()
    """What went wrong."""
    invalid: Sequence[str] = ()
    """What should be put right in the spec, whether or not it hindered anything."""
    remarks: Sequence[str] = ()
    """What is not as asked for and cannot be."""


def status_of(
    booster: Booster,
    present: Iterable[Manifest],
    dialect: Dialect,
    findings: Findings,
    now: datetime,
) -> dict[str, Any]:
    """The status as it is to be.

    Parameters
    ----------
    booster
        With the status so far.
    present
        Its children after what was written.
    dialect
        Tells which of them are servings.
    findings
        What to tell of the pass.
    now
        The time.
    """
    servings = _servings(booster, present, dialect)
    generation = booster.metadata.generation
    verdicts = [
        _initialized(booster, findings),
        _active(booster, servings),
        _failed(findings.failures),
        _valid(findings.invalid),
    ]
    conditions = merge_conditions(booster.status, verdicts, generation, now)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": [condition.to_json() for condition in conditions],
    }
    if not booster.single:
        status["backendStatuses"] = [_backend_status(serving) for serving in servings.values()]
    return status


def is_told(status: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether a status says all this already."""
    told = {item["type"]: item for item in current.get("conditions") or ()}
    wanted = {item["type"]: item for item in status["conditions"]}
    rest = {key: value for key, value in status.items() if key != "conditions"}
    return holds(wanted, told) and holds(rest, current)


def _servings(
    booster: Booster, present: Iterable[Manifest], dialect: Dialect
) -> dict[str, Manifest]:
    """The servings that are there, in the order of their backends."""
    there = {
        child["metadata"]["name"]: child
        for child in present
        if child["kind"] == dialect.serving.kind and not is_foreign(booster, child)
    }
    names = (booster.child_name(backend) for backend in booster.spec.backends)
    return {name: there[name] for name in names if name in there}


def _backend_status(serving: Manifest) -> dict[str, Any]:
    replicas = (serving.get("status") or {}).get("replicas", 0)
    return {"name": serving["metadata"]["name"], "replicas": replicas}


def _initialized(booster: Booster, findings: Findings) -> Verdict:
    """All children were written once; what comes later does not take it back."""
    if findings.failures and not _was(INITIALIZED, booster):
        return Verdict(INITIALIZED, False, "ModelProcessing", "not all children could be written")
    message = "; ".join(["ModelBooster initialized", *findings.remarks])
    return Verdict(INITIALIZED, True, "ModelCreating", message)


def _was(type_: str, booster: Booster) -> bool:
    before = booster.status.condition(type_)
    return before is not None and before.status == "True"


def _active(booster: Booster, servings: Mapping[str, Manifest]) -> Verdict:
    """All replicas were available once, and no backend has lost all of its own since then.

    So more replicas, a new image that they get one after the other, or a backend that comes up
    from none beside others do not take it back.
    """
    unsettled = _without(is_settled, booster, servings)
    if unsettled and not _was(ACTIVE, booster):
        return _inactive(f"waiting for {', '.join(unsettled)}")
    bare = _without(has_available, booster, servings)
    if bare and _has_lost(bare, booster, servings):
        return _inactive(f"waiting for {', '.join(bare)}")
    if not any(_replicas(serving) for serving in servings.values()):
        return _inactive("no backend has any replica")
    if bare:
        message = f"ModelBooster is ready; waiting for the first replica of {', '.join(bare)}"
        return Verdict(ACTIVE, True, COMING, message)
    more = f"; waiting for more replicas of {', '.join(unsettled)}" if unsettled else ""
    return Verdict(ACTIVE, True, "ModelAvailable", f"ModelBooster is ready{more}")


def _without(
    is_up: Callable[[Manifest], bool], booster: Booster, servings: Mapping[str, Manifest]
) -> list[str]:
    names = map(booster.child_name, booster.spec.backends)
    return [name for name in names if name not in servings or not is_up(servings[name])]


def _has_lost(bare: Sequence[str], booster: Booster, servings: Mapping[str, Manifest]) -> bool:
    """Whether backends without any available replica had some, or nothing else serves."""
    if not any(_replicas(each) and has_available(each) for each in servings.values()):
        return True
    before = booster.status.condition(ACTIVE)
    if before is not None and before.reason == COMING:
        return False
    had = {each.name for each in booster.status.backend_statuses if each.replicas}
    return not had.isdisjoint(bare)


def _inactive(why: str) -> Verdict:
    return Verdict(ACTIVE, False, "ModelProcessing", f"ModelBooster not ready yet: {why}")


def _replicas(serving: Manifest) -> int:
    replicas: int = serving["spec"].get("replicas", 1)
    return replicas


def is_settled(serving: Manifest) -> bool:
    """Whether all of its replicas are available; one that has none has nothing to wait for."""
    if not _replicas(serving):
        return True
    status = serving.get("status") or {}
    generation = serving["metadata"].get("generation", 0)
    if status.get("observedGeneration", generation) < generation:
        return False
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return conditions.get("Available") == "True"


def has_available(serving: Manifest) -> bool:
    """Whether one of its replicas is available at least, or it is to have none."""
    available: int = (serving.get("status") or {}).get("availableReplicas", 0)
    return is_settled(serving) or available > 0


def _failed(failures: Sequence[str]) -> Verdict:
    if failures:
        return Verdict(FAILED, True, "ModelAbnormal", "\n".join(failures))
    return Verdict(FAILED, False, "ModelNormal", "")


def _valid(invalid: Sequence[str]) -> Verdict:
    if invalid:
        return Verdict(VALID, False, "InvalidSpec", "\n".join(invalid))
    return Verdict(VALID, True, "Valid")
