"""The published calls, as tables: what each does, takes and answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inferno_optimizer.api import state
from inferno_optimizer.wire import documents
from inferno_optimizer.wire.documents import Document
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
    change: Callable[..., state.StateChange]
    reply: Schema
    body: Object[Document] | None = None
    may_be_text: bool = False
    """Whether a refusal may be a mere text, as in the original."""


def _posted(
    path: str,
    change: Callable[..., state.StateChange],
    body: Object[Document],
    **more: Any,  # noqa: ANN401
) -> Edit:
    """A call that answers with what was sent."""
    return Edit(path, change, body.schema, body, **more)


LOOKS = (
    Look(
        "/getAccelerators",
        state.get_accelerators,
        {"type": "array", "items": documents.ACCELERATOR.schema},
    ),
    Look("/getAccelerator/{name}", state.get_accelerator, documents.ACCELERATOR.schema),
    Look("/getCapacities", state.get_capacities, documents.CAPACITIES.schema),
    Look("/getCapacity/{type}", state.get_capacity, documents.CAPACITY.schema),
    Look("/getModels", state.get_models, {"type": "array", "items": NAME}),
    Look("/getModel/{name}", state.get_model, documents.MODELS.schema),
    Look(
        "/getModelAcceleratorPerf/{name}/{acc}",
        state.get_performance,
        documents.PERFORMANCE.schema,
    ),
    Look("/getServiceClasses", state.get_service_classes, documents.SERVICE_CLASSES.schema),
    Look("/getServiceClass/{name}", state.get_service_class, documents.SERVICE_CLASS.schema),
    Look("/getServiceClassModelTarget/{name}/{model}", state.get_target, documents.TARGET.schema),
    Look("/getServers", state.get_servers, documents.SERVERS.schema),
    Look("/getServer/{name}", state.get_server, documents.SERVER.schema),
)

EDITS = (
    _posted("/setAccelerators", state.set_accelerators, documents.ACCELERATORS),
    _posted("/addAccelerator", state.add_accelerator, documents.ACCELERATOR),
    Edit("/removeAccelerator/{name}", state.remove_accelerator, documents.ACCELERATOR.schema),
    _posted("/setCapacities", state.set_capacities, documents.CAPACITIES),
    _posted("/setCapacity", state.set_capacity, documents.CAPACITY),
    Edit("/removeCapacity/{type}", state.remove_capacity, documents.CAPACITY.schema),
    _posted("/setModels", state.set_models, documents.MODELS),
    Edit("/addModel/{name}", state.add_model, NAME),
    Edit("/removeModel/{name}", state.remove_model, NAME),
    _posted("/addModelAcceleratorPerf", state.add_performance, documents.PERFORMANCE),
    Edit(
        "/removeModelAcceleratorPerf/{name}/{acc}",
        state.remove_performance,
        documents.PERFORMANCE.schema,
    ),
    _posted("/setServiceClasses", state.set_service_classes, documents.SERVICE_CLASSES),
    Edit(
        "/addServiceClass/{name}/{priority}",
        state.add_service_class,
        documents.SERVICE_CLASS.schema,
    ),
    Edit("/removeServiceClass/{name}", state.remove_service_class, documents.SERVICE_CLASS.schema),
    _posted(
        "/addServiceClassModelTargets",
        state.add_targets,
        documents.SERVICE_CLASS,
        may_be_text=True,
    ),
    _posted("/addServiceClassModelTarget", state.add_target, documents.CLASS_WITH_TARGET),
    Edit(
        "/removeServiceClassModelTarget/{name}/{model}",
        state.remove_target,
        documents.TARGET.schema,
    ),
    _posted("/setServers", state.set_servers, documents.SERVERS),
    _posted("/addServer", state.add_server, documents.SERVER),
    Edit("/removeServer/{name}", state.remove_server, documents.SERVER.schema),
    Edit("/applyAllocation", state.apply_allocation, {"const": "Done"}),
)
