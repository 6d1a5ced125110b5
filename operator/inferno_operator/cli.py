"""The command line: parse, call one library function, print."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import json
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from inferno_optimizer.errors import InfernoError, InputError, UnsupportedError

if TYPE_CHECKING:
    from inferno_operator.tables import Part

FAILED = 1
BAD_INPUT = 2
"""Exit statuses."""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(StrEnum):
    """How to print a result."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="Custom resources or SystemData: files, folders, kustomizations; - for stdin.",
        show_default=False,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="How to print the result.")]


def main() -> None:
    """Run the command line and exit: 0 is success, 2 bad input or usage, 1 another failure."""
    try:
        app(prog_name="inferno")
    except InfernoError as error:
        sys.stderr.write(f"inferno: {' '.join(str(error).split())}\n")
        sys.exit(BAD_INPUT if isinstance(error, InputError | UnsupportedError) else FAILED)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"inferno {version('inferno-operator')}")
        raise typer.Exit


@app.callback(epilog="Example: inferno optimize samples/small")
def inferno(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """Decide where LLM inference runs.

    For each server: which accelerator, how many replicas, which batch size.
    """


@app.command(epilog="Example: kubectl get inferno -o yaml | inferno optimize - -o json")
def optimize(
    paths: Paths,
    output: Output = Format.TABLE,
    time_limit: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            envvar="INFERNO_SOLVER_TIME_LIMIT",
            help="When the exact solver stops and gives the best plan found.",
        ),
    ] = 30.0,
) -> None:
    """Show what every server would get.

    Needs no cluster and changes nothing.
    """
    from inferno_operator.offline import read_system
    from inferno_operator.tables import solution_parts
    from inferno_optimizer.codec import encode_solution
    from inferno_optimizer.optimize import optimize

    system = read_system(paths)
    system = replace(system, options=replace(system.options, time_limit=time_limit))
    with _working(f"optimizing {len(system.servers)} servers"):
        solution = optimize(system)
    _print(output, lambda: encode_solution(solution), lambda: solution_parts(system, solution))


@app.command(epilog="Example: inferno explain samples/small Premium-granite-13b")
def explain(
    paths: Paths,
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its name (spec.name).")],
    output: Output = Format.TABLE,
) -> None:
    """Show every option of one server.

    Each accelerator with its numbers and, where it is out, why.
    """
    from inferno_operator.offline import read_system
    from inferno_operator.tables import option_parts
    from inferno_optimizer.codec import encode_explanation
    from inferno_optimizer.explain import explain

    options = explain(read_system(paths), server)
    _print(output, lambda: encode_explanation(options), lambda: option_parts(options))


@app.command(epilog="Example: INFERNO_NAMESPACE=llm inferno operator")
def operator() -> None:
    """Run the operator.

    It works in the cluster that KUBECONFIG names, or in which it runs, and is configured by
    INFERNO_* variables.
    """
    from inferno_operator.main import run

    run()


def _working(message: str) -> AbstractContextManager[object]:
    """Tell a person at a terminal what takes its time."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(message)


def _print(
    output: Format,
    document: Callable[[], object],
    parts: Callable[[], Iterable["Part"]],
) -> None:
    if output is Format.JSON:
        typer.echo(json.dumps(document(), indent=2, ensure_ascii=False))
    elif output is Format.YAML:
        import yaml

        typer.echo(yaml.safe_dump(document(), sort_keys=False, allow_unicode=True), nl=False)
    else:
        typer.echo("\n".join(map(str, parts())))
