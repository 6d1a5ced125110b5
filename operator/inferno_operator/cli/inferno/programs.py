"""`inferno operator`, `admission` and `serve`: the programs that keep running."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import os
from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated

import typer

from inferno_operator.cli.console import (
    TimeLimit,
    examples,
)
from inferno_operator.settings import HEALTH_PORT, VARIABLES, Variable
from inferno_optimizer.errors import InputError

app = typer.Typer()


class LogFormat(StrEnum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"


def _add_operator_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add to a command one option for each environment variable that the operator reads."""
    own = [p for p in signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = map(_build_option, VARIABLES)
    command.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]  # PEP 362
    return command


def _build_option(variable: Variable) -> Parameter:
    flag, text = f"--{variable.option}", f"{variable.help}{variable.default_note} [{variable.name}]"
    kind: object
    if variable.switch:
        kind = Annotated[bool | None, typer.Option(f"{flag}/--no-{variable.option}", help=text)]
    else:
        kind = Annotated[str | None, typer.Option(flag, metavar=variable.metavar, help=text)]
    name = variable.option.replace("-", "_")
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


@app.command(epilog=examples("inferno operator --namespace llm --leader-election"))
@_add_operator_options
def operator(
    *,
    health_port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="For /healthz, /readyz and /metrics; 0 takes a free one and prints it.",
        ),
    ] = HEALTH_PORT,
    log_format: Annotated[LogFormat, typer.Option(help="How to log.")] = LogFormat.TEXT,
    **flags: str | bool | None,
) -> None:
    """Run the operator.

    It works in the cluster that KUBECONFIG names, or in which it runs, and is configured by
    INFERNO_* variables; options win over them.
    """
    from inferno_operator.main import run

    names = {variable.option.replace("-", "_"): variable.name for variable in VARIABLES}
    given = {names[flag]: str(value) for flag, value in flags.items() if value is not None}
    run({**os.environ, **given}, health_port, json_logs=log_format is LogFormat.JSON)


@app.command(epilog=examples("inferno admission --tls-cert tls.crt --tls-key tls.key"))
def admission(
    *,
    tls_cert: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            envvar="INFERNO_TLS_CERT",
            help="Certificate by which the API server knows it (PEM).",
        ),
    ],
    tls_key: Annotated[
        Path, typer.Option(metavar="FILE", envvar="INFERNO_TLS_KEY", help="Its key (PEM).")
    ],
    port: Annotated[
        int, typer.Option(metavar="PORT", min=1, max=65535, help="Where the API server calls it.")
    ] = 9443,
    log_format: Annotated[LogFormat, typer.Option(help="How to log.")] = LogFormat.TEXT,
) -> None:
    """Warn of mistakes while objects are applied.

    The API server asks it before it stores an object, and kubectl prints what it answers: what the
    conditions would say. It works in the cluster that KUBECONFIG names, or in which it runs, needs
    a ValidatingWebhookConfiguration there, and writes nothing.
    """
    try:
        from inferno_operator.adapters.admission import run
    except ModuleNotFoundError as error:
        advice = "pip install 'inferno-operator[admission]'"
        raise InputError(f"inferno admission needs kopf: {advice}") from error
    from inferno_operator.logs import configure

    configure(as_json=log_format is LogFormat.JSON)
    run(port, tls_cert, tls_key)


@app.command(epilog=examples("inferno serve --stateful --port 3302"))
def serve(  # noqa: PLR0913 - an argument for each option
    *,
    stateful: Annotated[
        bool,
        typer.Option(
            "--stateful", "-F", help="Keep a system that clients change, and optimize that."
        ),
    ] = False,
    host: Annotated[
        str,
        typer.Option(metavar="HOST", envvar="INFERNO_HOST", help="The address to listen on."),
    ] = "127.0.0.1",
    port: Annotated[
        str,
        typer.Option(
            metavar="PORT",
            envvar="INFERNO_PORT",
            help="The port to listen on; 0 takes a free one and prints it.",
        ),
    ] = "8080",
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", envvar="INFERNO_TLS_CERT", help="Serve TLS with this certificate (PEM)."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", envvar="INFERNO_TLS_KEY", help="Its key (PEM)."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="INFERNO_TLS_CA",
            help="Serve only clients that have a certificate of this authority (PEM).",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="INFERNO_TOKEN_FILE",
            help="Serve only clients that send the bearer token in this file.",
        ),
    ] = None,
    time_limit: TimeLimit = 30.0,
) -> None:
    """Run the optimizer as a REST server.

    Files are read anew when they change. It speaks the published API, and describes that at
    /openapi.json; /healthz, /readyz and /metrics are there too.
    """
    from inferno_optimizer.api.messages import ServerLimits
    from inferno_optimizer.api.server import Files, read_port, run_server

    files = Files(tls_cert, tls_key, tls_ca, token_file)
    limits = ServerLimits.for_solver(time_limit)
    run_server(host, read_port(port), limits, files, typer.echo, stateful=stateful)
