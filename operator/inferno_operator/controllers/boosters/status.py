"""The status of a booster: conditions, and the replicas of its backends; pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from inferno_operator.controllers.boosters.booster import Booster
from inferno_operator.controllers.boosters.changes import holds, is_foreign
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
    """Return the new status of a booster; `present` are its children after the writes."""
    existing = {
        child["metadata"]["name"]: child
        for child in present
        if child["kind"] == dialect.serving.kind and not is_foreign(booster, child)
    }
    names = map(booster.child_name, booster.spec.backends)
    servings = {name: existing[name] for name in names if name in existing}
    failed = Verdict(FAILED, False, "ModelNormal", "")
    if report.failures:
        failed = Verdict(FAILED, True, "ModelAbnormal", "\n".join(report.failures))
    valid = Verdict(VALID, True, "Valid")
    if report.invalid:
        valid = Verdict(VALID, False, "InvalidSpec", "\n".join(report.invalid))
    generation = booster.metadata.generation
    initialized = _judge_initialized(booster, dialect, report)
    verdicts = [initialized, _judge_active(booster, servings), failed, valid]
    conditions = merge_conditions(booster.status, verdicts, generation, now)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": [condition.to_json() for condition in conditions],
    }
    if not booster.is_single:
        status["backendStatuses"] = [
            {"name": name, "replicas": (serving.get("status") or {}).get("replicas", 0)}
            for name, serving in servings.items()
        ]
    return status


def is_up_to_date(current: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the current status of a booster has everything of the wanted one."""
    current_conditions = {item["type"]: item for item in current.get("conditions") or ()}
    wanted_conditions = {item["type"]: item for item in wanted["conditions"]}
    rest = {key: value for key, value in wanted.items() if key != "conditions"}
    return holds(wanted_conditions, current_conditions) and holds(rest, current)


def _was(type_: str, booster: Booster) -> bool:
    before = booster.status.condition(type_)
    return before is not None and before.status == "True"


def _judge_initialized(booster: Booster, dialect: Dialect, report: Report) -> Verdict:
    """Return `Initialized`: true once all children were written, and never false after that.

    It says which release the pods are of, and who chose it, where the fields leave a choice.
    """
    if report.failures and not _was(INITIALIZED, booster):
        return Verdict(INITIALIZED, False, "ModelProcessing", "not all children could be written")
    pods = ""
    if booster.is_single:
        pods = f" with the pods of Kthena {booster.release.text}"
        if dialect.installed is None:
            pods += ", as INFERNO_MODEL_BOOSTER_RELEASE names no release"
        elif dialect.installed != booster.release:
            pods += f", as {dialect.installed.text} has other fields"
    message = "; ".join([f"ModelBooster initialized{pods}", *report.remarks])
    return Verdict(INITIALIZED, True, "ModelCreating", message)


def _judge_active(booster: Booster, servings: Mapping[str, Manifest]) -> Verdict:
    """Return `Active`: true once all replicas were available, until a backend has none left.

    So it stays true while replicas are added or updated one after the other, and while a
    backend is scaled up from zero and others serve.
    """
    names = [booster.child_name(backend) for backend in booster.spec.backends]
    unsettled = [n for n in names if n not in servings or not _is_settled(servings[n])]
    bare = [n for n in names if n not in servings or not _has_available(servings[n])]
    running = [serving for serving in servings.values() if _count_replicas(serving)]
    before, was_active = booster.status.condition(ACTIVE), _was(ACTIVE, booster)
    # Whether a backend without available replicas had some before, or no backend serves.
    had = {each.name for each in booster.status.backend_statuses if each.replicas}
    is_scaling = before is not None and before.reason == SCALING
    has_lost = not any(map(_has_available, running)) or (
        not is_scaling and not had.isdisjoint(bare)
    )
    waits = unsettled if unsettled and not was_active else bare if bare and has_lost else []
    if waits or not running:
        why = f"waiting for {', '.join(waits)}" if waits else "no backend has any replica"
        return Verdict(ACTIVE, False, "ModelProcessing", f"ModelBooster not ready yet: {why}")
    if bare:
        message = f"ModelBooster is ready; waiting for the first replica of {', '.join(bare)}"
        return Verdict(ACTIVE, True, SCALING, message)
    more = f"; waiting for more replicas of {', '.join(unsettled)}" if unsettled else ""
    return Verdict(ACTIVE, True, "ModelAvailable", f"ModelBooster is ready{more}")


def _count_replicas(serving: Manifest) -> int:
    replicas: int = serving["spec"].get("replicas", 1)
    return replicas


def _is_settled(serving: Manifest) -> bool:
    """Whether all replicas of a serving are available, or it has none."""
    if not _count_replicas(serving):
        return True
    status = serving.get("status") or {}
    generation = serving["metadata"].get("generation", 0)
    if status.get("observedGeneration", generation) < generation:
        return False
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    return conditions.get("Available") == "True"


def _has_available(serving: Manifest) -> bool:
    """Whether at least one replica of a serving is available, or it has none."""
    available: int = (serving.get("status") or {}).get("availableReplicas", 0)
    return _is_settled(serving) or available > 0
