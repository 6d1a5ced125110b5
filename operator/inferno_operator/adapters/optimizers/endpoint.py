"""Address of a remote optimizer, and the credentials of the operator."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of an optimizer; it uses TLS if a certificate or an authority is given.

    The files are read again for every optimization, so they may change at any time.
    """

    host: str = "localhost"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    token: Path | None = None

    @property
    def secure(self) -> bool:
        """Whether the endpoint uses TLS."""
        return self.certificate is not None or self.authority is not None

    @property
    def url(self) -> str:
        """The URL of the endpoint, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"
