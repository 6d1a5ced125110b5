"""What a worker process does: it answers questions, which are bodies of optimizeOne."""

from dataclasses import replace
from http import HTTPStatus

from inferno_optimizer.errors import InfernoError, InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.wire.codec import (
    check_system,
    encode_solution,
    ignored_keys,
    parse_json,
    write_json,
)
from inferno_optimizer.wire.fields import Document
from inferno_optimizer.wire.tables import SYSTEM

IGNORED_SHOWN = 100
"""Most keys of a body that an answer names because they have no effect."""


def answer(question: bytes | Document, time_limit: float) -> tuple[HTTPStatus, bytes]:
    """Optimize a system.

    Parameters
    ----------
    question
        The body of optimizeOne as it was sent, or a system that the server keeps.
    time_limit
        When the exact solver stops [s].
    """
    try:
        sent = parse_json(question) if isinstance(question, bytes) else None
        # Fields that no optimization needs must have the right type as well: clients read them.
        kept = check_system(sent, is_kept=True) if isinstance(question, bytes) else question
        system = SYSTEM.build(kept)
        options = replace(system.options, time_limit=time_limit)
        solution = optimize(replace(system, options=options))
    except InputError as error:
        return HTTPStatus.BAD_REQUEST, write_json({"message": str(error)})
    except InfernoError as error:
        message = f"optimization error: {error}"
        return HTTPStatus.NOT_FOUND, write_json({"message": message})
    document = encode_solution(solution)
    if ignored := [key for keys in ignored_keys(sent) for key in keys]:
        document["certificate"]["ignored"] = ignored[:IGNORED_SHOWN]
    return HTTPStatus.OK, write_json(document)
