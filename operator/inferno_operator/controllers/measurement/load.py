"""The load of a Server for an optimization: the measured one, and never less without evidence."""

from collections.abc import Sequence

from inferno_operator.resources import Load, Measured, Server, ServerAllocation

SHRINKS = frozenset({"Fresh", "Idle"})
"""Qualities that may lower the load."""

IDLE = Load(arrival_rate=0, avg_out_tokens=1)
"""The load of a server that has never served a request: nothing is known of its lengths."""


def load(server: Server, measured: Measured | None) -> Load | None:
    """Return the load of a Server; None if it is not known.

    Numbers that are not fresh may raise the load, but not lower it below the load of the
    standing decision: what runs keeps running. Lengths of requests that are not measured are
    those of the last load.
    """
    current, desired = server.spec.current_alloc, server.spec.desired_alloc
    typed = current.load if current else None
    standing = desired.load if desired else None
    rate = _rate(measured, typed, standing)
    if rate is None:
        return None
    lengths = _lengths(measured, [part for part in (typed, standing) if part is not None])
    if lengths is None:
        return IDLE if rate == 0 else None
    return lengths.model_copy(update={"arrival_rate": rate})


def _lengths(measured: Measured | None, known: Sequence[Load]) -> Load | None:
    """Return a load with the lengths of requests: measured, or the first that is known."""
    last = next((part for part in known if part.avg_out_tokens or part.avg_length), None)
    if measured is None or measured.avg_out_tokens is None:
        return last
    tokens = {"avg_out_tokens": max(round(measured.avg_out_tokens), 1), "avg_length": None}
    if measured.avg_in_tokens is not None:
        tokens["avg_in_tokens"] = round(measured.avg_in_tokens)
    return (last or IDLE).model_copy(update=tokens)


def _rate(measured: Measured | None, typed: Load | None, standing: Load | None) -> float | None:
    """Return the arrival rate [requests/min]; None if it is not known."""
    newest = measured.arrival_rate if measured else None
    if newest is None and typed is not None:
        newest = typed.arrival_rate
    if newest is None or (measured is not None and measured.quality in SHRINKS):
        return newest
    return max(newest, standing.arrival_rate if standing else 0.0)


def with_last_good(server: Server) -> Server:
    """Return a Server with the load of its status, if it is measured; else as it is."""
    return (
        server if server.spec.measure is None else measured_server(server, server.status.measured)
    )


def measured_server(server: Server, measured: Measured | None) -> Server:
    """Return a Server with its load after a measurement; as it is if no load is known."""
    found = load(server, measured)
    return server if found is None else with_load(server, found)


def with_load(server: Server, load: Load) -> Server:
    """Return the Server with this load."""
    current = server.spec.current_alloc or ServerAllocation(accelerator="", num_replicas=0)
    allocation = current.model_copy(update={"load": load})
    return server.model_copy(
        update={"spec": server.spec.model_copy(update={"current_alloc": allocation})}
    )
