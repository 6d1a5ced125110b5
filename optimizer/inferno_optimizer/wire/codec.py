"""Converts between JSON documents of the REST API and System or Solution.

    JSON text --parse_json--> JSON --check_system--> document --SYSTEM.build--> System
                                   --decode_solution---------------------------> Solution
    System --encode_system--> JSON,   Solution --encode_solution--> JSON --write_json--> JSON text

`tables` defines the keys of each object. Reading follows the published API: keys match regardless
of case, unknown keys are ignored, absent and null values are zero, and of items with the same name
the last one counts. Unlike in the original, errors name the object and the field.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from operator import attrgetter
from typing import Any, NoReturn

from inferno_optimizer.errors import InputError
from inferno_optimizer.explain.comparison import Comparison, served
from inferno_optimizer.explain.options import Option
from inferno_optimizer.explain.remedies import Remedy
from inferno_optimizer.solution import Decision, MarginalValue, Reason, Solution
from inferno_optimizer.system import Allocation, System
from inferno_optimizer.wire.answers import Answer, build_solution
from inferno_optimizer.wire.fields import (
    TEXTS,
    Document,
    MisfitError,
    Object,
    check_number,
    value_of,
)
from inferno_optimizer.wire.tables import (
    ANSWER,
    BODY,
    CERTIFICATE,
    CURVE_POINT,
    GAIN,
    LEVEL,
    OPTION,
    REASON_GIVEN,
    REFUSAL,
    SECTIONS,
    SYSTEM,
)

LONGEST_INTEGER = 400
"""Digits that are read; a number of so many is beyond the range of every field."""


def parse_json(text: bytes) -> object:
    """Parse a body; the whole of it, unlike the original, which drops what comes after.

    Raises InputError if it is no JSON; the text tells where.
    """
    if not text.strip():
        raise InputError("the body is empty; send JSON")
    if text.startswith(BOM_UTF8):
        raise InputError("the body begins with a byte order mark (byte 0); send JSON without it")
    try:
        return _parse(text.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"the body is not UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise InputError("the body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise InputError(f"the body is not valid JSON: {error}") from error


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except ValueError:  # int() refuses thousands of digits, without saying where they are
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_read_digits)


def _read_digits(digits: str) -> int:
    """Read an integer; no field takes one of more digits than are kept of it."""
    return int(digits[:LONGEST_INTEGER])


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"the body is not valid JSON: {name} is no number there")


def write_json(document: object) -> bytes:
    """Write JSON; in ASCII, as messages may show what UTF-8 cannot hold."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode()


def is_system(document: object) -> bool:
    """Whether a document has a key of the body of optimizeOne."""
    return isinstance(document, Mapping) and any(
        value_of(document, key) is not None for key in ("system", *SECTIONS)
    )


def check_system(document: object, *, is_kept: bool = False) -> Document:
    """Check the body of optimizeOne, and return the system in it.

    The document is `{"system": {...}}`, or the inner object alone; sections may be absent. What
    `is_kept` also has the keys that clients of a REST server read back, and no numbers that they
    could not. Raises InputError if a value has the wrong type; it names the object and the field.
    """
    if document is None:
        return {}
    try:
        checked = _choose_form(document).check(document, is_kept)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None
    system: Document = checked.get("system", checked)
    return system


def decode_system(document: object) -> System:
    """Read the body of optimizeOne; see `check_system`."""
    return SYSTEM.build(check_system(document))


def ignored_keys(document: object) -> tuple[Sequence[str], Sequence[str]]:
    """Keys that have no effect in `decode_system`: one line each with object and key.

    First the unknown keys, with similar known ones; then those without a value, which counts as
    zero.
    """
    ignored = list(_choose_form(document).ignored(document))
    unknown, null = ([str(m) for m in ignored if m.is_null is null] for null in (False, True))
    return unknown, null


def _choose_form(document: object) -> Object[System]:
    return SYSTEM if value_of(document, "system") is None else BODY


def encode_system(system: System) -> dict[str, Any]:
    """Write the body of optimizeOne; it has no time limit, because each optimizer sets its own."""
    return BODY.write(system)


def encode_solution(solution: Solution) -> dict[str, Any]:
    """Write the answer of optimizeOne: allocations, unserved servers and the certificate."""
    given = [d for d in solution.decisions if d.allocation is not None]
    return {
        "allocations": {
            decision.server: _encode_given(decision, decision.allocation or Allocation())
            for decision in sorted(given, key=attrgetter("server"))
        },
        "unserved": {
            decision.server: {"reason": str(decision.reason), "message": decision.message}
            for decision in sorted(solution.unserved, key=attrgetter("server"))
        },
        "certificate": _encode_certificate(solution),
    }


def decode_solution(document: object, system: System) -> Solution:
    """Read the answer of optimizeOne or optimize, from Inferno or from the original.

    If it has no reasons and no certificate, as from the original, the reason of a server without an
    allocation is determined here. Raises InputError if the document is not an answer, or does not
    fit the system that was sent to the optimizer; the message says why.
    """
    return build_solution(_read_answer(document), system)


