"""What is said about a booster: conditions, and the replicas of its backends; pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from inferno_operator.boosters.booster import Booster
from inferno_operator.boosters.dialects import Dialect
from inferno_operator.boosters.differences import holds
from inferno_operator.boosters.keeping import is_foreign
from inferno_operator.conditions import Verdict, merge_conditions
from inferno_operator.ports import Manifest

INITIALIZED = "Initialized"
ACTIVE = "Active"
FAILED = "Failed"


def status_of(
    booster: Booster,
    present: Iterable[Manifest],
    dialect: Dialect,
    failures: Sequence[str],
    remarks: Sequence[str],
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
    failures, remarks
        What went wrong, and what is not as asked for.
    now
        The time.
    """
    servings = _servings(booster, present, dialect)
    generation = booster.metadata.generation
    verdicts = [
        _initialized(booster, failures, remarks),
        _active(booster, servings),
        _failed(failures),
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


def _initialized(booster: Booster, failures: Sequence[str], remarks: Sequence[str]) -> Verdict:
    """All children were written once; what comes later does not take it back."""
    before = booster.status.condition(INITIALIZED)
    if failures and (before is None or before.status != "True"):
        return Verdict(INITIALIZED, False, "ModelProcessing", "not all children could be written")
    message = "; ".join(["ModelBooster initialized", *remarks])
    return Verdict(INITIALIZED, True, "ModelCreating", message)


def _active(booster: Booster, servings: Mapping[str, Manifest]) -> Verdict:
    missing = [
        name
        for name in map(booster.child_name, booster.spec.backends)
        if name not in servings or not is_settled(servings[name])
    ]
    if missing:
        return _inactive(f"waiting for {', '.join(missing)}")
    if not any(_replicas(serving) for serving in servings.values()):
        return _inactive("no backend has any replica")
    return Verdict(ACTIVE, True, "ModelAvailable", "ModelBooster is ready")


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


def _failed(failures: Sequence[str]) -> Verdict:
    if failures:
        return Verdict(FAILED, True, "ModelAbnormal", "\n".join(failures))
    return Verdict(FAILED, False, "ModelNormal", "")
