"""Find the object that a name on the command line refers to; pure."""

from collections.abc import Iterable
from typing import TypeVar

from inferno_operator.cli.kubectl.absent import no_such
from inferno_operator.resources import Model, Optimizer, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError

Kind = TypeVar("Kind", bound=Resource)
Named = TypeVar("Named", Server, Model)


def choose_optimizer(
    observations: Iterable[Observation], namespace: str, name: str | None
) -> Optimizer:
    """Return the Optimizer of this name or, without a name, the only one of the namespace.

    Raises
    ------
    InputError
        There is no such Optimizer, there are several, or its spec is invalid.
    """
    by_name = {o.reference.key.name: o for o in observations if o.kind is Optimizer}
    if not by_name:
        raise InputError(f"namespace {namespace!r} has no Optimizer: create one")
    names = sorted(by_name)
    if name is None and len(by_name) > 1:
        several = ", ".join(names)
        raise InputError(f"namespace {namespace!r} has several Optimizers: name one of {several}")
    chosen = name or names[0]
    if chosen not in by_name:
        raise no_such(Optimizer, Key(namespace, chosen), names)
    return _readable(by_name[chosen], Optimizer)


def choose_server(observations: Iterable[Observation], namespace: str, name: str) -> Server:
    """Return the Server whose object has this name or, if there is none, whose spec has it.

    Raises
    ------
    InputError
        There is no such Server, or its spec is invalid.
    """
    return _chosen(observations, Server, namespace, name)


def choose_model(observations: Iterable[Observation], namespace: str, name: str) -> Model:
    """Return the Model whose object has this name or, if there is none, whose spec has it.

    Raises
    ------
    InputError
        There is no such Model, or its spec is invalid.
    """
    return _chosen(observations, Model, namespace, name)


def _chosen(
    observations: Iterable[Observation], kind: type[Named], namespace: str, name: str
) -> Named:
    of_kind = [o for o in observations if o.kind is kind]
    for observation in of_kind:
        if observation.reference.key.name == name:
            return _readable(observation, kind)
    for observation in of_kind:
        if isinstance(observation.resource, kind) and observation.resource.spec.name == name:
            return observation.resource
    names = sorted(observation.reference.key.name for observation in of_kind)
    raise no_such(kind, Key(namespace, name), names)


def _readable(observation: Observation, kind: type[Kind]) -> Kind:
    if not isinstance(observation.resource, kind):
        raise InputError(f"{observation.reference}: {observation.problem}")
    return observation.resource
