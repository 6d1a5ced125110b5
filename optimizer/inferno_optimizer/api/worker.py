"""One process that optimizes: bodies of optimizeOne come in, answers go out, one at a time.

Each is preceded by its length, an answer by its status too.
"""

import os
import signal
import struct
import sys
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

from inferno_optimizer.api.documents import parse_json, system_of, write_json
from inferno_optimizer.errors import InfernoError, InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system, encode_solution
from inferno_optimizer.wire.fields import MisfitError

QUESTION = struct.Struct(">Q")
ANSWER = struct.Struct(">HQ")


def answer(body: bytes, time_limit: float) -> tuple[HTTPStatus, bytes]:
    """Optimize what a body describes; the exact solver stops after `time_limit` [s]."""
    try:
        system = _read(body)
        options = replace(system.options, time_limit=time_limit)
        solution = optimize(replace(system, options=options))
    except InputError as error:
        return HTTPStatus.BAD_REQUEST, write_json({"message": str(error)})
    except InfernoError as error:
        message = f"optimization error: {error}"
        return HTTPStatus.NOT_FOUND, write_json({"message": message})
    return HTTPStatus.OK, write_json(encode_solution(solution))


def _read(body: bytes) -> System:
    """Read a body; fields that no optimization needs must have the right type as well."""
    document = parse_json(body)
    try:
        system_of(document)
    except MisfitError as misfit:
        raise InputError(str(misfit)) from None
    return decode_system(document)


def main() -> None:
    """Answer on what was the standard output; what solvers print goes to the log."""
    time_limit = float(sys.argv[1])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    questions: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin.buffer, questions), daemon=True).start()
    with suppress(BrokenPipeError):  # nobody is there any more
        while True:
            status, text = answer(questions.get(), time_limit)
            answers.write(ANSWER.pack(status, len(text)))
            answers.write(text)
            answers.flush()


def _listen(stream: BinaryIO, questions: SimpleQueue[bytes]) -> None:
    """Hand on questions; when they end so do we, with solvers that we started."""
    while header := stream.read(QUESTION.size):
        (length,) = QUESTION.unpack(header)
        questions.put(stream.read(length))
    os.killpg(0, signal.SIGKILL)  # we lead the group, and may be at work


if __name__ == "__main__":
    main()
