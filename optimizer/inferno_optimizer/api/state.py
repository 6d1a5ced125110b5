"""What a server keeps, as an immutable value; every way to look at or change it; their calls.

A change returns a new value and leaves the old one as it is, so that a reader or an
optimization that holds the old one never sees a change half done. Answers are those of the
original, also the messages that something is not found. `LOOKS` and `EDITS` are the published calls
with their paths.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, TypeVar

from inferno_optimizer.api.messages import Refusal
from inferno_optimizer.solution import Reason
from inferno_optimizer.system import LOWEST_PRIORITY
from inferno_optimizer.wire import tables
from inferno_optimizer.wire.codec import check_system
from inferno_optimizer.wire.fields import LARGEST_INTEGER, Document, Object, Schema
from inferno_optimizer.wire.tables import ALLOCATION, SYSTEM

T = TypeVar("T")

DECIMAL = re.compile(r"([+-]?)0*([0-9]{1,19})")
"""What 64 bits may hold; int() itself refuses thousands of digits, zeros too."""


@dataclass(frozen=True, slots=True)
class KeptClass:
    """A service class; its targets by model."""

    priority: int
    targets: Mapping[str, Document] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredSystem:
    """Documents by name; `models` hold performance data by accelerator, `roles` those of roles.

    The `desiredAlloc` of a server is None where nobody sent or computed one.
    """

    accelerators: Mapping[str, Document] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Document]] = field(default_factory=dict)
    classes: Mapping[str, KeptClass] = field(default_factory=dict)
    servers: Mapping[str, Document] = field(default_factory=dict)
    roles: Document | None = None


StateChange = tuple[StoredSystem, object]
"""The new contents, and the answer."""


def store_system(body: object) -> StoredSystem:
    """Store what the body of optimizeOne describes.

    Raises
    ------
    InputError
        Something has the wrong type.
    """
    system, contents = SYSTEM.fill(check_system(body, is_kept=True)), StoredSystem()
    for change, section in (
        (set_accelerators, "acceleratorData"),
        (set_capacities, "capacityData"),
        (set_models, "modelData"),
        (set_service_classes, "serviceClassData"),
        (set_servers, "serverData"),
    ):
        contents, _ = change(contents, system[section])
    return replace(contents, roles=system.get("roleData"))


def build_question(contents: StoredSystem, options: Document) -> Document:
    """Build the system that is to be optimized."""
    profiles = [data for model in contents.models.values() for data in model.values()]
    return {
        "acceleratorData": {"accelerators": get_accelerators(contents)},
        "capacityData": get_capacities(contents),
        "modelData": {"models": profiles},
        "roleData": contents.roles,
        "serviceClassData": get_service_classes(contents),
        "serverData": {"servers": [*contents.servers.values()]},
        "optimizerData": {"optimizer": options},
    }


def get_accelerators(contents: StoredSystem) -> object:
    """List all accelerators."""
    return [*contents.accelerators.values()]


def get_accelerator(contents: StoredSystem, name: str) -> object:
    """Get an accelerator."""
    return _get_known(contents.accelerators, name, f"accelerator {name}")


def set_accelerators(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace accelerators; others stay."""
    return _put_accelerators(contents, body["accelerators"]), body


