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
    from inferno_optimizer.system import System

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
TimeLimit = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=0,
        envvar="INFERNO_SOLVER_TIME_LIMIT",
        help="When the exact solver stops and gives the best plan found.",
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


@app.command(
    epilog="Example: kubectl get inferno -o yaml | inferno optimize - -o json"
    "\n\nExample: inferno optimize samples/fleet --set 'server.*.load.arrivalRate*=1.5'"
)
def optimize(
    paths: Paths,
    output: Output = Format.TABLE,
    changes: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="CHANGE",
            help="What if: show what this would change, such as capacity.A100=8; also with +=, "
            "-=, *=. Kinds: accelerator, capacity, class, optimizer, server. Can be repeated.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer reads it and never changes it
    time_limit: TimeLimit = 30.0,
) -> None:
    """Show what every server would get.

    Needs no cluster and changes nothing.
    """
    from inferno_operator.offline import read_system
    from inferno_operator.tables import solution_parts
    from inferno_operator.what_if_tables import comparison_parts
    from inferno_optimizer.changes import parse_change
    from inferno_optimizer.codec import encode_comparison, encode_solution
    from inferno_optimizer.comparison import compare
    from inferno_optimizer.optimize import optimize
    from inferno_optimizer.what_if import apply_changes

    system = _limited(read_system(paths), time_limit)
    changed = apply_changes(system, map(parse_change, changes))
    with _working(f"optimizing {len(system.servers)} servers"):
        solution = optimize(system)
    if not changes:
        _print(output, lambda: encode_solution(solution), lambda: solution_parts(system, solution))
        return
    with _working("optimizing with what is changed"):
        comparison = compare(solution, optimize(changed))
    _print(
        output,
        lambda: encode_comparison(changes, comparison),
        lambda: comparison_parts(comparison),
    )


@app.command(epilog="Example: inferno explain samples/small Premium-granite-13b")
def explain(
    paths: Paths,
    server: Annotated[str, typer.Argument(metavar="SERVER", help="Its name (spec.name).")],
    output: Output = Format.TABLE,
    time_limit: TimeLimit = 30.0,
) -> None:
    """Show every option of one server.

    Each accelerator with its numbers and, where it is out, why. For a server that gets less
    than it needs also the smallest changes that would serve it.
    """
    from inferno_operator.offline import read_system
    from inferno_operator.tables import option_parts
    from inferno_operator.what_if_tables import remedy_parts
    from inferno_optimizer.codec import encode_explanation, encode_remedies
    from inferno_optimizer.explain import explain
    from inferno_optimizer.optimize import optimize
    from inferno_optimizer.remedies import remedies

    system = _limited(read_system(paths), time_limit)
    options = explain(system, server)
    with _working("looking for what would serve it"):
        solution = optimize(system)
        found = remedies(system, solution, server)
    decision = next(d for d in solution.decisions if d.server == server)
    _print(
        output,
        lambda: {"options": encode_explanation(options), "remedies": encode_remedies(found)},
        lambda: (*option_parts(options), *remedy_parts(decision, found)),
    )


@app.command(epilog="Example: INFERNO_NAMESPACE=llm inferno operator")
def operator() -> None:
    """Run the operator.

    It works in the cluster that KUBECONFIG names, or in which it runs, and is configured by
    INFERNO_* variables.
    """
    from inferno_operator.main import run

    run()


def _limited(system: "System", time_limit: float) -> "System":
    return replace(system, options=replace(system.options, time_limit=time_limit))


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
