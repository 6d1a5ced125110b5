"""`inferno catalogue`: performance parameters that others have published."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

from typing import Annotated

import typer

from inferno_operator.cli.console import Format, Output, show

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def published() -> None:
    """Show performance parameters that others have published.

    They are a start, until your own are calibrated.
    """


@app.command("list", epilog="Example: inferno catalogue list")
def list_models(output: Output = Format.TABLE) -> None:
    """List the models, their accelerators and sources."""
    from inferno_operator.cli.offline.catalogue import read_catalogue
    from inferno_operator.cli.tables.catalogue import catalogue_parts

    known = read_catalogue()
    show(output, known.to_json, lambda: catalogue_parts(known))


@app.command("show", epilog="Example: inferno catalogue show llama_13b -o yaml")
def show_model(
    model: Annotated[str, typer.Argument(metavar="NAME", help="The name of the model.")],
    output: Output = Format.TABLE,
) -> None:
    """Show the figures of a model with their sources; as YAML or JSON, the manifest of a Model."""
    from inferno_operator.cli.offline.catalogue import model_manifest, read_catalogue
    from inferno_operator.cli.tables.catalogue import figures_parts

    known = read_catalogue()
    figures = known.of(model)
    show(output, lambda: model_manifest(model, figures), lambda: figures_parts(known, figures))
