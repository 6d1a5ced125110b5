"""Credentials of a client: whom TLS trusts, and by which certificate the client is known.

Messages about files that cannot be used show nothing of what is in them.
"""

import ssl
from pathlib import Path
from typing import Protocol

from inferno_optimizer.errors import UnavailableError


class TlsEndpoint(Protocol):
    """An address with the files for TLS to it."""

    @property
    def secure(self) -> bool:
        """Whether it is reached by TLS."""

    @property
    def authority(self) -> Path | None:
        """Certificates of who signs for the other side; None: those of the system."""

    @property
    def certificate(self) -> Path | None:
        """The client's certificate, if it has one."""

    @property
    def key(self) -> Path | None:
        """The key of the client's certificate, unless it is in the same file."""


def build_tls_context(endpoint: TlsEndpoint) -> ssl.SSLContext:
    """Return what a client needs for TLS to an endpoint.

    Raises
    ------
    OSError
        A file cannot be read, or is not what it should be.
    """
    if not endpoint.secure:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # unused; faster than the default one
    for path in filter(None, (endpoint.authority, endpoint.certificate, endpoint.key)):
        path.stat()  # the errors of ssl do not name the file that is missing
    context = ssl.create_default_context(cafile=endpoint.authority)
    if endpoint.certificate is not None:
        load_pair(context, endpoint.certificate, endpoint.key)
    return context


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    """Load a certificate and its key, again if the two were replaced between the reads.

    Raises
    ------
    OSError
        A file cannot be read, or the key is that of another certificate.
    """
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError:
        context.load_cert_chain(certificate, key)


def build_credentials_error(url: str, error: Exception) -> UnavailableError:
    """Return the error of a request to a URL whose credentials cannot be used.

    A file that is missing may be in the process of being replaced.
    """
    problem = str(error)
    if isinstance(error, FileNotFoundError):
        problem = f"{error.filename} does not exist: mount its Secret or ConfigMap again"
    return UnavailableError(f"{url}: credentials cannot be used: {problem}")
