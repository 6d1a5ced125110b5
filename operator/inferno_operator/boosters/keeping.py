"""What of a child has to stay as it is, whatever a conversion says; pure.

Replicas and bounds that the plan, a scaler or an autoscaler set; and gang policies, of which
the API server refuses any change.
"""

from collections.abc import Mapping
from typing import Any

from inferno_operator.boosters.booster import Backend, Booster
from inferno_operator.boosters.dialects import Dialect
from inferno_operator.ports import Manifest

Json = dict[str, Any]

FIELD_MANAGER = "inferno-model-booster"
"""Who owns what we write."""

PLAN_MANAGERS = "inferno-"
"""How the names of ours begin that write what the plan says."""

BOUNDS = ("minReplicas", "maxReplicas")


def kept(
    booster: Booster, wanted: Json, current: Manifest | None, dialect: Dialect
) -> tuple[Json, list[str]]:
    """The manifest of a child with what has to stay, and remarks on what is not as asked for.

    A field that others own is left out; one that we own too is sent as it is, for what an
    apply leaves out is removed, together with the version that it is of.
    """
    if current is None:
        return wanted, []
    if wanted["kind"] == dialect.serving.kind:
        return _kept_serving(booster, wanted, current)
    if wanted["kind"] == dialect.binding.kind:
        return _kept_binding(wanted, current), []
    return wanted, []


def is_foreign(booster: Booster, child: Manifest) -> bool:
    """Whether a child was not made for this very booster."""
    owners = child["metadata"].get("ownerReferences") or ()
    return all(owner.get("uid") != booster.metadata.uid for owner in owners)


def _kept_serving(booster: Booster, wanted: Json, current: Manifest) -> tuple[Json, list[str]]:
    name = wanted["metadata"]["name"]
    backend = next(b for b in booster.spec.backends if booster.child_name(b) == name)
    template, remarks = _kept_gang(wanted["spec"]["template"], current)
    changed = {**wanted, "spec": {**wanted["spec"], "template": template}}
    managers = managers_of(current, "f:replicas")
    now = current["spec"].get("replicas")
    replicas = _replicas(booster, backend, now, managers)
    if now != replicas:
        changed["spec"]["replicas"] = replicas
        return changed, remarks
    if FIELD_MANAGER not in managers:
        del changed["spec"]["replicas"]
        return changed, remarks
    changed["spec"]["replicas"] = now
    return _unless_changed(changed, current), remarks


def _kept_gang(template: Json, current: Manifest) -> tuple[Json, list[str]]:
    old = current["spec"].get("template", {}).get("gangPolicy")
    if not old or old == template.get("gangPolicy"):
        return template, []
    name = current["metadata"]["name"]
    remark = f"{name} keeps its gang policy, which cannot change; delete it to have it made anew"
    return {**template, "gangPolicy": old}, [remark]


def _replicas(
    booster: Booster, backend: Backend, now: int | None, managers: Mapping[str, str]
) -> int:
    low, high = backend.min_replicas, backend.max_replicas
    if now is None:
        return low
    if "scale" in managers.values() or _has_plan(managers):
        return now
    policies = (booster.spec.autoscaling_policy, backend.autoscaling_policy)
    is_scaled = any(policy is not None for policy in policies)
    return min(max(now, low), high) if is_scaled else low


def _kept_binding(wanted: Json, current: Manifest) -> Json:
    for part, keep in (("scalingConfiguration", _one), ("optimizerConfiguration", _several)):
        if part in wanted["spec"] and part in current["spec"]:
            return keep(wanted, current, part)
    return wanted


def _one(wanted: Json, current: Manifest, part: str) -> Json:
    """Bounds of one target."""
    managers = managers_of(current, f"f:{part}", f"f:{BOUNDS[0]}")
    if not _has_plan(managers):
        return wanted
    configuration = dict(wanted["spec"][part])
    if FIELD_MANAGER in managers:
        configuration |= {name: current["spec"][part][name] for name in BOUNDS}
    else:
        configuration = {k: v for k, v in configuration.items() if k not in BOUNDS}
    changed = {**wanted, "spec": {**wanted["spec"], part: configuration}}
    return _unless_changed(changed, current) if FIELD_MANAGER in managers else changed


def _several(wanted: Json, current: Manifest, part: str) -> Json:
    """Bounds of several targets, in a list that has one owner as a whole."""
    if not _has_plan(managers_of(current, f"f:{part}", "f:params")):
        return wanted
    now = {param["target"]["targetRef"]["name"]: param for param in current["spec"][part]["params"]}
    params = []
    for param in wanted["spec"][part]["params"]:
        stays = now.get(param["target"]["targetRef"]["name"], {})
        params.append({**param, **{name: stays[name] for name in BOUNDS if name in stays}})
    configuration = {**wanted["spec"][part], "params": params}
    changed = {**wanted, "spec": {**wanted["spec"], part: configuration}}
    return _unless_changed(changed, current)


def _unless_changed(manifest: Json, current: Manifest) -> Json:
    """Applied only if the object is as it was seen."""
    version = {"resourceVersion": current["metadata"]["resourceVersion"]}
    return {**manifest, "metadata": {**manifest["metadata"], **version}}


def _has_plan(managers: Mapping[str, str]) -> bool:
    return any(name.startswith(PLAN_MANAGERS) and name != FIELD_MANAGER for name in managers)


def managers_of(child: Manifest, *path: str) -> dict[str, str]:
    """Who owns a field of the spec, and by which subresource."""
    entries = child["metadata"].get("managedFields") or ()
    return {
        entry.get("manager", ""): entry.get("subresource", "")
        for entry in entries
        if _reaches(entry.get("fieldsV1", {}).get("f:spec", {}), path)
    }


def _reaches(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a path is in a set of fields, as the API server writes them."""
    for step in path:
        if step not in fields:
            return False
        fields = fields[step]
    return True
