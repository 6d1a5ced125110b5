"""What a worker process does: it answers questions, which are bodies of optimizeOne."""

from dataclasses import replace
from http import HTTPStatus

from inferno_optimizer.errors import InfernoError, InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system, encode_solution, ignored_keys
from inferno_optimizer.wire.documents import parse_json, system_of, write_json
from inferno_optimizer.wire.fields import MisfitError

IGNORED_SHOWN = 100
"""Most keys of a body that an answer names because they have no effect."""


def answer(body: bytes, time_limit: float) -> tuple[HTTPStatus, bytes]:
    """Optimize what a body describes.

    Parameters
    ----------
    body
        JSON, as it was sent.
    time_limit
        When the exact solver stops [s].
    """
    try:
        document = parse_json(body)
        system = _read(document)
        options = replace(system.options, time_limit=time_limit)
        solution = optimize(replace(system, options=options))
    except InputError as error:
        return HTTPStatus.BAD_REQUEST, write_json({"message": str(error)})
    except InfernoError as error:
        message = f"optimization error: {error}"
        return HTTPStatus.NOT_FOUND, write_json({"message": message})
    told = encode_solution(solution)
    if ignored := [key for keys in ignored_keys(document) for key in keys]:
        told["certificate"]["ignored"] = ignored[:IGNORED_SHOWN]
    return HTTPStatus.OK, write_json(told)


def _read(document: object) -> System:
    """Read a body; fields that no optimization needs must have the right type as well."""
    try:
        system_of(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None
    return decode_system(document)
