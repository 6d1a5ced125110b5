"""Options that say where Prometheus is; each stands for an INFERNO_PROMETHEUS_* variable."""
# ruff: noqa: PLC0415 - the client is imported only where it is used, so that `--help` is fast

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferno_operator.settings import VARIABLES, Variable
from inferno_optimizer.errors import InputError

if TYPE_CHECKING:
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint

PREFIX = "INFERNO_PROMETHEUS_"
URL = f"{PREFIX}URL"

PROMETHEUS_VARIABLES = tuple(
    sorted((v for v in VARIABLES if v.name.startswith(PREFIX)), key=lambda v: v.name != URL)
)
"""The URL comes first, as nothing is asked without it."""


def prometheus_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets an endpoint, or None, as first argument."""

    @wraps(command, assigned=("__name__", "__doc__"))
    def wrapped(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the command's
        given = {v.name: options.pop(_parameter(v)) for v in PROMETHEUS_VARIABLES}
        command(_endpoint(given), *arguments, **options)

    own = list(signature(command).parameters.values())[1:]
    options = (
        Parameter(
            _parameter(variable),
            Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    _flag(variable),
                    metavar=variable.metavar,
                    help=f"{variable.help}{variable.default_note}",
                ),
            ],
        )
        for variable in PROMETHEUS_VARIABLES
    )
    wrapped.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # PEP 362
    return wrapped


def required(endpoint: "PrometheusEndpoint | None") -> "PrometheusEndpoint":
    """Return the endpoint.

    Raises
    ------
    InputError
        There is none.
    """
    if endpoint is None:
        raise InputError("where is Prometheus? Give --prometheus URL")
    return endpoint


def _endpoint(options: Mapping[str, str | None]) -> "PrometheusEndpoint | None":
    from inferno_operator.settings.prometheus import prometheus_endpoint

    given = {name: value for name, value in options.items() if value is not None}
    try:
        return prometheus_endpoint({**os.environ, **given})
    except InputError as error:
        raise InputError(_in_options(str(error))) from error


def _in_options(message: str) -> str:
    """A message with options in place of the variables that are not set."""
    flags = {v.name: _flag(v) for v in PROMETHEUS_VARIABLES if v.name not in os.environ}
    return re.sub(rf"{PREFIX}\w+", lambda found: flags.get(found[0], found[0]), message)


def _flag(variable: Variable) -> str:
    rest = variable.name.removeprefix(PREFIX).lower().replace("_", "-")
    return "--prometheus" if variable.name == URL else f"--{rest}"


def _parameter(variable: Variable) -> str:
    return _flag(variable).removeprefix("--").replace("-", "_")
