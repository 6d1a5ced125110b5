"""The program `inferno`: its commands, each of which parses, calls one library function, prints."""

from typing import Annotated

import typer

from inferno_operator.cli.console import run_app
from inferno_operator.cli.inferno import (
    catalogue,
    generate,
    measurement,
    migrate,
    optimization,
    programs,
    replay,
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line and exit; see `console.run_app`."""
    run_app(app, "inferno")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - it is slow to import

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


for commands in (optimization, measurement, generate, replay, programs):
    app.add_typer(commands.app)
app.add_typer(migrate.app, name="migrate")
app.add_typer(catalogue.app, name="catalogue")
