"""Compare the children that a booster has with those that it should have; pure.

An update preserves some fields of a child: replicas and bounds that a Server decides, or that the
optimizer's plan, the scale subresource or an autoscaler sets; and gang policies, which the API
server does not allow to change.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from inferno_operator.controllers.boosters.booster import ANNOTATION, BOUNDS, Booster, ModelBackend
from inferno_operator.controllers.boosters.children import convert_backends, select_targets
from inferno_operator.controllers.boosters.conversion import BoosterProblem, ChildPlace
from inferno_operator.controllers.boosters.validation import list_advice, list_problems
from inferno_operator.resources import Server
from inferno_operator.resources.conditions import ACTUATED, ALLOCATED, RECOMMENDED
from inferno_operator.resources.dialects import Dialect, Release
from inferno_operator.resources.objects import Kind, Manifest, Reference
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


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a child; `new` if it does not exist."""

    kind: Kind
    manifest: Manifest
    new: bool


@dataclass(frozen=True, slots=True)
class ChildWrites:
    """Writes, in order, deletions after them, and problems."""

    applies: tuple[Apply, ...] = ()
    scale_downs: tuple[Apply, ...] = ()
    """Servings to scale to zero, after `applies` removed them from the route."""
    deletes: tuple[Reference, ...] = ()
    """Children that are not wanted any more."""
    problems: tuple[BoosterProblem, ...] = ()
    """Problems because of which a child is not created or updated."""
    invalid: tuple[BoosterProblem, ...] = ()
    """All invalid fields of the booster, including those without effect on the children."""
    remarks: tuple[str, ...] = ()
    """Fields that cannot be changed as requested, although no write failed."""


def plan_changes(
    booster: Booster,
    present: Iterable[Manifest],
    dialect: Dialect,
    servers: Iterable[Server] = (),
) -> ChildWrites:
    """Plan the writes for a booster.

    `present` are the objects that it owns, and other objects with the names of its children;
    `servers` are the Servers of its namespace.
    """
    existing = {_place(child): child for child in present}
    bad, advised = list_problems(booster), list_advice(booster, dialect)
    if any(not problem.backend for problem in bad):
        return ChildWrites(problems=bad, invalid=(*bad, *advised))

    # Convert what can be converted. The other backends go on as they were.
    taken = {place for place, child in existing.items() if is_foreign(booster, child)}
    backends, invalid = booster.spec.backends, {problem.backend for problem in bad}
    good = [backend for backend in backends if backend.name not in invalid]
    servers_of_backends = {b.name: (dialect.server.kind, booster.child_name(b)) for b in backends}
    standing = {n for n, place in servers_of_backends.items() if place in existing.keys() - taken}
    converted = convert_backends(booster, good, dialect, standing=standing, taken=taken)
    bad += converted.problems
    held = {problem.backend for problem in bad}

    # Preserve what others have set. Names that other owners use are problems.
    foreign, wanted, remarks = list[BoosterProblem](), list[Json](), list[str]()
    deciders = find_deciders(booster, servers, dialect)
    for child in converted.children:
        place = _place(child)
        if place in taken:
            text = "already exists and has another owner; delete or rename it"
            foreign.append(BoosterProblem(" ".join(place), text))
            continue
        current = existing.get(place)
        changed, said = preserve_fields(booster, child, current, dialect, held, deciders)
        wanted.append(changed)
        remarks += said

    # Write what differs. What is being deleted is created again after that.
    kinds = {kind.kind: kind for kind in dialect.children}
    applies, scale_downs = list[Apply](), list[Apply]()
    for child in select_targets(wanted, existing, dialect):
        current = existing.get(_place(child))
        if current is None or not (is_terminating(current) or is_applied(child, current)):
            action = Apply(kinds[child["kind"]], child, new=current is None)
            is_idled = not action.new and child["spec"].get("replicas") == 0
            (scale_downs if is_idled else applies).append(action)

    # Delete what is not wanted any more; bindings before their policies.
    kept = {*taken, *map(_place, converted.children)}
    label = dialect.label("backend-name")
    deletes = tuple(
        Reference.of(kind, child)
        for kind in reversed(dialect.children)
        for place, child in existing.items()
        if place[0] == kind.kind
        and place not in kept
        and not is_terminating(child)
        and (child["metadata"].get("labels") or {}).get(label) not in held
    )
    return ChildWrites(
        tuple(applies),
        tuple(scale_downs),
        deletes,
        (*bad, *foreign),
        (*bad, *advised),
        tuple(remarks),
    )


def is_terminating(child: Manifest) -> bool:
    """Whether a child is being deleted."""
    return child["metadata"].get("deletionTimestamp") is not None


