"""Options that say where Prometheus is, and what it has; each stands for an INFERNO_* variable."""
# ruff: noqa: PLC0415 - the client is imported only where it is used, so that `--help` is fast

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inferno_operator.settings import VARIABLES, Variable
from inferno_operator.settings.values import file
from inferno_optimizer.errors import InputError

if TYPE_CHECKING:
    from inferno_operator.adapters.prometheus.endpoint import PrometheusEndpoint
    from inferno_operator.engines.catalogue import MetricSources

PREFIX = "INFERNO_PROMETHEUS_"
URL = f"{PREFIX}URL"
SOURCES = "INFERNO_MEASURE_SOURCES"

PROMETHEUS_VARIABLES = tuple(
    sorted((v for v in VARIABLES if v.name.startswith(PREFIX)), key=lambda v: v.name != URL)
)
"""The URL comes first, as nothing is asked without it."""

_OPTIONS = (*PROMETHEUS_VARIABLES, *(v for v in VARIABLES if v.name == SOURCES))


@dataclass(frozen=True, slots=True)
class PrometheusOptions:
    """Where Prometheus is, if it is known, and a file with sources beside the built-in ones."""

    endpoint: "PrometheusEndpoint | None"
    sources_file: Path | None

    @property
    def place(self) -> "PrometheusEndpoint":
        """Where Prometheus is.

        Raises
        ------
        InputError
            Nobody has said it.
        """
        if self.endpoint is None:
            raise InputError("where is Prometheus? Give --prometheus URL")
        return self.endpoint

    def read_sources(self) -> "MetricSources":
        """Read the sources, as the operator does.

        Raises
        ------
        InputError
            The file cannot be read, or is not valid.
        """
        from inferno_operator.engines.catalogue import catalogue_with

        return catalogue_with(self.sources_file)


def prometheus_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as first argument."""

    @wraps(command, assigned=("__name__", "__doc__"))
    def wrapped(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the command's
        given = {v.name: options.pop(_parameter(v)) for v in _OPTIONS}
        command(_read(given), *arguments, **options)

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
        for variable in _OPTIONS
    )
    wrapped.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # PEP 362
    return wrapped


def _read(options: Mapping[str, str | None]) -> PrometheusOptions:
    from inferno_operator.settings.prometheus import prometheus_endpoint

    given = {name: value for name, value in options.items() if value is not None}
    environment = {**os.environ, **given}
    try:
        return PrometheusOptions(prometheus_endpoint(environment), file(environment, SOURCES))
    except InputError as error:
        raise InputError(_in_options(str(error))) from error


def _in_options(message: str) -> str:
    """A message with options in place of the variables that are not set."""
    flags = {v.name: _flag(v) for v in PROMETHEUS_VARIABLES if v.name not in os.environ}
    return re.sub(rf"{PREFIX}\w+", lambda found: flags.get(found[0], found[0]), message)


def _flag(variable: Variable) -> str:
    if variable.name == SOURCES:
        return f"--{variable.option}"
    rest = variable.name.removeprefix(PREFIX).lower().replace("_", "-")
    return "--prometheus" if variable.name == URL else f"--{rest}"


def _parameter(variable: Variable) -> str:
    return _flag(variable).removeprefix("--").replace("-", "_")
