"""Fields of a child that an update must preserve; pure.

These are replicas and bounds that the optimizer's plan, the scale subresource or an autoscaler
sets, and gang policies, which the API server does not allow to change.
"""

from collections.abc import Collection, Container, Mapping
from typing import Any, NamedTuple

from inferno_operator.controllers.boosters.booster import ANNOTATION, BOUNDS, Booster, ModelBackend
from inferno_operator.resources.dialects import Dialect
from inferno_operator.resources.objects import Manifest
from inferno_operator.runtime.ports import FieldManager

Json = dict[str, Any]

PLAN_MANAGERS = "inferno-"
"""Prefix of the field managers of this operator that write the optimizer's plan."""


ROLE_REPLICAS = f"{ANNOTATION}role-replicas"
"""Label of a serving with several roles: the replicas of each that its booster asks for."""

SCALING = ("scalingConfiguration", "homogeneousTarget")
OPTIMIZING = "optimizerConfiguration"
"""Parts of a binding: the first are for one backend, the second is for the whole model."""


class FieldOwner(NamedTuple):
    """The owner of a field: the manager, and the subresource that it wrote."""

    manager: str
    subresource: str


def with_preserved_fields(
    booster: Booster,
    wanted: Json,
    current: Manifest | None,
    dialect: Dialect,
    held: Container[str] = (),
) -> tuple[Json, list[str]]:
    """Return the manifest of a child with preserved fields, and remarks on unchanged fields.

    Backends in `held` have an invalid spec and keep their bounds.

    A preserved field that only others own is left out of the manifest. If this controller owns
    it too, the manifest has its current value, because an apply removes owned fields that it
    leaves out; the manifest then has the resourceVersion, so that it fails if the value changed.
    """
    if wanted["kind"] == dialect.serving.kind:
        wanted = _kept_roles(wanted, current)
    if current is None:
        return wanted, []
    if wanted["kind"] == dialect.serving.kind:
        return _kept_serving(booster, wanted, current)
    if wanted["kind"] == dialect.binding.kind:
        standing = {booster.child_name(b) for b in booster.spec.backends if b.name in held}
        return _kept_binding(wanted, current, standing), []
    return wanted, []


def is_foreign(booster: Booster, child: Manifest) -> bool:
    """Whether an object is not owned by this booster."""
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
    if not _is_ours(managers):
        del changed["spec"]["replicas"]
        return changed, remarks
    changed["spec"]["replicas"] = now
    return _unless_changed(changed, current), remarks


def _kept_roles(wanted: Json, current: Manifest | None) -> Json:
    """Keep the replicas of roles that were scaled, until the booster asks for other numbers.

    The list of roles has one owner, so that the owner does not tell who has set a number.
    """
    template, metadata = wanted["spec"]["template"], wanted["metadata"]
    if len(template["roles"]) == 1:
        return wanted
    asked = ".".join(f"{role['name']}-{role['replicas']}" for role in template["roles"])
    labels = {**metadata["labels"], ROLE_REPLICAS: asked}
    changed = {**wanted, "metadata": {**metadata, "labels": labels}}
    if current is None or current["metadata"].get("labels", {}).get(ROLE_REPLICAS) != asked:
        return changed
    present = current["spec"].get("template", {}).get("roles", ())
    now = {role["name"]: role.get("replicas", 1) for role in present}
    roles = [{**r, "replicas": now.get(r["name"], r["replicas"])} for r in template["roles"]]
    spec = {**wanted["spec"], "template": {**template, "roles": roles}}
    return _unless_changed({**changed, "spec": spec}, current)


def _kept_gang(template: Json, current: Manifest) -> tuple[Json, list[str]]:
    old = current["spec"].get("template", {}).get("gangPolicy")
    if not old or old == template.get("gangPolicy"):
        return template, []
    name = current["metadata"]["name"]
    remark = (
        f"{name} keeps its gang policy, which cannot change: delete {name} to have it created"
        " again with the new one"
    )
    return {**template, "gangPolicy": old}, [remark]


