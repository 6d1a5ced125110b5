"""Workloads that several Servers name: the replicas are those of the oldest one; pure.

Actuation scales a workload for that one. No decision is made for the others: their plans would
start the same replicas once more elsewhere, and hold cards that nobody uses.
"""

from collections.abc import Container, Iterable, Iterator, Mapping

from inferno_operator.resources import Server, ServerAllocation
from inferno_optimizer.validation import Problem

ObjectName = tuple[str, ...]
"""What identifies an object that Servers name."""

Shared = Mapping[str, Problem]
"""Accelerators on which the replicas are those of an older Server, with what is wrong."""


def shared_workloads(servers: Iterable[Server]) -> Mapping[int, Shared]:
    """Return what each of some Servers shares with an older one, by its id(); most share nothing.

    Parameters
    ----------
    servers
        The Servers of a namespace, the oldest first.
    """
    holders: dict[ObjectName, Server] = {}
    shared: dict[int, Shared] = {}
    for server in servers:
        found = [(acc, holders.setdefault(name, server), name) for acc, name in _named(server)]
        others = {acc: _problem(server, h, name) for acc, h, name in found if h is not server}
        if others:
            shared[id(server)] = others
    return shared


def without_shared(server: Server, shared: Container[str]) -> Server:
    """Return a Server with what runs of it on accelerators that it shares with no older one."""
    current = server.spec.current_alloc
    if current is None:
        return server
    own = tuple(part for part in current.parts if part.accelerator not in shared)
    runs = ServerAllocation(
        accelerator=own[0].accelerator if own else "",
        num_replicas=sum(part.num_replicas for part in own),
        mix=own,
    )
    return server.model_copy(
        update={"spec": server.spec.model_copy(update={"current_alloc": runs})}
    )


def _named(server: Server) -> Iterator[tuple[str, ObjectName]]:
    """The accelerators of a Server, each with what its replicas are of."""
    reference = server.spec.model_booster
    if reference is None:
        yield from ((w.accelerator, w.object_name) for w in server.spec.workloads)
        return
    for backend in reference.backends:
        name = reference.booster_of(backend)
        yield backend.accelerator, (reference.dialect, "ModelBooster", name)


def _problem(server: Server, older: Server, named: ObjectName) -> Problem:
    kind, name = named[1:3]
    message = (
        f"Server {older.metadata.name!r} names {kind} {name!r} already: each workload runs"
        f" one server; name another one, or delete one of the two Servers"
    )
    field = "modelBooster" if server.spec.model_booster else "workloads"
    return Problem("server", server.spec.name, field, message)
