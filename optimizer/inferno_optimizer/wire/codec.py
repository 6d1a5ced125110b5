"""JSON documents of the wire <-> System and Solution.

What the objects look like is told in `wire`. Reading follows the published API: keys match
regardless of case, unknown keys are ignored, what is absent or null is zero, of repeated
names the last one counts. Unlike the original, what cannot be read is named.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import starmap
from operator import attrgetter
from typing import Any

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.comparison import Comparison, served
from inferno_optimizer.explain.options import Option
from inferno_optimizer.explain.remedies import Remedy
from inferno_optimizer.system import Allocation, Decision, MarginalValue, Reason, Solution, System
from inferno_optimizer.wire.answers import Answer, solution_of
from inferno_optimizer.wire.fields import NUMBER, Kind, MisfitError, value_of
from inferno_optimizer.wire.objects import (
    ANSWER,
    BODY,
    CERTIFICATE,
    GAIN,
    LEVEL,
    OPTION,
    REASON_GIVEN,
    REFUSAL,
    SECTIONS,
    SYSTEM,
)


def is_system(document: object) -> bool:
    """Tell whether a document has a key of the body of optimizeOne."""
    return isinstance(document, Mapping) and any(
        value_of(document, key) is not None for key in ("system", *SECTIONS)
    )


def decode_system(document: object) -> System:
    """Read the body of optimizeOne.

    Parameters
    ----------
    document
        Parsed JSON: `{"system": {...}}`, or the inner object alone; sections may be absent.

    Raises
    ------
    InputError
        Something has the wrong type; the text names the object and the field.
    """
    if document is None:
        return SYSTEM.zero
    try:
        return _form(document).read(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None


def unknown_keys(document: object) -> tuple[str, ...]:
    """Keys that `decode_system` ignores: a line for each, with object, key and those like it."""
    return tuple(map(str, _form(document).unknown(document)))


def _form(document: object) -> Kind[System]:
    return SYSTEM if value_of(document, "system") is None else BODY


def encode_system(system: System) -> dict[str, Any]:
    """Write the body of optimizeOne; the time limit is the server's own and not part of it."""
    return BODY.write(system)


def encode_solution(solution: Solution) -> dict[str, Any]:
    """Write the answer of optimizeOne, with who is unserved and what is proven."""
    given = [d for d in solution.decisions if d.allocation is not None]
    return {
        "allocations": {
            decision.server: _given(decision, decision.allocation or Allocation())
            for decision in sorted(given, key=attrgetter("server"))
        },
        "unserved": {
            decision.server: {"reason": str(decision.reason), "message": decision.message}
            for decision in sorted(solution.unserved, key=attrgetter("server"))
        },
        "certificate": _certificate(solution),
    }


