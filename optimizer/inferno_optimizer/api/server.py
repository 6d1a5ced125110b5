"""The server of `inferno serve`: it listens, serves, and stops when it is told to."""

import logging
import os
import re
import socket
import sys
from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from starlette.types import ASGIApp

from inferno_optimizer.api.app import create_app
from inferno_optimizer.api.connection import OriginForm, configuration, send_at_once
from inferno_optimizer.api.limits import ServerLimits
from inferno_optimizer.api.messages import message_reply
from inferno_optimizer.api.security import Files, TokenGuard, tls_context
from inferno_optimizer.api.stopping import RunningRequests, StoppingServer
from inferno_optimizer.errors import InputError

PORT = re.compile("[0-9]{1,5}")
LARGEST_PORT = 65535
STOPPING = "the server is stopping; send it again"


def serve(
    host: str,
    port: int,
    limits: ServerLimits,
    files: Files,
    say: Callable[[str], None],
    *,
    stateful: bool = False,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Parameters
    ----------
    host, port
        Where to listen; port 0 for a free one.
    limits
        Sizes, times and counts.
    files
        Certificates and token.
    say
        Called with the line that tells where it listens.
    stateful
        Whether to keep a system that clients change.

    Raises
    ------
    InputError
        It cannot listen there, or the files cannot be used.
    """
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
    )
    # At the end anyio kills a worker twice, and asyncio tells when it was gone the second time.
    logging.getLogger("asyncio").addFilter(lambda told: "Unknown child process" not in told.msg)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of each worker: they are many
    guarded = files.token is not None
    app: ASGIApp = create_app(limits, stateful=stateful, guarded=guarded)
    if files.token is not None:
        app = TokenGuard(app, files.token)
    app = OriginForm(app)
    tls = tls_context(files)
    with listen(host, port) as listening:
        mode = "stateful" if stateful else "stateless"
        where = url_of(listening, secure=tls is not None)
        requests = RunningRequests(app, message_reply(HTTPStatus.SERVICE_UNAVAILABLE, STOPPING))
        config = configuration(requests, limits, tls, lifespan=True)
        ready = partial(say, f"listening on {where} ({mode})")
        StoppingServer(config, requests, limits.stop_seconds, ready).run([listening])


def port_of(text: str) -> int:
    """Read a port.

    Raises
    ------
    InputError
        It is not a port; the message explains the value that Kubernetes may have put there.
    """
    if "://" in text:
        raise InputError(
            f"INFERNO_PORT: {text!r} is the address of a Service called inferno, which Kubernetes"
            " put into the environment (a service link); set enableServiceLinks: false in the"
            " pod, or INFERNO_PORT or --port to a number"
        )
    if not PORT.fullmatch(text) or int(text) > LARGEST_PORT:
        raise InputError(f"INFERNO_PORT or --port: {text!r} is no port: 0 to {LARGEST_PORT}")
    return int(text)


def listen(host: str, port: int) -> socket.socket:
    """Listen; on port 0 on one that is free.

    Raises
    ------
    InputError
        Nobody can listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except socket.gaierror as error:
        raise InputError(f"cannot listen on {host}: {error.strerror}") from error
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # without the address, which is there already
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from error
    except UnicodeError as error:
        raise InputError(f"cannot listen on {host}: no name of a host") from error
    send_at_once(listening)
    return listening


def url_of(listening: socket.socket, *, secure: bool) -> str:
    """The address of a server, as people write it."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
