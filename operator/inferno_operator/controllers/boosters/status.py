"""The status of a booster: conditions, and the replicas of its backends; pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.changes import holds
from inferno_operator.controllers.boosters.retention import is_foreign
from inferno_operator.resources.conditions import Verdict, merge_conditions
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Manifest

INITIALIZED = "Initialized"
ACTIVE = "Active"
FAILED = "Failed"
VALID = "Valid"

SCALING = "ModelScaling"
"""Reason of `Active` while a backend is scaled up from zero and others serve."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a reconcile reports on the status of a booster."""

    failures: Sequence[str] = ()
    """Problems and failed writes."""
    invalid: Sequence[str] = ()
    """Invalid fields of the spec, including those without effect on the children."""
    remarks: Sequence[str] = ()
    """Fields that cannot be changed as requested."""


def status_of(
    booster: Booster,
    present: Iterable[Manifest],
    dialect: Dialect,
    report: Report,
    now: datetime,
) -> dict[str, Any]:
    """Return the new status of a booster.

    Parameters
    ----------
    booster
        The booster, with its status so far.
    present
        Its children after the writes.
    dialect
        Its dialect, which has the kind of servings.
    report
        What the reconcile reports.
    now
        The time.
    """
    servings = _servings(booster, present, dialect)
    generation = booster.metadata.generation
    verdicts = [
        _initialized(booster, dialect, report),
        _active(booster, servings),
        _failed(report.failures),
        _valid(report.invalid),
    ]
    conditions = merge_conditions(booster.status, verdicts, generation, now)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": [condition.to_json() for condition in conditions],
    }
    if not booster.is_single:
        status["backendStatuses"] = [_backend_status(serving) for serving in servings.values()]
    return status


def is_up_to_date(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the current status of a booster has everything of the wanted one."""
    current_conditions = {item["type"]: item for item in current.get("conditions") or ()}
    wanted_conditions = {item["type"]: item for item in wanted["conditions"]}
    rest = {key: value for key, value in wanted.items() if key != "conditions"}
    return holds(wanted_conditions, current_conditions) and holds(rest, current)


def _servings(
    booster: Booster, present: Iterable[Manifest], dialect: Dialect
) -> dict[str, Manifest]:
    """Return the existing servings by name, in the order of the backends."""
    existing = {
        child["metadata"]["name"]: child
        for child in present
        if child["kind"] == dialect.serving.kind and not is_foreign(booster, child)
    }
    names = (booster.child_name(backend) for backend in booster.spec.backends)
    return {name: existing[name] for name in names if name in existing}


def _backend_status(serving: Manifest) -> dict[str, Any]:
    replicas = (serving.get("status") or {}).get("replicas", 0)
    return {"name": serving["metadata"]["name"], "replicas": replicas}


def _initialized(booster: Booster, dialect: Dialect, report: Report) -> Verdict:
    """Return `Initialized`: true once all children were written, and never false after that."""
    if report.failures and not _was(INITIALIZED, booster):
        return Verdict(INITIALIZED, False, "ModelProcessing", "not all children could be written")
    message = "; ".join([f"ModelBooster initialized{_pods(booster, dialect)}", *report.remarks])
    return Verdict(INITIALIZED, True, "ModelCreating", message)


def _pods(booster: Booster, dialect: Dialect) -> str:
    """Return which release the pods are of, and who chose it; "" if the fields leave no choice."""
    if not booster.is_single:
        return ""
    pods = f" with the pods of Kthena {booster.release.text}"
    if dialect.installed is None:
        return f"{pods}, as INFERNO_MODEL_BOOSTER_RELEASE names no release"
    if dialect.installed != booster.release:
        return f"{pods}, as {dialect.installed.text} has other fields"
    return pods


def _was(type_: str, booster: Booster) -> bool:
    before = booster.status.condition(type_)
    return before is not None and before.status == "True"


def _active(booster: Booster, servings: Mapping[str, Manifest]) -> Verdict:
    """Return `Active`: true once all replicas were available, until a backend has none left.

    So it stays true while replicas are added or updated one after the other, and while a
    backend is scaled up from zero and others serve.
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
        return Verdict(ACTIVE, True, SCALING, message)
    more = f"; waiting for more replicas of {', '.join(unsettled)}" if unsettled else ""
    return Verdict(ACTIVE, True, "ModelAvailable", f"ModelBooster is ready{more}")


def _without(
    is_up: Callable[[Manifest], bool], booster: Booster, servings: Mapping[str, Manifest]
) -> list[str]:
    names = map(booster.child_name, booster.spec.backends)
    return [name for name in names if name not in servings or not is_up(servings[name])]


def _has_lost(bare: Sequence[str], booster: Booster, servings: Mapping[str, Manifest]) -> bool:
    """Whether a backend without available replicas had some before, or no backend serves."""
    if not any(_replicas(each) and has_available(each) for each in servings.values()):
        return True
    before = booster.status.condition(ACTIVE)
    if before is not None and before.reason == SCALING:
        return False
    had = {each.name for each in booster.status.backend_statuses if each.replicas}
    return not had.isdisjoint(bare)


def _inactive(why: str) -> Verdict:
    return Verdict(ACTIVE, False, "ModelProcessing", f"ModelBooster not ready yet: {why}")


def _replicas(serving: Manifest) -> int:
    replicas: int = serving["spec"].get("replicas", 1)
    return replicas


def is_settled(serving: Manifest) -> bool:
    """Whether all replicas of a serving are available, or it has none."""
    if not _replicas(serving):
        return True
    status = serving.get("status") or {}
    generation = serving["metadata"].get("generation", 0)
    if status.get("observedGeneration", generation) < generation:
        return False
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return conditions.get("Available") == "True"


def has_available(serving: Manifest) -> bool:
    """Whether at least one replica of a serving is available, or it has none."""
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
