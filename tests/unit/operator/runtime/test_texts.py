"""Why a connection failed: in the words of the operating system, wherever in the chain they are."""

import errno
import socket
import ssl

import httpx
import pytest

from inferno_operator.runtime.texts import cause_of

VAGUE = "All connection attempts failed"
"""What anyio, and so httpx, says of each address to which there is no connection."""


def led_to_by(error: Exception, cause: BaseException) -> Exception:
    """An error that another one led to."""
    error.__cause__ = cause
    return error


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
UNREACHABLE = OSError(errno.EHOSTUNREACH, "Connect call failed ('10.0.0.1', 1)")


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (REFUSED, "connection refused"),
        (led_to_by(OSError(VAGUE), REFUSED), "connection refused"),
        (
            led_to_by(OSError(VAGUE), ExceptionGroup("two addresses", [UNREACHABLE, REFUSED])),
            "no route to host",
        ),
        (ConnectionResetError(errno.ECONNRESET, "x"), "connection reset by peer"),
        (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
        (TimeoutError(), "timed out"),
    ],
)
def test_the_cause_is_what_the_operating_system_says(cause: Exception, said: str) -> None:
    assert cause_of(led_to_by(httpx.ConnectError(VAGUE), cause)) == said


def test_of_what_the_system_does_not_know_the_first_words_are_told() -> None:
    refused = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")

    assert cause_of(led_to_by(httpx.ConnectError("no TLS\nthere"), refused)) == "no TLS there"
    assert cause_of(led_to_by(httpx.ReadError(""), ValueError("half of it"))) == "half of it"
    assert cause_of(httpx.ReadError("")) == "the connection was closed"
