"""Where a server listens."""

import os
import socket

from inferno_optimizer.errors import InputError

LARGEST_PORT = 65535


def port_of(text: str) -> int:
    """Read a port.

    Raises
    ------
    InputError
        It is none; of what Kubernetes puts there the text tells where it comes from.
    """
    if "://" in text:
        raise InputError(
            f"INFERNO_PORT: {text!r} is the address of a Service called inferno, which Kubernetes"
            " put into the environment (a service link); set enableServiceLinks: false in the"
            " pod, or INFERNO_PORT or --port to a number"
        )
    if not text.isascii() or not text.isdigit() or int(text) > LARGEST_PORT:
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
    # Connections take it over. asyncio sets it only on sockets that name their protocol; without
    # it, the second half of an answer waits 40 ms for the acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket, *, secure: bool) -> str:
    """The address of a server, as people write it."""
    host, port = listening.getsockname()[:2]
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
