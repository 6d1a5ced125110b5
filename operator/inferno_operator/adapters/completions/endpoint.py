"""Where an engine is, and how it is asked."""

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from inferno_operator.runtime.files import read_text
from inferno_optimizer.errors import InfernoError, InputError

KEY = re.compile(r"[!-~]+")
"""An API key: printable ASCII characters without spaces."""

TIMEOUT_S = 60.0
"""Longest time to the next token [s]."""


class EngineError(InfernoError):
    """An engine refuses a request, does not answer it, or answers something else."""


@dataclass(frozen=True, slots=True)
class EngineEndpoint:
    """Where an engine is.

    Attributes
    ----------
    url
        Base of its API, without `/v1`.
    key
        File with the API key; None if it asks for none.
    timeout
        Longest time to the next token [s].

    Raises
    ------
    InputError
        The URL is not one.
    """

    url: str
    key: Path | None = None
    timeout: float = TIMEOUT_S

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{self.url!r} is no URL of an engine, such as http://localhost:8000")

    @property
    def base(self) -> str:
        """The base with `/v1`, which the URL may have or not."""
        return self.url.rstrip("/").removesuffix("/v1") + "/v1"

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    def headers(self) -> dict[str, str]:
        """The headers of a request; no message has the key.

        Raises
        ------
        InputError
            The file with the key cannot be read, or has none.
        """
        if self.key is None:
            return {}
        text = read_text(self.key).strip()
        if not KEY.fullmatch(text):
            raise InputError(f"{self.key} has no API key: one line of ASCII characters")
        return {"Authorization": f"Bearer {text}"}
