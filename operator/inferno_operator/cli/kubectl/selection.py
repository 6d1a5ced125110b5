"""Find the object that a name on the command line refers to; pure."""

from collections.abc import Iterable
from typing import TypeVar

from inferno_operator.resources import Optimizer, Resource, Server
from inferno_operator.resources.objects import Key
from inferno_operator.resources.observation import Observation
from inferno_optimizer.errors import InputError
from inferno_optimizer.suggestions import alternatives

Kind = TypeVar("Kind", bound=Resource)


def choose_optimizer(
    observations: Iterable[Observation], namespace: str, name: str | None
) -> Optimizer:
    """Return the Optimizer of this name or, without a name, the only one of the namespace.

    Raises
    ------
    InputError
        There is no such Optimizer, there are several, or its spec is invalid.
    """
    found = {o.reference.key.name: o for o in observations if o.kind is Optimizer}
    if not found:
        raise InputError(f"namespace {namespace!r} has no Optimizer")
    known = sorted(found)
    if name is None and len(found) > 1:
        several = ", ".join(known)
        raise InputError(f"namespace {namespace!r} has several Optimizers: name one of {several}")
    chosen = name or known[0]
    if chosen not in found:
        near = alternatives(chosen, known)
        raise InputError(f"Optimizer {Key(namespace, chosen)}: there is none{near}")
    return _readable(found[chosen], Optimizer)


def choose_server(observations: Iterable[Observation], namespace: str, name: str) -> Server:
    """Return the Server whose object has this name or, if there is none, whose spec has it.

    Raises
    ------
    InputError
        There is no such Server, or its spec is invalid.
    """
    servers = [o for o in observations if o.kind is Server]
    for observation in servers:
        if observation.reference.key.name == name:
            return _readable(observation, Server)
    for observation in servers:
        if isinstance(observation.resource, Server) and observation.resource.spec.name == name:
            return observation.resource
    near = alternatives(name, sorted(observation.reference.key.name for observation in servers))
    raise InputError(f"Server {Key(namespace, name)}: there is none{near}")


def _readable(observation: Observation, kind: type[Kind]) -> Kind:
    if not isinstance(observation.resource, kind):
        raise InputError(f"{observation.reference}: {observation.problem}")
    return observation.resource
