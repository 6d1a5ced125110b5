"""The published calls, as a table: what each does, takes and answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inferno_optimizer.api import documents, store
from inferno_optimizer.api.documents import Document
from inferno_optimizer.wire.fields import Object, Schema

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
    change: Callable[..., store.Change]
    reply: Schema
    body: Object[Document] | None = None
    may_be_text: bool = False
    """Whether a refusal may be a mere text, as in the original."""


def _posted(
    path: str,
    change: Callable[..., store.Change],
    body: Object[Document],
    **more: Any,  # noqa: ANN401
) -> Edit:
    """A call that answers with what was sent."""
    return Edit(path, change, body.schema, body, **more)


LOOKS = (
    Look(
        "/getAccelerators",
        store.get_accelerators,
        {"type": "array", "items": documents.ACCELERATOR.schema},
    ),
    Look("/getAccelerator/{name}", store.get_accelerator, documents.ACCELERATOR.schema),
    Look("/getCapacities", store.get_capacities, documents.CAPACITIES.schema),
    Look("/getCapacity/{type}", store.get_capacity, documents.CAPACITY.schema),
    Look("/getModels", store.get_models, {"type": "array", "items": NAME}),
    Look("/getModel/{name}", store.get_model, documents.MODELS.schema),
    Look(
        "/getModelAcceleratorPerf/{name}/{acc}",
        store.get_performance,
        documents.PERFORMANCE.schema,
    ),
    Look("/getServiceClasses", store.get_service_classes, documents.SERVICE_CLASSES.schema),
    Look("/getServiceClass/{name}", store.get_service_class, documents.SERVICE_CLASS.schema),
    Look(
        "/getServiceClassModelTarget/{name}/{model}",
        store.get_target,
        documents.TARGET.schema,
    ),
    Look("/getServers", store.get_servers, documents.SERVERS.schema),
    Look("/getServer/{name}", store.get_server, documents.SERVER.schema),
)

EDITS = (
    _posted("/setAccelerators", store.set_accelerators, documents.ACCELERATORS),
    _posted("/addAccelerator", store.add_accelerator, documents.ACCELERATOR),
    Edit("/removeAccelerator/{name}", store.remove_accelerator, documents.ACCELERATOR.schema),
    _posted("/setCapacities", store.set_capacities, documents.CAPACITIES),
    _posted("/setCapacity", store.set_capacity, documents.CAPACITY),
    Edit("/removeCapacity/{type}", store.remove_capacity, documents.CAPACITY.schema),
    _posted("/setModels", store.set_models, documents.MODELS),
    Edit("/addModel/{name}", store.add_model, NAME),
    Edit("/removeModel/{name}", store.remove_model, NAME),
    _posted("/addModelAcceleratorPerf", store.add_performance, documents.PERFORMANCE),
    Edit(
        "/removeModelAcceleratorPerf/{name}/{acc}",
        store.remove_performance,
        documents.PERFORMANCE.schema,
    ),
    _posted("/setServiceClasses", store.set_service_classes, documents.SERVICE_CLASSES),
    Edit(
        "/addServiceClass/{name}/{priority}",
        store.add_service_class,
        documents.SERVICE_CLASS.schema,
    ),
    Edit("/removeServiceClass/{name}", store.remove_service_class, documents.SERVICE_CLASS.schema),
    _posted(
        "/addServiceClassModelTargets",
        store.add_targets,
        documents.SERVICE_CLASS,
        may_be_text=True,
    ),
    _posted("/addServiceClassModelTarget", store.add_target, documents.CLASS_WITH_TARGET),
    Edit(
        "/removeServiceClassModelTarget/{name}/{model}",
        store.remove_target,
        documents.TARGET.schema,
    ),
    _posted("/setServers", store.set_servers, documents.SERVERS),
    _posted("/addServer", store.add_server, documents.SERVER),
    Edit("/removeServer/{name}", store.remove_server, documents.SERVER.schema),
    Edit("/applyAllocation", store.apply_allocation, {"const": "Done"}),
)
