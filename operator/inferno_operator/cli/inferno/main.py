"""The program `inferno`: its commands, each of which parses, calls one library function, prints."""

import typer

from inferno_operator.cli.console import HELP, Version, examples, run_app
from inferno_operator.cli.inferno import (
    autoscalers,
    catalogue,
    measurement,
    planning,
    programs,
    replay,
)

app = typer.Typer(
    context_settings=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line and exit; see `console.run_app`."""
    run_app(app, "inferno")


@app.callback(epilog=examples("inferno sample | inferno plan -"))
def inferno(_version: Version = False) -> None:
    """Decide where LLM inference runs.

    For each server: which accelerator, how many replicas, which batch size.
    """


for commands in (planning, measurement, autoscalers, replay, programs):
    app.add_typer(commands.app)
app.add_typer(autoscalers.migrations, name="migrate")
app.add_typer(catalogue.app, name="catalogue")
