"""The options `--filter` and `--sort`: rows of the main table that a command prints."""

from typing import Annotated

import typer

Filter = Annotated[
    str,
    typer.Option(
        "--filter",
        metavar="WORDS",
        help="Show only the rows of the main table that have all these words.",
        show_default=False,
    ),
]
Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        metavar="COLUMN",
        help="Sort the main table by this column; with a minus before it the largest come first.",
        show_default=False,
    ),
]
