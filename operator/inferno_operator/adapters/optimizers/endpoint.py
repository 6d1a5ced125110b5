"""Where a remote optimizer is, and how we prove who we are."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of an optimizer; it speaks TLS when a certificate or an authority is given.

    The files are read anew for every optimization, so they may change at any time.
    """

    host: str = "localhost"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    token: Path | None = None

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.certificate is not None or self.authority is not None

    @property
    def url(self) -> str:
        """The address, as people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}"
