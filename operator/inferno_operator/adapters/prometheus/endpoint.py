"""Address of Prometheus, and the credentials of the operator."""

from dataclasses import dataclass
from pathlib import Path

DEFAULT_TIMEOUT = 10.0
"""Time limit of a query [s]."""


@dataclass(frozen=True, slots=True)
class PrometheusEndpoint:
    """The address of a Prometheus API, and the files with the credentials for it.

    `url` may have a path prefix, such as `https://mimir/prometheus`. `user` and the file
    `password` are for basic authentication; each line of the file `headers` is `Name: value`.
    `params` are parameters that each query has in addition, names and values. `timeout` is the
    time limit of a query, with its second try [s].

    The files may change at any time: a query is sent with what they have then.
    """

    url: str
    token: Path | None = None
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str = ""
    password: Path | None = None
    headers: Path | None = None
    params: tuple[tuple[str, str], ...] = ()
    timeout: float = DEFAULT_TIMEOUT

    @property
    def secure(self) -> bool:
        """Whether the endpoint uses TLS."""
        return self.url.startswith("https:")
