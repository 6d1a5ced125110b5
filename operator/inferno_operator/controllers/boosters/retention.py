"""Fields of a child that an update must preserve; pure.

These are replicas and bounds that a Server decides, or that the optimizer's plan, the scale
subresource or an autoscaler sets, and gang policies, which the API server does not allow to change.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from inferno_operator.controllers.boosters.booster import ANNOTATION, BOUNDS, Booster, ModelBackend
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED
from inferno_operator.resources.dialects import Dialect, Release
from inferno_operator.resources.objects import Manifest
from inferno_operator.resources.serving_roles import kind_of_serving
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


class Decider(NamedTuple):
    """A Server that decides the replicas of a backend, of its roles, or both."""

    server: str
    has_replicas: bool
    has_roles: bool


def find_deciders(
    booster: Booster, servers: Iterable[Server], dialect: Dialect
) -> Mapping[str, Decider]:
    """Return the Servers that decide for backends whose booster has other numbers, by backend.

    Each edit of a booster can set the numbers of its file, until actuation has set its own again.
    The numbers in the booster are those that were decided as long as actuation owns them.
    """
    named = [s for s in servers if _decides(s)]
    referring = [s for s in named if _refers(s, booster, dialect)]
    holder = min(referring, key=lambda server: server.age, default=None)
    owners = [] if holder is None else [holder]
    owners += [s for s in named if s.spec.model_booster is None]
    deciders = {b.name: _decider(booster, b, owners, dialect) for b in booster.spec.backends}
    return {name: decider for name, decider in deciders.items() if decider is not None}


def _decides(server: Server) -> bool:
    """Whether what runs of a Server is as it was decided, or stays as it is."""
    actuated = server.status.condition(ACTUATED)
    is_executed = actuated is None or actuated.reason != RECOMMENDED
    is_there = server.metadata.deletion_timestamp is None
    return is_there and is_executed and server.status.condition(ALLOCATED) is not None


def _refers(server: Server, booster: Booster, dialect: Dialect) -> bool:
    reference = server.spec.model_booster
    return (
        reference is not None
        and reference.dialect == dialect.name
        and booster.metadata.name in reference.boosters
    )


def _decider(
    booster: Booster, backend: ModelBackend, servers: Iterable[Server], dialect: Dialect
) -> Decider | None:
    serving = booster.child_name(backend)
    for server in servers:
        parts = set(_decided_parts(server, serving, dialect))
        if parts and not _is_actuated(booster, backend, has_roles=parts != {"Both"}):
            of_booster = server.spec.model_booster is not None
            return Decider(server.metadata.name, of_booster or "Both" in parts, parts != {"Both"})
    return None


def _decided_parts(server: Server, serving: str, dialect: Dialect) -> Iterator[str]:
    """Yield the roles of a serving that a Server decides for; "Both" is the serving as a whole."""
    reference = server.spec.model_booster
    for backend in reference.backends if reference is not None else ():
        if reference is not None and reference.serving_of(backend) == serving:
            yield backend.role
    for workload in server.spec.workloads if server.spec.actuation == "Scale" else ():
        if workload.name == serving and kind_of_serving(workload) == dialect.serving:
            yield workload.role


def _is_actuated(booster: Booster, backend: ModelBackend, *, has_roles: bool) -> bool:
    """Whether actuation owns the numbers of a backend in its booster."""
    path = ("f:backends", f'k:{{"name":"{backend.name}"}}')
    numbers = ("replicas",) if booster.release >= Release.V1_0 else BOUNDS
    owners = (
        _owners_of(
            booster.metadata.managed_fields,
            *(("f:backend",) if booster.is_single else path),
            f"f:{name}",
        )
        for name in (*numbers, *(("workers",) if has_roles else ()))
    )
    return all(map(_has_plan, owners))


def with_preserved_fields(
    booster: Booster,
    wanted: Json,
    current: Manifest | None,
    dialect: Dialect,
    held: Collection[str] = (),
    deciders: Mapping[str, Decider] | None = None,
) -> tuple[Json, list[str]]:
    """Return the manifest of a child with preserved fields, and remarks on unchanged fields.

    Backends in `held` have an invalid spec and keep their bounds. Those in `deciders` keep what
    a Server has decided.

    A preserved field that only others own is left out of the manifest. If this controller owns
    it too, the manifest has its current value, because an apply removes owned fields that it
    leaves out; the manifest then has the resourceVersion, so that it fails if the value changed.
    """
    decided = {booster.child_name(b): (deciders or {}).get(b.name) for b in booster.spec.backends}
    if wanted["kind"] == dialect.serving.kind:
        decider = decided[wanted["metadata"]["name"]]
        wanted, remarks = _kept_roles(wanted, current, decider)
        if current is None:
            return wanted, remarks
        kept, more = _kept_serving(booster, wanted, current, decider)
        return kept, [*more, *remarks]
    if current is not None and wanted["kind"] == dialect.binding.kind:
        standing = {booster.child_name(b) for b in booster.spec.backends if b.name in held}
        standing |= {name for name, each in decided.items() if each and each.has_replicas}
        return _kept_binding(wanted, current, standing), []
    return wanted, []


def is_foreign(booster: Booster, child: Manifest) -> bool:
    """Whether an object is not owned by this booster."""
    owners = child["metadata"].get("ownerReferences") or ()
    return all(owner.get("uid") != booster.metadata.uid for owner in owners)


def _kept_serving(
    booster: Booster, wanted: Json, current: Manifest, decider: Decider | None
) -> tuple[Json, list[str]]:
    name = wanted["metadata"]["name"]
    backend = next(b for b in booster.spec.backends if booster.child_name(b) == name)
    template, remarks = _kept_gang(wanted["spec"]["template"], current)
    changed = {**wanted, "spec": {**wanted["spec"], "template": template}}
    managers = managers_of(current, "f:replicas")
    now = current["spec"].get("replicas")
    replicas = _replicas(booster, backend, now, managers)
    if decider is not None and decider.has_replicas and now is not None:
        if now != replicas:
            remarks.append(f"{name} keeps {now} replicas: Server {decider.server!r} decides them")
        replicas = now
    if now != replicas:
        changed["spec"]["replicas"] = replicas
        return changed, remarks
    if not _is_ours(managers):
        del changed["spec"]["replicas"]
        return changed, remarks
    changed["spec"]["replicas"] = now
    return _unless_changed(changed, current), remarks


def _kept_roles(
    wanted: Json, current: Manifest | None, decider: Decider | None
) -> tuple[Json, list[str]]:
    """Keep the replicas of roles that were scaled, until the booster asks for other numbers.

    Where a Server decides them, they stay even then, until actuation has set them in the booster.

    The list of roles has one owner, so that the owner does not tell who has set a number.
    """
    template, metadata = wanted["spec"]["template"], wanted["metadata"]
    if len(template["roles"]) == 1:
        return wanted, []
    asked = ".".join(f"{role['name']}-{role['replicas']}" for role in template["roles"])
    before = current and current["metadata"].get("labels", {}).get(ROLE_REPLICAS)
    remarks = []
    if before and before != asked and decider is not None and decider.has_roles:
        name, asked = metadata["name"], before
        remarks.append(f"{name} keeps the replicas of its roles: Server {decider.server!r} decides")
    labels = {**metadata["labels"], ROLE_REPLICAS: asked}
    changed = {**wanted, "metadata": {**metadata, "labels": labels}}
    if current is None or before != asked:
        return changed, []
    present = current["spec"].get("template", {}).get("roles", ())
    now = {role["name"]: role.get("replicas", 1) for role in present}
    roles = [{**r, "replicas": now.get(r["name"], r["replicas"])} for r in template["roles"]]
    spec = {**wanted["spec"], "template": {**template, "roles": roles}}
    return _unless_changed({**changed, "spec": spec}, current), remarks


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
            return _one(part, wanted, current, standing)
    if _has_part(OPTIMIZING, wanted, current):
        return _several(wanted, current, standing)
    return wanted


def _has_part(part: str, wanted: Json, current: Manifest) -> bool:
    return part in wanted["spec"] and part in current["spec"]


def _one(part: str, wanted: Json, current: Manifest, standing: Container[str]) -> Json:
    """Preserve the bounds of a binding with one target."""
    managers = managers_of(current, f"f:{part}", f"f:{BOUNDS[0]}")
    if not _has_plan(managers) and _target(wanted["spec"][part]) not in standing:
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
    return _owners_of(child["metadata"].get("managedFields") or (), *path)


def _owners_of(entries: Iterable[Mapping[str, Any]], *path: str) -> frozenset[FieldOwner]:
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