def check_answer(document: object) -> None:
    """Raise InputError if parsed JSON is not an answer of an optimizer, to whatever question."""
    _read_answer(document)


def has_certificate(document: object) -> bool:
    """Whether an answer has a certificate, as those of Inferno have, unlike the original's."""
    return value_of(document, "certificate") is not None


def _read_answer(document: object) -> Answer:
    if value_of(document, "allocations") is None:
        raise InputError("expected an object with allocations")
    try:
        certificate = value_of(document, "certificate")
        return Answer(
            given=tuple(starmap(_read_given, _list_items(document, "allocations"))),
            refused=tuple(starmap(_read_refused, _list_items(document, "unserved"))),
            certificate=None if certificate is None else CERTIFICATE.read(certificate),
            marginal=_read_marginal(certificate),
        )
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None


def _read_marginal(certificate: object) -> dict[str, MarginalValue]:
    """The value of one more card of each type: a price, or a gain of load."""
    prices = {name: check_number(price) for name, price in _list_items(certificate, "prices")}
    gains = {name: GAIN.read(gain) for name, gain in _list_items(certificate, "gains")}
    estimated = value_of(certificate, "estimated")
    estimates = frozenset(() if estimated is None else TEXTS.check(estimated, False))
    names = {**prices, **gains}
    return {
        name: MarginalValue(prices.get(name), gains.get(name), name in estimates) for name in names
    }


def _list_items(document: object, key: str) -> list[tuple[str, object]]:
    """The names and values of the object at a key; empty if the key is absent."""
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
        return Decision(server, *REASON_GIVEN.read(value), _add_up_parts(ANSWER.read(value)))
    except MisfitError as misfit:
        raise misfit.of(f"allocation of server {server!r}") from None


def _choose_main_part(allocation: Allocation) -> Allocation:
    """The allocation for clients that ignore `mix`: its part with the most replicas.

    This part fits into the capacity. Of parts with equal replicas, the one with the most load is
    used. The cost is still the cost of all parts, and latencies are means over all requests.
    """
    if allocation.roles:
        return allocation
    main = max(allocation.parts, key=attrgetter("replicas"))
    return replace(
        allocation,
        accelerator=main.accelerator,
        replicas=main.replicas,
        max_batch_size=main.max_batch_size,
    )


def _add_up_parts(allocation: Allocation) -> Allocation:
    """The allocation with the totals of all parts of its mix; see `system.Allocation`."""
    if allocation.roles:
        return allocation
    first = allocation.parts[0]
    return replace(
        allocation,
        accelerator=first.accelerator,
        replicas=sum(part.replicas for part in allocation.parts),
        max_batch_size=first.max_batch_size,
    )


def _encode_given(decision: Decision, allocation: Allocation) -> dict[str, Any]:
    """Write an allocation with its warnings, and the reason if it is less than the server needs."""
    document = ANSWER.write(_choose_main_part(allocation))
    if decision.reason is not Reason.ALLOCATED:
        document |= {"reason": str(decision.reason), "message": decision.message}
    return document | _encode_warnings(decision)


def _encode_warnings(source: Decision | Option) -> dict[str, Any]:
    """Write the warnings, if there are any."""
    return {"warnings": list(source.warnings)} if source.warnings else {}


def encode_explanation(options: Iterable[Option]) -> list[dict[str, Any]]:
    """Write the options of a server; fields that allocations also have get the same keys.

    `chosen` and `lost` tell what a plan gives of an option, or why nothing, where one was asked.
    """
    documents = []
    for option in options:
        document = OPTION.write(option) | _encode_warnings(option)
        if option.chosen is not None:
            document["chosen"] = option.chosen
        if option.lost:
            document["lost"] = option.lost
        documents.append(document)
    return documents


def encode_remedies(remedies: Iterable[Remedy]) -> list[dict[str, Any]]:
    """Write the remedies of a server."""
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
    """Write both solutions with their totals, and the servers with different decisions."""
    return {
        "changes": list(changes),
        "servers": [difference.server for difference in comparison.differences],
        "before": _encode_with_totals(comparison.before),
        "after": _encode_with_totals(comparison.after),
    }


def _encode_with_totals(solution: Solution) -> dict[str, Any]:
    capacity = [
        {"type": use.type, "used": use.used, "held": use.held, "available": use.available}
        for use in solution.capacity
    ]
    totals = {"served": served(solution), "cost": solution.cost, "capacity": capacity}
    return {**encode_solution(solution), **totals}


def _encode_certificate(solution: Solution) -> dict[str, Any]:
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
    curve = [CURVE_POINT.write(point) for point in certificate.curve]
    failures = list(certificate.failures)
    estimated = [use.type for use in solution.capacity if use.estimated]
    worth = {"prices": prices, "gains": gains, "estimated": estimated}
    optional = worth | {"curve": curve, "failures": failures}
    return proof | {key: values for key, values in optional.items() if values}