def _replicas(
    booster: Booster, backend: ModelBackend, now: int | None, managers: Collection[FieldOwner]
) -> int:
    low, high = backend.min_replicas, backend.max_replicas
    if now is None:
        return low
    if any(owner.subresource == "scale" for owner in managers) or _has_plan(managers):
        return now
    policies = (booster.spec.autoscaling_policy, backend.autoscaling_policy)
    is_scaled = any(policy is not None for policy in policies)
    return min(max(now, low), high) if is_scaled else low


def _kept_binding(wanted: Json, current: Manifest, standing: Container[str]) -> Json:
    for part in SCALING:
        if _has_part(part, wanted, current):
            return _one(part, wanted, current)
    if _has_part(OPTIMIZING, wanted, current):
        return _several(wanted, current, standing)
    return wanted


def _has_part(part: str, wanted: Json, current: Manifest) -> bool:
    return part in wanted["spec"] and part in current["spec"]


def _one(part: str, wanted: Json, current: Manifest) -> Json:
    """Preserve the bounds of a binding with one target."""
    managers = managers_of(current, f"f:{part}", f"f:{BOUNDS[0]}")
    if not _has_plan(managers):
        return wanted
    configuration = dict(wanted["spec"][part])
    if _is_ours(managers):
        configuration |= {name: current["spec"][part][name] for name in BOUNDS}
    else:
        configuration = {k: v for k, v in configuration.items() if k not in BOUNDS}
    changed = {**wanted, "spec": {**wanted["spec"], part: configuration}}
    return _unless_changed(changed, current) if _is_ours(managers) else changed


def _several(wanted: Json, current: Manifest, standing: Container[str]) -> Json:
    """Preserve the bounds of a binding with several targets, which are in an atomic list."""
    has_plan = _has_plan(managers_of(current, f"f:{OPTIMIZING}", "f:params"))
    now = {_target(param): param for param in current["spec"][OPTIMIZING]["params"]}
    params = []
    for param in wanted["spec"][OPTIMIZING]["params"]:
        stays = now.get(_target(param), {}) if has_plan or _target(param) in standing else {}
        params.append({**param, **{name: stays[name] for name in BOUNDS if name in stays}})
    configuration = {**wanted["spec"][OPTIMIZING], "params": params}
    changed = {**wanted, "spec": {**wanted["spec"], OPTIMIZING: configuration}}
    return _unless_changed(changed, current) if has_plan else changed


def _target(param: Manifest) -> str:
    name: str = param["target"]["targetRef"]["name"]
    return name


def _unless_changed(manifest: Json, current: Manifest) -> Json:
    """Return the manifest with the version of the object, so that it fails if that changed."""
    version = {"resourceVersion": current["metadata"]["resourceVersion"]}
    return {**manifest, "metadata": {**manifest["metadata"], **version}}


def _is_ours(managers: Collection[FieldOwner]) -> bool:
    return any(owner.manager == FieldManager.BOOSTERS for owner in managers)


def _has_plan(managers: Collection[FieldOwner]) -> bool:
    names = {owner.manager for owner in managers} - {FieldManager.BOOSTERS}
    return any(name.startswith(PLAN_MANAGERS) for name in names)


def managers_of(child: Manifest, *path: str) -> frozenset[FieldOwner]:
    """Return the owners of a field of the spec."""
    entries = child["metadata"].get("managedFields") or ()
    return frozenset(
        FieldOwner(entry.get("manager", ""), entry.get("subresource", ""))
        for entry in entries
        if _reaches(entry.get("fieldsV1", {}).get("f:spec", {}), path)
    )


def _reaches(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a path is in a `fieldsV1` set of fields."""
    for step in path:
        if step not in fields:
            return False
        fields = fields[step]
    return True