def add_accelerator(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace an accelerator."""
    return _put_accelerators(contents, [body]), body


def remove_accelerator(contents: StoredSystem, name: str) -> StateChange:
    """Remove an accelerator."""
    removed = get_accelerator(contents, name)
    return replace(contents, accelerators=_drop(contents.accelerators, name)), removed


def _put_accelerators(contents: StoredSystem, added: Iterable[Document] | None) -> StoredSystem:
    return replace(contents, accelerators={**contents.accelerators, **_index_by_name(added)})


def get_capacities(contents: StoredSystem) -> Document:
    """List the capacity of every type."""
    return {"count": [_show_capacity(name, count) for name, count in contents.capacity.items()]}


def get_capacity(contents: StoredSystem, type: str) -> object:  # noqa: A002 - as on the wire
    """Get the capacity of a type."""
    return _show_capacity(type, _get_known(contents.capacity, type, f"capacity for {type}"))


def set_capacities(contents: StoredSystem, body: Document) -> StateChange:
    """Set the capacity of types; others stay."""
    return _put_capacity(contents, body["count"]), body


def set_capacity(contents: StoredSystem, body: Document) -> StateChange:
    """Set the capacity of a type."""
    return _put_capacity(contents, [body]), body


def remove_capacity(contents: StoredSystem, type: str) -> StateChange:  # noqa: A002 - as on the wire
    """Remove the capacity of a type."""
    count = _get_known(contents.capacity, type, f"accelerator type {type}")
    return replace(contents, capacity=_drop(contents.capacity, type)), _show_capacity(type, count)


def _show_capacity(card_type: str, count: int) -> Document:
    return {"type": card_type, "count": count}


def _put_capacity(contents: StoredSystem, added: Iterable[Document] | None) -> StoredSystem:
    counts = {document["type"]: document["count"] for document in added or ()}
    return replace(contents, capacity={**contents.capacity, **counts})


def get_models(contents: StoredSystem) -> object:
    """List the names of all models."""
    return [*contents.models]


def get_model(contents: StoredSystem, name: str) -> object:
    """Get the performance data of a model."""
    return {"models": [*_get_profiles(contents, name).values()]}


def set_models(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace performance data, and the models that they are of; other data stay."""
    models = {name: dict(data) for name, data in contents.models.items()}
    for data in body["models"] or ():
        models.setdefault(data["name"], {})[data["acc"]] = data
    return replace(contents, models=models), body


def add_model(contents: StoredSystem, name: str) -> StateChange:
    """Add a model without performance data; one of that name is replaced."""
    return _put_profiles(contents, name, {}), name


def remove_model(contents: StoredSystem, name: str) -> StateChange:
    """Remove a model with its performance data."""
    _get_profiles(contents, name)
    return replace(contents, models=_drop(contents.models, name)), name


def get_performance(contents: StoredSystem, name: str, acc: str) -> object:
    """Get the performance data of a model on an accelerator."""
    return _get_known(_get_profiles(contents, name), acc, f"accelerator {acc}")


def add_performance(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace the performance data of a known model on an accelerator."""
    data = _get_profiles(contents, body["name"])
    return _put_profiles(contents, body["name"], {**data, body["acc"]: body}), body


def remove_performance(contents: StoredSystem, name: str, acc: str) -> StateChange:
    """Remove the performance data of a model on an accelerator."""
    removed = get_performance(contents, name, acc)
    return _put_profiles(contents, name, _drop(_get_profiles(contents, name), acc)), removed


def _get_profiles(contents: StoredSystem, name: str) -> Mapping[str, Document]:
    return _get_known(contents.models, name, f"model {name}")


def _put_profiles(contents: StoredSystem, name: str, data: Mapping[str, Document]) -> StoredSystem:
    return replace(contents, models={**contents.models, name: data})


def get_service_classes(contents: StoredSystem) -> Document:
    """List all service classes."""
    return {"serviceClasses": [get_service_class(contents, name) for name in contents.classes]}


def get_service_class(contents: StoredSystem, name: str) -> Document:
    """Get a service class with its targets."""
    kept = _get_class(contents, name)
    return {"name": name, "priority": kept.priority, "modelTargets": [*kept.targets.values()]}


def set_service_classes(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace service classes, each as a whole; others stay."""
    classes = {
        document["name"]: KeptClass(
            _limit_priority(document["priority"]), _index_targets(document["modelTargets"])
        )
        for document in body["serviceClasses"] or ()
    }
    return replace(contents, classes={**contents.classes, **classes}), body


def add_service_class(contents: StoredSystem, name: str, priority: str) -> StateChange:
    """Add a service class without targets; one of that name is replaced."""
    match = DECIMAL.fullmatch(priority)
    number = int("".join(match.groups())) if match else None
    if number is None or not -LARGEST_INTEGER - 1 <= number <= LARGEST_INTEGER:
        raise Refusal.because(HTTPStatus.BAD_REQUEST, f"service class priority {priority} invalid")
    changed = _put_class(contents, name, KeptClass(_limit_priority(number)))
    return changed, get_service_class(changed, name)


def remove_service_class(contents: StoredSystem, name: str) -> StateChange:
    """Remove a service class with its targets."""
    removed = get_service_class(contents, name)
    return replace(contents, classes=_drop(contents.classes, name)), removed


def get_target(contents: StoredSystem, name: str, model: str) -> object:
    """Get the targets of a model in a service class."""
    return _get_known(_get_class(contents, name).targets, model, f"model {model}")


def add_targets(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace targets of models in a known service class, whose priority is repeated."""
    name, priority = body["name"], body["priority"]
    kept = contents.classes.get(name)
    if kept is None:
        raise Refusal(HTTPStatus.NOT_FOUND, f"service class {name} not found")
    if priority != kept.priority:
        raise Refusal(
            HTTPStatus.BAD_REQUEST, f"inconsistent specs: svcName={name} ; svcPrio={priority}"
        )
    targets = {**kept.targets, **_index_targets(body["modelTargets"])}
    changed = _put_class(contents, name, replace(kept, targets=targets))
    return changed, get_service_class(changed, name)


def add_target(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace the targets of a model in a service class, which is added where needed."""
    name, priority = body["name"], _limit_priority(body["priority"])
    if not body["model"]:
        raise Refusal.because(HTTPStatus.BAD_REQUEST, f"class {name!r}: model: name the model")
    kept = contents.classes.get(name, KeptClass(priority))
    if priority != kept.priority:
        message = f"inconsistent specs: svcName={name} ; svcPrio={body['priority']}"
        raise Refusal.because(HTTPStatus.BAD_REQUEST, message)
    target = {key: value for key, value in body.items() if key not in ("name", "priority")}
    targets = {**kept.targets, body["model"]: target}
    return _put_class(contents, name, replace(kept, targets=targets)), body


def remove_target(contents: StoredSystem, name: str, model: str) -> StateChange:
    """Remove the targets of a model in a service class."""
    removed, kept = get_target(contents, name, model), _get_class(contents, name)
    left = replace(kept, targets=_drop(kept.targets, model))
    return _put_class(contents, name, left), removed


def _get_class(contents: StoredSystem, name: str) -> KeptClass:
    return _get_known(contents.classes, name, f"service class {name}")


def _put_class(contents: StoredSystem, name: str, kept: KeptClass) -> StoredSystem:
    return replace(contents, classes={**contents.classes, name: kept})


def _index_targets(documents: Iterable[Document] | None) -> Mapping[str, Document]:
    return {document["model"]: document for document in documents or ()}


def _limit_priority(priority: int) -> int:
    return priority if 1 <= priority <= LOWEST_PRIORITY else LOWEST_PRIORITY


def get_servers(contents: StoredSystem) -> object:
    """List all servers."""
    return {"servers": [*map(_show_server, contents.servers.values())]}


def get_server(contents: StoredSystem, name: str) -> object:
    """Get a server."""
    return _show_server(_get_known(contents.servers, name, f"server {name}"))


def set_servers(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace servers; others stay."""
    return _put_servers(contents, body["servers"]), body


def add_server(contents: StoredSystem, body: Document) -> StateChange:
    """Add or replace a server."""
    return _put_servers(contents, [body]), body


def remove_server(contents: StoredSystem, name: str) -> StateChange:
    """Remove a server."""
    removed = get_server(contents, name)
    return replace(contents, servers=_drop(contents.servers, name)), removed


def apply_allocation(contents: StoredSystem) -> StateChange:
    """Make the desired allocation of every server the current one; its load stays.

    A server that has no desired allocation keeps what it runs on.
    """
    servers = {**contents.servers}
    for name, server in contents.servers.items():
        if desired := server["desiredAlloc"]:
            load = server["currentAlloc"]["load"]
            servers[name] = {**server, "currentAlloc": {**desired, "load": load}}
    return replace(contents, servers=servers), "Done"


def _show_server(server: Document) -> Document:
    return {**server, "desiredAlloc": server["desiredAlloc"] or ALLOCATION.empty}


def _put_servers(contents: StoredSystem, added: Iterable[Document] | None) -> StoredSystem:
    servers = {**contents.servers}
    for name, server in _index_by_name(added).items():
        # The original's controller sends a desired allocation always: mostly one of zeros.
        is_zero = server["desiredAlloc"] == ALLOCATION.empty
        servers[name] = {**server, "desiredAlloc": None} if is_zero else server
    return replace(contents, servers=servers)


def store_answer(
    contents: StoredSystem, asked: StoredSystem, answer: Mapping[str, Any]
) -> StoredSystem:
    """Put what was decided into the servers, save those that changed since it was asked.

    Where the decision is for nothing, a server is to run on nothing; where none was possible, it
    has no desired allocation.
    """
    servers = {**contents.servers}
    for name, server in contents.servers.items():
        if server is not asked.servers.get(name):
            continue
        desired: Document | None = None
        if name in answer["allocations"]:
            desired = ALLOCATION.keep(answer["allocations"][name])
        elif Reason(answer["unserved"][name]["reason"]).decided:
            desired = {**ALLOCATION.empty, "load": server["currentAlloc"]["load"]}
        servers[name] = {**server, "desiredAlloc": desired}
    return replace(contents, servers=servers)


def _get_known(documents: Mapping[str, T], name: str, what: str) -> T:
    if name not in documents:
        raise Refusal.because(HTTPStatus.NOT_FOUND, f"{what} not found")
    return documents[name]


def _index_by_name(documents: Iterable[Document] | None) -> Mapping[str, Document]:
    return {document["name"]: document for document in documents or ()}


def _drop(documents: Mapping[str, T], name: str) -> Mapping[str, T]:
    return {key: value for key, value in documents.items() if key != name}


NAME: Schema = {"type": "string"}


@dataclass(frozen=True, slots=True)
class Look:
    """A call that shows something of the contents; every server has it.

    `show` gets the contents and the parameters of the path by name.
    """

    path: str
    show: Callable[..., object]
    reply: Schema


@dataclass(frozen=True, slots=True)
class Edit:
    """A call that changes the contents; stateful servers have it.

    `change` gets the contents and the parameters of the path by name, or the body as `body`;
    the call is a POST when there is one, else a GET.
    """

    path: str
    change: Callable[..., StateChange]
    reply: Schema
    body: Object[Any] | None = None

    @property
    def method(self) -> str:
        """The verb of HTTP."""
        return "GET" if self.body is None else "POST"


def _build_echo(path: str, change: Callable[..., StateChange], body: Object[Any]) -> Edit:
    """Build a call that answers with what was sent."""
    return Edit(path, change, body.schema, body)


LOOKS = (
    Look(
        "/getAccelerators",
        get_accelerators,
        {"type": "array", "items": tables.ACCELERATOR.schema},
    ),
    Look("/getAccelerator/{name}", get_accelerator, tables.ACCELERATOR.schema),
    Look("/getCapacities", get_capacities, tables.CAPACITIES.schema),
    Look("/getCapacity/{type}", get_capacity, tables.CAPACITY.schema),
    Look("/getModels", get_models, {"type": "array", "items": NAME}),
    Look("/getModel/{name}", get_model, tables.MODELS.schema),
    Look(
        "/getModelAcceleratorPerf/{name}/{acc}",
        get_performance,
        tables.PERFORMANCE.schema,
    ),
    Look("/getServiceClasses", get_service_classes, tables.SERVICE_CLASSES.schema),
    Look("/getServiceClass/{name}", get_service_class, tables.SERVICE_CLASS.schema),
    Look("/getServiceClassModelTarget/{name}/{model}", get_target, tables.TARGET.schema),
    Look("/getServers", get_servers, tables.SERVERS.schema),
    Look("/getServer/{name}", get_server, tables.SERVER.schema),
)

EDITS = (
    _build_echo("/setAccelerators", set_accelerators, tables.ACCELERATORS),
    _build_echo("/addAccelerator", add_accelerator, tables.ACCELERATOR),
    Edit("/removeAccelerator/{name}", remove_accelerator, tables.ACCELERATOR.schema),
    _build_echo("/setCapacities", set_capacities, tables.CAPACITIES),
    _build_echo("/setCapacity", set_capacity, tables.CAPACITY),
    Edit("/removeCapacity/{type}", remove_capacity, tables.CAPACITY.schema),
    _build_echo("/setModels", set_models, tables.MODELS),
    Edit("/addModel/{name}", add_model, NAME),
    Edit("/removeModel/{name}", remove_model, NAME),
    _build_echo("/addModelAcceleratorPerf", add_performance, tables.PERFORMANCE),
    Edit(
        "/removeModelAcceleratorPerf/{name}/{acc}",
        remove_performance,
        tables.PERFORMANCE.schema,
    ),
    _build_echo("/setServiceClasses", set_service_classes, tables.SERVICE_CLASSES),
    Edit(
        "/addServiceClass/{name}/{priority}",
        add_service_class,
        tables.SERVICE_CLASS.schema,
    ),
    Edit("/removeServiceClass/{name}", remove_service_class, tables.SERVICE_CLASS.schema),
    _build_echo(
        "/addServiceClassModelTargets",
        add_targets,
        tables.SERVICE_CLASS,
    ),
    _build_echo("/addServiceClassModelTarget", add_target, tables.CLASS_WITH_TARGET),
    Edit(
        "/removeServiceClassModelTarget/{name}/{model}",
        remove_target,
        tables.TARGET.schema,
    ),
    _build_echo("/setServers", set_servers, tables.SERVERS),
    _build_echo("/addServer", add_server, tables.SERVER),
    Edit("/removeServer/{name}", remove_server, tables.SERVER.schema),
    Edit("/applyAllocation", apply_allocation, {"const": "Done"}),
)