def is_foreign(booster: Booster, child: Manifest) -> bool:
    """Whether an object is not owned by this booster."""
    owners = child["metadata"].get("ownerReferences") or ()
    return all(owner.get("uid") != booster.metadata.uid for owner in owners)


def _place(child: Manifest) -> ChildPlace:
    return child["kind"], child["metadata"]["name"]


def holds(wanted: object, current: object) -> bool:
    """Whether a value has all wanted fields; fields added by others or the API are ignored.

    Lists are compared item by item, so an added item is a difference.
    """
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(
            key in current and holds(value, current[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(current, list | tuple)
            and len(wanted) == len(current)
            and all(map(holds, wanted, current))
        )
    return wanted == current


def is_applied(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> bool:
    """Whether an object has the labels, the owner and the spec of a manifest.

    A field that was removed from the manifest changes its revision label.
    """
    wanted_metadata, metadata = wanted["metadata"], current["metadata"]
    owners = metadata.get("ownerReferences") or ()
    return (
        holds(wanted_metadata["labels"], metadata.get("labels"))
        and any(holds(wanted_metadata["ownerReferences"][0], owner) for owner in owners)
        and holds(wanted["spec"], current.get("spec"))
    )


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
    named, referring = list[Server](), list[Server]()
    for server in servers:
        actuated, reference = server.status.condition(ACTUATED), server.spec.model_booster
        is_executed = actuated is None or actuated.reason != RECOMMENDED
        is_decided = server.status.condition(ALLOCATED) is not None
        if not (is_executed and is_decided) or server.metadata.deletion_timestamp is not None:
            continue
        if reference is None:
            named.append(server)
        elif reference.dialect == dialect.name and booster.metadata.name in reference.boosters:
            referring.append(server)
    oldest = sorted(referring, key=lambda server: server.age)[:1]
    deciders = {
        b.name: _find_decider(booster, b, [*oldest, *named], dialect) for b in booster.spec.backends
    }
    return {name: decider for name, decider in deciders.items() if decider is not None}


def _find_decider(
    booster: Booster, backend: ModelBackend, servers: Iterable[Server], dialect: Dialect
) -> Decider | None:
    serving = booster.child_name(backend)
    for server in servers:
        roles = set(_list_decided_roles(server, serving, dialect))
        if roles and not _is_actuated(booster, backend, has_roles=roles != {"Both"}):
            of_booster = server.spec.model_booster is not None
            return Decider(server.metadata.name, of_booster or "Both" in roles, roles != {"Both"})
    return None


def _list_decided_roles(server: Server, serving: str, dialect: Dialect) -> Iterator[str]:
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
    whole = ("f:backends", f'k:{{"name":"{backend.name}"}}')
    path = ("f:backend",) if booster.is_single else whole
    numbers = ("replicas",) if booster.release >= Release.V1_0 else BOUNDS
    fields = (*numbers, *(("workers",) if has_roles else ()))
    entries = booster.metadata.managed_fields
    return all(_has_plan(_list_owners(entries, *path, f"f:{name}")) for name in fields)


def preserve_fields(
    booster: Booster,
    wanted: Json,
    current: Manifest | None,
    dialect: Dialect,
    held: Collection[str],
    deciders: Mapping[str, Decider],
) -> tuple[Json, list[str]]:
    """Return the manifest of a child with preserved fields, and remarks on unchanged fields.

    Backends in `held` have an invalid spec and keep their bounds. Those in `deciders` keep what
    a Server has decided.

    A preserved field that only others own is left out of the manifest. If this controller owns
    it too, the manifest has its current value, because an apply removes owned fields that it
    leaves out; the manifest then has the resourceVersion, so that it fails if the value changed.
    """
    decided = {booster.child_name(b): deciders.get(b.name) for b in booster.spec.backends}
    if wanted["kind"] == dialect.serving.kind:
        decider = decided[wanted["metadata"]["name"]]
        wanted, remarks = _keep_roles(wanted, current, decider)
        if current is None:
            return wanted, remarks
        kept, more = _keep_serving(booster, wanted, current, decider)
        return kept, [*more, *remarks]
    if current is not None and wanted["kind"] == dialect.binding.kind:
        standing = {booster.child_name(b) for b in booster.spec.backends if b.name in held}
        standing |= {name for name, each in decided.items() if each and each.has_replicas}
        return _keep_binding(wanted, current, standing), []
    return wanted, []


def _keep_serving(
    booster: Booster, wanted: Json, current: Manifest, decider: Decider | None
) -> tuple[Json, list[str]]:
    name = wanted["metadata"]["name"]
    backend = next(b for b in booster.spec.backends if booster.child_name(b) == name)
    template, remarks = _keep_gang(wanted["spec"]["template"], current)
    changed = {**wanted, "spec": {**wanted["spec"], "template": template}}
    owners = _list_owners(current["metadata"].get("managedFields") or (), "f:replicas")
    now = current["spec"].get("replicas")
    replicas = _find_replicas(booster, backend, now, owners)
    if decider is not None and decider.has_replicas and now is not None:
        if now != replicas:
            remarks.append(f"{name} keeps {now} replicas: Server {decider.server!r} decides them")
        replicas = now
    if now != replicas:
        changed["spec"]["replicas"] = replicas
        return changed, remarks
    if not _is_ours(owners):
        del changed["spec"]["replicas"]
        return changed, remarks
    changed["spec"]["replicas"] = now
    return _unless_changed(changed, current), remarks


def _find_replicas(
    booster: Booster, backend: ModelBackend, now: int | None, owners: Collection[FieldOwner]
) -> int:
    low, high = backend.min_replicas, backend.max_replicas
    if now is None:
        return low
    if any(owner.subresource == "scale" for owner in owners) or _has_plan(owners):
        return now
    policies = (booster.spec.autoscaling_policy, backend.autoscaling_policy)
    is_scaled = any(policy is not None for policy in policies)
    return min(max(now, low), high) if is_scaled else low


def _keep_roles(
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


def _keep_gang(template: Json, current: Manifest) -> tuple[Json, list[str]]:
    old = current["spec"].get("template", {}).get("gangPolicy")
    if not old or old == template.get("gangPolicy"):
        return template, []
    name = current["metadata"]["name"]
    remark = (
        f"{name} keeps its gang policy, which cannot change: delete {name} to have it created"
        " again with the new one"
    )
    return {**template, "gangPolicy": old}, [remark]


def _keep_binding(wanted: Json, current: Manifest, standing: Container[str]) -> Json:
    """Preserve the bounds of a binding; those of several targets are in an atomic list."""
    found = [p for p in (*SCALING, OPTIMIZING) if p in wanted["spec"] and p in current["spec"]]
    if not found:
        return wanted
    field, entries = found[0], current["metadata"].get("managedFields") or ()
    asked, now = wanted["spec"][field], current["spec"][field]
    if field == OPTIMIZING:
        must_match = has_plan = _has_plan(_list_owners(entries, f"f:{field}", "f:params"))
        known, params = {_target(param): param for param in now["params"]}, []
        for param in asked["params"]:
            stays = known.get(_target(param), {}) if has_plan or _target(param) in standing else {}
            params.append({**param, **{name: stays[name] for name in BOUNDS if name in stays}})
        kept = {**asked, "params": params}
    else:
        owners = _list_owners(entries, f"f:{field}", f"f:{BOUNDS[0]}")
        if not _has_plan(owners) and _target(asked) not in standing:
            return wanted
        must_match = _is_ours(owners)
        bounds = {name: now[name] for name in BOUNDS} if must_match else {}
        kept = {**{k: v for k, v in asked.items() if k not in BOUNDS}, **bounds}
    changed = {**wanted, "spec": {**wanted["spec"], field: kept}}
    return _unless_changed(changed, current) if must_match else changed


def _target(param: Manifest) -> str:
    name: str = param["target"]["targetRef"]["name"]
    return name


def _unless_changed(manifest: Json, current: Manifest) -> Json:
    """Return the manifest with the version of the object, so that it fails if that changed."""
    version = {"resourceVersion": current["metadata"]["resourceVersion"]}
    return {**manifest, "metadata": {**manifest["metadata"], **version}}


def _is_ours(owners: Collection[FieldOwner]) -> bool:
    return any(owner.manager == FieldManager.BOOSTERS for owner in owners)


def _has_plan(owners: Collection[FieldOwner]) -> bool:
    names = {owner.manager for owner in owners} - {FieldManager.BOOSTERS}
    return any(name.startswith(PLAN_MANAGERS) for name in names)


def _list_owners(entries: Iterable[Mapping[str, Any]], *path: str) -> frozenset[FieldOwner]:
    """Return the owners of a field of the spec, as `managedFields` has them."""
    owners = set()
    for entry in entries:
        fields = entry.get("fieldsV1", {}).get("f:spec", {})
        for step in path:
            fields = fields.get(step) if fields is not None else None
        if fields is not None:
            owners.add(FieldOwner(entry.get("manager", ""), entry.get("subresource", "")))
    return frozenset(owners)