def decode_solution(document: object, system: System) -> Solution:
    """Read the answer of optimizeOne or optimize, ours or that of the original.

    Parameters
    ----------
    document
        Parsed JSON. Without reasons and certificate, as the original gives it, a server that
        has no allocation gets a reason of our own.
    system
        What was asked.

    Raises
    ------
    InputError
        It is no answer, or one to something else; the text tells why.
    """
    try:
        answer = _read_answer(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None
    return solution_of(answer, system)


def _read_answer(document: object) -> Answer:
    if value_of(document, "allocations") is None:
        raise MisfitError("expected an object with allocations")
    certificate = value_of(document, "certificate")
    return Answer(
        given=tuple(starmap(_read_given, _named(document, "allocations"))),
        refused=tuple(starmap(_read_refused, _named(document, "unserved"))),
        certificate=None if certificate is None else CERTIFICATE.read(certificate),
        marginal=_read_marginal(certificate),
    )


def _read_marginal(certificate: object) -> dict[str, MarginalValue]:
    """What one more card of each type is worth: a price, or a gain of load."""
    prices = {name: NUMBER.read(price) for name, price in _named(certificate, "prices")}
    gains = {name: GAIN.read(gain) for name, gain in _named(certificate, "gains")}
    names = {**prices, **gains}
    return {name: MarginalValue(prices.get(name), gains.get(name)) for name in names}


def _named(document: object, key: str) -> list[tuple[str, object]]:
    """The parts of an object that are known by name."""
    part = value_of(document, key)
    if part is None:
        return []
    if not isinstance(part, Mapping):
        raise MisfitError("expected an object").inside(key)
    return [(str(name), value) for name, value in part.items()]


def _read_refused(server: str, value: object) -> Decision:
    try:
        return Decision(server, *REFUSAL.read(value))
    except MisfitError as misfit:
        raise misfit.of(f"server {server!r}") from None


def _read_given(server: str, value: object) -> Decision:
    try:
        return Decision(server, *REASON_GIVEN.read(value), _whole(ANSWER.read(value)))
    except MisfitError as misfit:
        raise misfit.of(f"allocation of server {server!r}") from None


def _on_one_accelerator(allocation: Allocation) -> Allocation:
    """What a client may carry out that does not know of a mix: its part with most replicas.

    So many fit for sure. Of equal parts it is the one with the most load; the cost stays that of
    all parts, and latencies those of all requests.
    """
    main = max(allocation.parts, key=attrgetter("replicas"))
    return replace(
        allocation,
        accelerator=main.accelerator,
        replicas=main.replicas,
        max_batch_size=main.max_batch_size,
    )


def _whole(allocation: Allocation) -> Allocation:
    """The allocation as we know it, of all parts of its mix; see `system.Allocation`."""
    first = allocation.parts[0]
    return replace(
        allocation,
        accelerator=first.accelerator,
        replicas=sum(part.replicas for part in allocation.parts),
        max_batch_size=first.max_batch_size,
    )


def _given(decision: Decision, allocation: Allocation) -> dict[str, Any]:
    """Write an allocation, why it is less than the server needs where it is, and warnings."""
    document = ANSWER.write(_on_one_accelerator(allocation))
    if decision.reason is not Reason.ALLOCATED:
        document |= {"reason": str(decision.reason), "message": decision.message}
    return document | _warnings(decision)


def _warnings(told: Decision | Option) -> dict[str, Any]:
    """Write warnings where there are any."""
    return {"warnings": list(told.warnings)} if told.warnings else {}


def encode_explanation(options: Iterable[Option]) -> list[dict[str, Any]]:
    """Write the options of a server; fields that an allocation has too are named as there."""
    return [OPTION.write(option) | _warnings(option) for option in options]


def encode_remedies(remedies: Iterable[Remedy]) -> list[dict[str, Any]]:
    """Write what would serve a server."""
    return [
        {
            "kind": str(remedy.kind),
            "change": remedy.change,
            "amount": remedy.amount,
            "cost": remedy.cost,
            "displaced": list(remedy.displaced),
            "message": remedy.message,
        }
        for remedy in remedies
    ]


def encode_comparison(changes: Iterable[str], comparison: Comparison) -> dict[str, Any]:
    """Write both solutions with their totals, and for which servers they differ."""
    return {
        "changes": list(changes),
        "servers": [difference.server for difference in comparison.differences],
        "before": _with_totals(comparison.before),
        "after": _with_totals(comparison.after),
    }


def _with_totals(solution: Solution) -> dict[str, Any]:
    capacity = [
        {"type": use.type, "used": use.used, "held": use.held, "available": use.available}
        for use in solution.capacity
    ]
    totals = {"served": served(solution), "cost": solution.cost, "capacity": capacity}
    return {**encode_solution(solution), **totals}


def _certificate(solution: Solution) -> dict[str, Any]:
    certificate = solution.certificate
    prices = {use.type: use.price for use in solution.capacity if use.price is not None}
    proof: dict[str, Any] = {
        "solver": certificate.solver,
        "status": str(certificate.status),
        "objective": certificate.objective,
        "bound": certificate.bound,
        "gap": certificate.gap,
        "levels": [{"gap": level.gap, **LEVEL.write(level)} for level in certificate.levels],
        "seconds": certificate.seconds,
        "phases": dict(certificate.phases),
    }
    gains = {use.type: GAIN.write(use.gain) for use in solution.capacity if use.gain is not None}
    told = {"prices": prices, "gains": gains}
    return proof | {key: values for key, values in told.items() if values}
