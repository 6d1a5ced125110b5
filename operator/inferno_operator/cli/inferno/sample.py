"""`inferno sample`: a system to optimize, for people without a cluster and files."""
# ruff: noqa: PLC0415 - each command imports what it needs, so that `--help` comes at once

import typer

from inferno_operator.cli.console import examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "inferno sample | inferno plan -",
        "inferno sample > sample.yaml && inferno explain sample.yaml Free-granite-13b",
    )
)
def sample() -> None:
    """Print a small system, to try the other commands with.

    It has two servers of one model, and what they may run on. Write it to a file, change it, and
    give the file to the other commands.
    """
    from inferno_operator.cli.offline.sample import sample_text

    typer.echo(sample_text(), nl=False)
