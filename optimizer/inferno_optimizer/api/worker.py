"""The processes that optimize: one that loads the solvers, and workers that are forked from it.

The first one receives the connection of each worker over the socket that is its standard input.
A worker sends its process id, then answers questions, which are bodies of optimizeOne, one at a
time. A line comes before each: the length of a question, the status and length of an answer.
"""

import gc
import os
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from queue import SimpleQueue
from threading import Thread
from typing import BinaryIO

from inferno_optimizer.errors import InfernoError, InputError
from inferno_optimizer.optimize import optimize
from inferno_optimizer.system import System
from inferno_optimizer.wire.codec import decode_system, encode_solution, ignored_keys
from inferno_optimizer.wire.documents import parse_json, system_of, write_json
from inferno_optimizer.wire.fields import MisfitError

IGNORED_SHOWN = 100
"""Most keys of a body that an answer names because they have no effect."""


def answer(body: bytes, time_limit: float) -> tuple[HTTPStatus, bytes]:
    """Optimize what a body describes; the exact solver stops after `time_limit` [s]."""
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


def main() -> None:
    """Fork workers for as long as somebody can ask for them."""
    time_limit = float(sys.argv[1])
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what solvers print goes to the log
    answer(b"null", time_limit)  # so that workers do not load things at their first question
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps workers
    gc.freeze()  # so that they share memory for longer
    with socket.socket(fileno=sys.stdin.fileno()) as control:
        while connections := socket.recv_fds(control, 1, 1)[1]:
            with socket.socket(fileno=connections[0]) as connection:
                if os.fork() == 0:
                    control.close()  # or it would seem that somebody still listens there
                    _work(connection, time_limit)
                    return


def _work(connection: socket.socket, time_limit: float) -> None:
    """Answer questions; in a process group of its own, with the solvers that it starts."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    questions: SimpleQueue[bytes] = SimpleQueue()
    with connection.makefile("rb") as asked, connection.makefile("wb") as answers:
        Thread(target=_listen, args=(asked, questions), daemon=True).start()
        answers.write(b"%d\n" % os.getpid())
        answers.flush()
        with suppress(BrokenPipeError):  # nobody is there any more
            while True:
                status, text = answer(questions.get(), time_limit)
                answers.write(b"%d %d\n" % (status, len(text)))
                answers.write(text)
                answers.flush()


def _listen(stream: BinaryIO, questions: SimpleQueue[bytes]) -> None:
    """Hand on questions; when they end so does the worker, which may be at work."""
    while length := stream.readline():
        questions.put(stream.read(int(length)))
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
