"""Where Prometheus is: the INFERNO_PROMETHEUS_* variables."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from inferno_operator.adapters.prometheus.endpoint import DEFAULT_TIMEOUT, PrometheusEndpoint
from inferno_operator.settings.values import file, read_seconds
from inferno_optimizer.errors import InputError

URL = "INFERNO_PROMETHEUS_URL"
TOKEN_FILE = "INFERNO_PROMETHEUS_TOKEN_FILE"  # noqa: S105 - the name of a variable
CA = "INFERNO_PROMETHEUS_CA"
CERT = "INFERNO_PROMETHEUS_CERT"
KEY = "INFERNO_PROMETHEUS_KEY"
USER = "INFERNO_PROMETHEUS_USER"
PASSWORD_FILE = "INFERNO_PROMETHEUS_PASSWORD_FILE"  # noqa: S105 - the name of a variable
HEADERS_FILE = "INFERNO_PROMETHEUS_HEADERS_FILE"
PARAMS = "INFERNO_PROMETHEUS_PARAMS"
TIMEOUT = "INFERNO_PROMETHEUS_TIMEOUT"

# Variables that have no effect without another one.
NEEDS = ((KEY, CERT), (USER, PASSWORD_FILE), (PASSWORD_FILE, USER))


def prometheus_endpoint(environment: Mapping[str, str]) -> PrometheusEndpoint | None:
    """Return where Prometheus is, None without a URL.

    Raises InputError if a value is invalid, or has no effect beside the others; the message
    names the variable.
    """
    url = environment.get(URL, "").strip()
    if not url:
        return None
    _check_url(url)
    _check_combination(environment, secure=url.startswith("https:"))
    return PrometheusEndpoint(
        url,
        token=file(environment, TOKEN_FILE),
        authority=file(environment, CA),
        certificate=file(environment, CERT),
        key=file(environment, KEY),
        user=environment.get(USER, ""),
        password=file(environment, PASSWORD_FILE),
        headers=file(environment, HEADERS_FILE),
        params=_params(environment.get(PARAMS, "")),
        timeout=read_seconds(environment, TIMEOUT, DEFAULT_TIMEOUT),
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # an invalid port is found when it is read
    except ValueError as error:
        raise InputError(f"{URL}: {url!r} is not a URL: {error}") from error
    if "@" in parts.netloc:
        raise InputError(f"{URL}: it must not have credentials: set {USER} and {PASSWORD_FILE}")
    if not url.startswith(("http://", "https://")) or not host:
        raise InputError(f"{URL}: {url!r} is not a URL such as https://prometheus:9090/prefix")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InputError(f"{URL}: {url!r} has characters that a URL cannot have: escape them")
    if parts.query or parts.fragment:
        raise InputError(f"{URL}: {url!r} has parameters: set them in {PARAMS}")


def _check_combination(environment: Mapping[str, str], *, secure: bool) -> None:
    for name, needed in NEEDS:
        if environment.get(name) and not environment.get(needed):
            raise InputError(f"{name}: has no effect without {needed}: set both")
    if environment.get(TOKEN_FILE) and environment.get(USER):
        raise InputError(f"{TOKEN_FILE}: cannot be set together with {USER}: set one of them")
    if ":" in environment.get(USER, ""):
        raise InputError(f"{USER}: {environment[USER]!r} has a colon: no user can have one")
    for name in (CA, CERT):
        if environment.get(name) and not secure:
            raise InputError(f"{name}: has no effect unless {URL} starts with https://")


def _params(text: str) -> tuple[tuple[str, str], ...]:
    """Return names and values of parameters such as `namespace=prod&dedup=true`."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
    except ValueError as error:
        raise InputError(f"{PARAMS}: {text!r} is not of the form name=value&name=value") from error
    if not all(name for name, _ in pairs):
        raise InputError(f"{PARAMS}: {text!r} has a value without a name")
    return tuple(pairs)
